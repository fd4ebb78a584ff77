//! Redrive: counts a record that its stream does not deliver any more, once.
//!
//! Such a record lies at or below the watermark as soon as a later one of its bucket item was counted, so the
//! watermark alone no longer tells whether it is in. A **marker**, one for each record and snapshot that were redriven, is
//! written in one transaction with the counters. The watermark stays as it is: records below the redriven one
//! may still be on their way, and would pass for counted.

use std::time::Duration;

use crate::{sequence::Position, time::EpochMillis};

/// How long a record may be delivered: as long as a stream keeps it, and an invocation that has it may take.
///
/// AWS: [data retention limit](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html),
/// [timeout](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const DELIVERABLE: Duration = Duration::from_mins(24 * 60 + 15);

/// Whether a record that was created then may still be delivered.
#[must_use]
pub fn is_deliverable(created: EpochMillis, now: EpochMillis) -> bool {
    now.since(created) < DELIVERABLE
}

/// Where a record was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the dead-letter queue: the function could not read it, or its snapshot will never take it. It was not counted.
    Parked,
    /// In a batch that the event source mapping discarded. The function may have counted a part of the batch.
    FailedBatch,
}

/// What is known of a record and a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The snapshot's watermark of the record's bucket shard.
    pub watermark: Option<Position>,
    /// Whether a marker shows that the record was redriven.
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

/// Decides whether a record is still to be counted.
#[must_use]
pub fn decide(record: Position, is_deliverable: bool, origin: Origin, evidence: &Evidence) -> Decision {
    // Whoever counts from the stream raises the watermark to the record, or beyond.
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

    /// The record is number 5 of the stream of 2026; the watermark is given, and what is decided while the stream
    /// may deliver the record, and later.
    fn check(origin: Origin, watermark: Option<Position>, expect: [Decision; 2]) {
        for (deliverable, expect) in [true, false].into_iter().zip(expect) {
            let evidence = Evidence { watermark, is_redriven: false };
            assert_eq!(decide(position(2026, 5), deliverable, origin, &evidence), expect, "{origin:?} {evidence:?}");
            let redriven = Evidence { watermark, is_redriven: true };
            assert_eq!(decide(position(2026, 5), deliverable, origin, &redriven), Decision::AlreadyRedriven);
        }
    }

    #[test]
    fn only_what_is_proved_is_counted() {
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
