//! The summary that all workers of a fleet read. An older aggregation never replaces a newer one.

use std::time::Duration;

use super::{
    Cutoff, Field, moment,
    tally::{Sum, Tally},
};
use crate::{lease::fleet::LeaseSummary, time::EpochMillis};

/// The most bytes of a summary. With 10,000 leasing workers, it has about 500,000.
pub const MAX_SIZE: u64 = 4 * 1024 * 1024;

/// A summary of a fleet's reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// When its aggregation began, before the first listing. A summary that began later is at least as current.
    pub began: EpochMillis,
    /// The numbers of workers.
    pub tally: Tally,
    /// What the workers read together, or what workers of other programs must see beside leasing workers:
    /// [`Fleet::add_leases`](crate::lease::fleet::Fleet::add_leases).
    pub read: Sum,
    /// The same of writes.
    pub write: Sum,
    /// The terms of the leases. `None` without leasing workers.
    pub lease: Option<LeaseSummary>,
    /// The intended time from the start of one aggregation to the next.
    pub interval: Duration,
    /// The number of the summary.
    pub sequence: u64,
}

impl Summary {
    /// Creates a summary without leases. Its number is not known before it is [written](decide_replacement).
    #[must_use]
    pub const fn new(began: EpochMillis, tally: Tally, interval: Duration) -> Self {
        Self { began, tally, read: tally.read(), write: tally.write(), lease: None, interval, sequence: 0 }
    }

    /// Returns when the aggregation began, in seconds since the epoch.
    #[must_use]
    pub fn timestamp(&self) -> f64 {
        self.began.seconds()
    }

    /// Returns when the aggregation began, in UTC, to the second, without a zone: `2026-01-01T12:00:05`.
    #[must_use]
    pub fn time_utc(&self) -> String {
        self.began.civil().strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }
}

/// What is known of the summary in the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Previous {
    /// When its aggregation began, in seconds since the epoch.
    pub timestamp: Field,
    /// The number of the summary. Other programs write none.
    pub sequence: Option<u64>,
}

impl Previous {
    /// Returns when its aggregation began. `None` if it does not say so.
    #[must_use]
    pub fn began(&self) -> Option<EpochMillis> {
        match self.timestamp {
            Field::Number(seconds) => moment(seconds).ok(),
            Field::Missing | Field::Other => None,
        }
    }
}

/// What to do with a new summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Write it with this number.
    Next {
        /// One more than the number of the previous summary, or 1.
        sequence: u64,
    },
    /// Do not write it: the previous summary's aggregation began no earlier.
    Superseded,
}

/// Decides whether a summary replaces the previous one. Its aggregation began at the moment `began`, and it is about to be
/// written at the moment `now`.
///
/// Ignores a summary with no timestamp, or with one more than the cutoff after `now`: it would block every later write.
/// The comparison is with `now`, because others may have begun and ended while a slow aggregation ran.
#[must_use]
pub fn decide_replacement(
    previous: Option<Previous>,
    began: EpochMillis,
    now: EpochMillis,
    cutoff: Cutoff,
) -> Replacement {
    let Some(previous) = previous else { return Replacement::Next { sequence: 1 } };
    let at = previous.began().filter(|at| at.since(now) <= cutoff.get());
    if at.is_some_and(|at| at >= began) {
        return Replacement::Superseded;
    }
    // After the highest number, numbering starts again. Readers then treat the summary as one of another program.
    Replacement::Next { sequence: previous.sequence.and_then(|sequence| sequence.checked_add(1)).unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:00Z
    const NOW: i64 = 1_767_225_600;

    fn check(previous: Option<(Field, Option<u64>)>, expect: Replacement) {
        let previous = previous.map(|(timestamp, sequence)| Previous { timestamp, sequence });
        let began = EpochMillis::new(NOW * 1000).unwrap();
        assert_eq!(decide_replacement(previous, began, began, Cutoff::DEFAULT), expect, "{previous:?}");
    }

    #[test]
    fn only_a_newer_summary_stays() {
        let at = |seconds: f64| Field::Number(1_767_225_600.0 + seconds);
        let next = |sequence| Replacement::Next { sequence };
        check(None, next(1));
        check(Some((at(-5.0), Some(7))), next(8));
        check(Some((at(-0.001), Some(7))), next(8));
        check(Some((at(-5.0), None)), next(1));
        check(Some((at(-5.0), Some(u64::MAX))), next(1));
        check(Some((at(0.0), Some(7))), Replacement::Superseded);
        check(Some((at(0.001), Some(7))), Replacement::Superseded);
        check(Some((at(15.0), None)), Replacement::Superseded);
        check(Some((at(15.001), Some(7))), next(8));
        check(Some((Field::Number(f64::NAN), Some(7))), next(8));
        check(Some((Field::Missing, Some(7))), next(8));
        check(Some((Field::Other, None)), next(1));
    }

    #[test]
    fn a_slow_aggregation_replaces_no_later_one() {
        let at = |millis: i64| EpochMillis::new(NOW * 1000 + millis).unwrap();
        let check = |previous: f64, took: i64, expect| {
            let previous = Previous { timestamp: Field::Number(1_767_225_600.0 + previous), sequence: Some(7) };
            let cutoff = Cutoff::from_seconds(std::num::NonZeroU32::MIN);
            assert_eq!(decide_replacement(Some(previous), at(0), at(took), cutoff), expect, "{previous:?} {took}");
        };
        let next = Replacement::Next { sequence: 8 };
        check(1.001, 0, next);
        check(1.001, 1, Replacement::Superseded);
        check(1.001, 4_000, Replacement::Superseded);
        check(5.0, 4_000, Replacement::Superseded);
        check(5.001, 4_000, next);
        check(-0.001, 4_000, next);
    }

    #[test]
    fn the_time_is_that_of_the_beginning() {
        let began = EpochMillis::new(1_767_268_805_999).unwrap();
        let (tally, interval) = (Tally::default(), Duration::from_secs(5));
        let summary = Summary::new(began, tally, interval);
        assert_eq!(summary.time_utc(), "2026-01-01T12:00:05");
        assert_eq!(summary.timestamp().to_string(), "1767268805.999");
    }
}
