//! Which summary replaces which: an older aggregation never replaces a newer one.

use super::{Cutoff, Field, moment};
use crate::time::EpochMillis;

/// What is known of the summary that is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Previous {
    /// When its aggregation began, in seconds since the epoch.
    pub timestamp: Field,
    /// Which one it is, if it says so: that of another program does not.
    pub sequence: Option<u64>,
}

/// What becomes of a new summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// It replaces the one that is there, with this number.
    Next {
        /// One more than that of the summary that it replaces, or 1.
        sequence: u64,
    },
    /// The one that is there began no earlier, and stays.
    Superseded,
}

/// What becomes of a summary whose aggregation began at the moment `began`, and that is about to be written at the
/// moment `now`.
///
/// Ignores a summary with no timestamp, or with one more than the cutoff after `now`: it would block every later write.
/// The comparison is with `now`, because others may have begun and ended while a slow aggregation ran.
#[must_use]
pub fn should_replace(previous: Option<Previous>, began: EpochMillis, now: EpochMillis, cutoff: Cutoff) -> Replacement {
    let Some(previous) = previous else { return Replacement::Next { sequence: 1 } };
    let at = match previous.timestamp {
        Field::Number(seconds) => moment(seconds).ok().filter(|at| at.since(now) <= cutoff.get()),
        Field::Missing | Field::Other => None,
    };
    if at.is_some_and(|at| at >= began) {
        return Replacement::Superseded;
    }
    // After the last number comes the first: whoever compares them takes it for a summary of another program.
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
        assert_eq!(should_replace(previous, began, began, Cutoff::DEFAULT), expect, "{previous:?}");
    }

    #[test]
    fn a_newer_summary_stays_and_any_other_is_replaced() {
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
    fn a_slow_aggregation_replaces_none_that_began_while_it_lasted() {
        let at = |millis: i64| EpochMillis::new(NOW * 1000 + millis).unwrap();
        let check = |previous: f64, took: i64, expect| {
            let previous = Previous { timestamp: Field::Number(1_767_225_600.0 + previous), sequence: Some(7) };
            let cutoff = Cutoff::from_seconds(std::num::NonZeroU32::MIN);
            assert_eq!(should_replace(Some(previous), at(0), at(took), cutoff), expect, "{previous:?} {took}");
        };
        let next = Replacement::Next { sequence: 8 };
        check(1.001, 0, next);
        check(1.001, 1, Replacement::Superseded);
        check(1.001, 4_000, Replacement::Superseded);
        check(5.0, 4_000, Replacement::Superseded);
        check(5.001, 4_000, next);
        check(-0.001, 4_000, next);
    }
}
