//! What a worker wants: an estimate from what its callers use and whether they wait.

use std::collections::VecDeque;

use super::START;
use crate::rates::Rate;

/// What the callers of a worker did with one kind of capacity in about a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// What they used.
    pub used: Rate,
    /// Their limit.
    pub allowed: Rate,
    /// Whether callers had to wait.
    pub has_waited: bool,
}

/// The demand for one kind of capacity.
///
/// A worker wants its maximum while its limit holds its callers back. Otherwise it wants what they use and a quarter more,
/// so that other workers get the rest, and at least [`START`]: a call after a pause can be sent at once. It wants the highest
/// value of the last five samples.
///
/// ```
/// use tidegate_domain::{lease::demand::{Demand, Sample}, rates::Rate};
///
/// let units = |units| Rate::from_millionths(units * Rate::UNIT);
/// let maximum = units(500);
/// let mut demand = Demand::default();
/// // A new worker wants its maximum.
/// assert_eq!(demand.wants(maximum), maximum);
/// for _ in 0..5 {
///     demand.observe(Sample { used: units(40), allowed: units(100), has_waited: false });
/// }
/// assert_eq!(demand.wants(maximum), units(50));
/// // The callers wait, and have used what they might use.
/// demand.observe(Sample { used: units(50), allowed: units(50), has_waited: true });
/// assert_eq!(demand.wants(maximum), maximum);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// What the worker wanted by each of the last samples. `None` stands for its maximum.
    samples: VecDeque<Option<Rate>>,
}

impl Demand {
    /// The number of samples for which a peak counts.
    const SAMPLES: usize = 5;

    /// Records a sample.
    pub fn observe(&mut self, sample: Sample) {
        self.samples.truncate(Self::SAMPLES - 1);
        self.samples.push_front(sample.wants());
    }

    /// Returns what the worker wants, where `maximum` is what it may use without a limit of the fleet.
    #[must_use]
    pub fn wants(&self, maximum: Rate) -> Rate {
        let by_sample = |sample: &Option<Rate>| sample.map_or(maximum, |wants| wants.max(START.read).min(maximum));
        let is_new = self.samples.len() < Self::SAMPLES;
        if is_new { maximum } else { self.samples.iter().map(by_sample).max().unwrap_or(maximum) }
    }
}

impl Sample {
    /// Whether the limit has held the callers back: they waited, and used nine tenths of the limit. Waiting alone does not
    /// show it, because callers that arrive together wait briefly below the limit. Callers that
    /// waited and used nothing also count: an earlier call cost more than its estimate, and the bucket is below zero.
    fn is_limited(self) -> bool {
        let Self { used, allowed, has_waited } = self;
        has_waited && (used.millionths() == 0 || used.millionths() / 9 >= allowed.millionths() / 10)
    }

    /// `None` stands for the maximum.
    fn wants(self) -> Option<Rate> {
        let used = self.used.millionths();
        (!self.is_limited()).then(|| Rate::from_millionths(used + used / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(units: u64) -> Rate {
        Rate::from_millionths(units * Rate::UNIT)
    }

    /// What a worker with a maximum of 1,000 wants after samples of what was used, of 100 that were allowed.
    fn check(samples: &[(u64, bool)], expect: u64) {
        let mut demand = Demand::default();
        for (used, has_waited) in samples {
            demand.observe(Sample { used: units(*used), allowed: units(100), has_waited: *has_waited });
        }
        assert_eq!(demand.wants(units(1_000)), units(expect), "{samples:?}");
    }

    #[test]
    fn the_limit_holds_callers_back_who_use_nine_tenths() {
        check(&[(90, true); 5], 1_000);
        check(&[(88, true); 5], 110);
        check(&[(92, false); 5], 115);
        // They wait until an earlier call is paid.
        check(&[(0, true); 5], 1_000);
        check(&[(0, false); 5], 1);
    }

    #[test]
    fn the_highest_of_five_samples_counts() {
        let mut samples = vec![(40, false); 5];
        samples[0] = (80, false);
        check(&samples, 100);
        samples.push((20, false));
        check(&samples, 50);
        samples.insert(1, (90, true));
        check(&samples, 50);
        samples.pop();
        check(&samples, 1_000);
        check(&[(4_000, false); 5], 1_000);
    }

    #[test]
    fn a_new_worker_wants_its_maximum() {
        check(&[], 1_000);
        check(&[(1, false); 4], 1_000);
        check(&[(4, false); 5], 5);
    }
}
