//! When to aggregate again: every interval, from start to start, until the time is nearly up.

use std::time::Duration;

/// How far a wait may be from the interval: a tenth of it, to either side, so that those who start together do not
/// stay together.
pub const JITTER: f64 = 0.1;

/// The time from one start to the next. `chance` is drawn at random from 0 to 1.
#[must_use]
pub fn wait(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * chance.clamp(0.0, 1.0) - 1.0))
}

/// How long aggregations take here, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    longest: Duration,
}

impl Pace {
    /// Of what an aggregation has not shown yet: somewhat more than the longest so far.
    const MARGIN: f64 = 1.5;
    /// Whoever has seen none yet leaves this much room.
    const LEAST: Duration = Duration::from_millis(500);

    /// An aggregation took so long.
    pub fn took(&mut self, elapsed: Duration) {
        self.longest = self.longest.max(elapsed);
    }

    /// Whether there is room for one more, `left` before the time is up.
    #[must_use]
    pub fn has_room(&self, left: Duration) -> bool {
        left >= self.longest.mul_f64(Self::MARGIN).max(Self::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_within_a_tenth_of_the_interval() {
        let check = |chance, expect| {
            assert_eq!(wait(Duration::from_secs(5), chance), Duration::from_millis(expect), "{chance}");
        };
        check(0.0, 4_500);
        check(0.5, 5_000);
        check(1.0, 5_500);
        check(7.0, 5_500);
    }

    #[test]
    fn another_one_starts_only_if_it_can_end() {
        let check = |took: &[u64], left, expect| {
            let mut pace = Pace::default();
            for millis in took {
                pace.took(Duration::from_millis(*millis));
            }
            assert_eq!(pace.has_room(Duration::from_millis(left)), expect, "{took:?}, {left} ms left");
        };
        check(&[], 499, false);
        check(&[], 500, true);
        check(&[10], 500, true);
        check(&[2_000, 100], 2_999, false);
        check(&[2_000, 100], 3_000, true);
    }
}
