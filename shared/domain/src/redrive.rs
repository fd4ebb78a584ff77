//! Redrive: counts a record once that its stream no longer delivers.
//!
//! Such a record lies at or below the watermark as soon as a later record of its bucket item was counted. So the watermark
//! alone does not show whether the record was counted. One transaction writes the counters and a **marker** for each
//! record and snapshot. It does not raise the watermark: the stream may still deliver records below the redriven one,
//! and they would then seem to be counted.

use std::time::Duration;

use crate::{sequence::Position, time::EpochMillis};

/// How long a record may be delivered: a day in the stream, and 15 minutes for an invocation.
///
/// AWS: [data retention limit](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html),
/// [timeout](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const DELIVERABLE: Duration = Duration::from_mins(24 * 60 + 15);

/// Returns whether the stream may still deliver a record that was created at this moment.
#[must_use]
pub fn is_deliverable(created: EpochMillis, now: EpochMillis) -> bool {
    now.since(created) < DELIVERABLE
}

/// Where a record was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the dead-letter queue. The function could not decode it, or its snapshot rejects it. It was not counted.
    Parked,
    /// In a batch that the event source mapping discarded. The function may have counted a part of the batch.
    FailedBatch,
}

/// What the table shows about a record and a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The snapshot's watermark of the record's bucket shard.
    pub watermark: Option<Position>,
    /// Whether there is a marker for the record.
    pub is_redriven: bool,
}

/// What to do with a record, for one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Count it.
    Count,
    /// Nothing: a redrive has counted it.
    AlreadyRedriven,
    /// Wait: the stream may still deliver it.
    Waiting,
    /// Ask a person: nothing proves whether it was counted.
    Undecided,
}

/// Decides whether to count a record.
///
/// ```
/// use tidegate_domain::{
///     redrive::{Decision, Evidence, Origin, decide},
///     sequence::Position,
/// };
///
/// let at = |number| Position::from_stored(&format!("2026-01-01T00:00:00.000#{number:040}")).unwrap();
/// let passed = Evidence { watermark: Some(at(7)), is_redriven: false };
/// // The function never counts a record that it parks. It may have counted one of a failed batch.
/// assert_eq!(decide(at(5), false, Origin::Parked, &passed), Decision::Count);
/// assert_eq!(decide(at(5), false, Origin::FailedBatch, &passed), Decision::Undecided);
/// ```
#[must_use]
pub fn decide(record: Position, is_deliverable: bool, origin: Origin, evidence: &Evidence) -> Decision {
    // The function raises the watermark to each record that it counts, or beyond.
    let is_passed = evidence.watermark.is_some_and(|watermark| watermark >= record);
    match origin {
        _ if evidence.is_redriven => Decision::AlreadyRedriven,
        _ if !is_passed && is_deliverable => Decision::Waiting,
        Origin::FailedBatch if is_passed => Decision::Undecided,
        Origin::Parked | Origin::FailedBatch => Decision::Count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::{SequenceNumber, StreamLabel};

    fn position(year: u32, number: u32) -> Position {
        Position {
            stream: StreamLabel::parse(&format!("{year}-01-01T00:00:00.000")).unwrap(),
            sequence: SequenceNumber::parse(&format!("1{number:020}")).unwrap(),
        }
    }

    /// The record is number 5 of the stream of 2026. `expect` holds the decisions while the stream may deliver the record,
    /// and later.
    fn check(origin: Origin, watermark: Option<Position>, expect: [Decision; 2]) {
        for (deliverable, expect) in [true, false].into_iter().zip(expect) {
            let evidence = Evidence { watermark, is_redriven: false };
            assert_eq!(decide(position(2026, 5), deliverable, origin, &evidence), expect, "{origin:?} {evidence:?}");
            let redriven = Evidence { watermark, is_redriven: true };
            assert_eq!(decide(position(2026, 5), deliverable, origin, &redriven), Decision::AlreadyRedriven);
        }
    }

    #[test]
    fn only_provably_missing_records_count() {
        use Decision::{Count, Undecided, Waiting};
        for origin in [Origin::Parked, Origin::FailedBatch] {
            for watermark in [None, Some(position(2026, 4)), Some(position(2025, 9))] {
                check(origin, watermark, [Waiting, Count]);
            }
        }
        for watermark in [position(2026, 5), position(2026, 6), position(2027, 1)] {
            check(Origin::Parked, Some(watermark), [Count, Count]);
            check(Origin::FailedBatch, Some(watermark), [Undecided, Undecided]);
        }
    }

    #[test]
    fn a_record_is_deliverable_for_a_day() {
        let at = |millis: i64| EpochMillis::new(millis).unwrap();
        let last = (24 * 60 + 15) * 60_000;
        assert!(is_deliverable(at(0), at(last - 1)) && !is_deliverable(at(0), at(last)));
    }
}
