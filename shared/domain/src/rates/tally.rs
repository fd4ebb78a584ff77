//! Judgements, summed up.

use std::time::Duration;

use super::{Judgement, Rate, Rates, Reason};
use crate::time::EpochMillis;

/// What the reports of a fleet come to. The same judgements make the same tally in whatever order they are counted,
/// and in whatever parts that are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workers whose report counts.
    pub active: usize,
    /// Workers that have not reported for longer than the cutoff.
    pub stale: usize,
    rejected: [usize; Reason::ALL.len()],
    read: Sum,
    write: Sum,
    oldest: Option<EpochMillis>,
}

/// A sum of rates, in millionths of a capacity unit a second: no number of workers that fits in a machine overflows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sum(u128);

impl Sum {
    /// The number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u128 {
        self.0
    }

    /// Capacity units a second: the float that is nearest to the sum, for all sums below nine billion.
    #[must_use]
    pub const fn units(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "rounds to the nearest float, as it must")]
        let (millionths, unit) = (self.0 as f64, Rate::UNIT as f64);
        millionths / unit
    }
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::TooLarge,
        Self::NotJson,
        Self::NoTimestamp,
        Self::NotNumeric,
        Self::NotANumber,
        Self::Infinite,
        Self::Negative,
        Self::Absurd,
        Self::Future,
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
                self.oldest = earlier(self.oldest, Some(at));
            }
            Judgement::Stale => self.stale += 1,
            Judgement::Rejected(reason) => self.rejected[reason as usize] += 1,
        }
    }

    /// What the active workers read, together.
    #[must_use]
    pub const fn read(&self) -> Sum {
        self.read
    }

    /// What the active workers write, together.
    #[must_use]
    pub const fn write(&self) -> Sum {
        self.write
    }

    /// Workers whose report was rejected, for whatever reason.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.rejected.iter().sum()
    }

    /// Workers whose report was rejected for this reason.
    #[must_use]
    pub const fn rejected_for(&self, reason: Reason) -> usize {
        self.rejected[reason as usize]
    }

    /// The age of the oldest report that counts, at the moment `now`; `None` if there is none.
    #[must_use]
    pub fn oldest_age(&self, now: EpochMillis) -> Option<Duration> {
        Some(now.since(self.oldest?))
    }
}

impl Extend<Judgement> for Tally {
    fn extend<I: IntoIterator<Item = Judgement>>(&mut self, judgements: I) {
        for judgement in judgements {
            self.count(judgement);
        }
    }
}

impl FromIterator<Judgement> for Tally {
    fn from_iter<I: IntoIterator<Item = Judgement>>(judgements: I) -> Self {
        let mut tally = Self::default();
        tally.extend(judgements);
        tally
    }
}

fn earlier(one: Option<EpochMillis>, other: Option<EpochMillis>) -> Option<EpochMillis> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count is found by the reason's number.
    #[test]
    fn all_reasons_are_there_in_order() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
        }
    }
}
