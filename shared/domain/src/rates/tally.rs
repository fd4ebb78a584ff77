//! The sums over a fleet's judgements.

use std::time::Duration;

use super::{Judgement, Rate, Rates, Reason};
use crate::time::EpochMillis;

/// The sums over a fleet's reports. The same judgements give the same tally in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workers whose report counts.
    pub active: usize,
    /// Workers whose report is stale.
    pub stale: usize,
    rejected: [usize; Reason::ALL.len()],
    read: Sum,
    write: Sum,
    oldest: Option<EpochMillis>,
}

/// A sum of rates, in millionths of a capacity unit a second. 128 bits hold the rates of more workers than fit in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sum(u128);

impl Sum {
    /// Returns the number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u128 {
        self.0
    }

    /// Returns capacity units a second: the nearest float, for all sums below nine billion.
    #[must_use]
    pub const fn units(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "rounds to the nearest float, as it must")]
        let (millionths, unit) = (self.0 as f64, Rate::UNIT as f64);
        millionths / unit
    }

    /// Returns the sum as a rate, at most [`Rate::MAX`].
    #[must_use]
    pub fn rate(self) -> Rate {
        Rate::from_millionths(u64::try_from(self.0).unwrap_or(u64::MAX))
    }

    /// Returns `self * cap / (cap - reserved)`, which is to the cap as the sum is to the rest of the cap. Returns the sum itself
    /// if nothing is left of the cap.
    ///
    /// ```
    /// use tidegate_domain::rates::{Judgement, Rate, Rates, tally::Tally};
    /// # use tidegate_domain::time::EpochMillis;
    ///
    /// let rates = Rates { read: Rate::new(30.0)?, ..Rates::default() };
    /// let tally: Tally = [Judgement::Fresh { rates, at: EpochMillis::EPOCH }].into_iter().collect();
    /// // 30 of the remaining 40 are as much as 75 of 100.
    /// assert_eq!(tally.read().scaled_up(Rate::new(100.0)?, Rate::new(60.0)?).units(), 75.0);
    /// # Ok::<(), tidegate_domain::rates::Reason>(())
    /// ```
    #[must_use]
    pub fn scaled_up(self, cap: Rate, reserved: Rate) -> Self {
        let rest = cap.millionths().saturating_sub(reserved.millionths());
        Self((self.0 * u128::from(cap.millionths())).checked_div(rest.into()).unwrap_or(self.0))
    }
}

impl Reason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::TooLarge,
        Self::NotJson,
        Self::NoTimestamp,
        Self::NotNumeric,
        Self::NotANumber,
        Self::Infinite,
        Self::Negative,
        Self::Absurd,
        Self::Future,
        Self::Lease,
    ];
}

impl Tally {
    /// Counts one worker.
    pub fn count(&mut self, judgement: Judgement) {
        match judgement {
            Judgement::Fresh { rates: Rates { read, write }, at } => {
                self.active += 1;
                self.read.0 += u128::from(read.millionths());
                self.write.0 += u128::from(write.millionths());
                self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
            }
            Judgement::Stale => self.stale += 1,
            Judgement::Rejected(reason) => self.rejected[reason as usize] += 1,
        }
    }

    /// Returns what the active workers read together.
    #[must_use]
    pub const fn read(&self) -> Sum {
        self.read
    }

    /// Returns what the active workers write together.
    #[must_use]
    pub const fn write(&self) -> Sum {
        self.write
    }

    /// Returns the number of rejected reports.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.rejected.iter().sum()
    }

    /// Returns the number of reports that were rejected for this reason.
    #[must_use]
    pub const fn rejected_for(&self, reason: Reason) -> usize {
        self.rejected[reason as usize]
    }

    /// Returns the age of the oldest fresh report at the moment `now`. `None` if no report is fresh.
    #[must_use]
    pub fn oldest_age(&self, now: EpochMillis) -> Option<Duration> {
        Some(now.since(self.oldest?))
    }
}

impl FromIterator<Judgement> for Tally {
    fn from_iter<I: IntoIterator<Item = Judgement>>(judgements: I) -> Self {
        let mut tally = Self::default();
        judgements.into_iter().for_each(|judgement| tally.count(judgement));
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [`Tally::rejected_for`] uses a reason's number as an index.
    #[test]
    fn all_reasons_are_listed_in_order() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
        }
    }
}
