//! Redrive: counting a record behind its stream's back, once, after it was parked or given up.
//!
//! Such a record lies below the watermark as soon as a later one of its bucket item was counted, so the
//! watermark alone no longer tells whether it is in. What does, is the [`Evidence`]:
//!
//! - a **marker**, one for each record and snapshot that were redriven, written with the counters;
//! - a **late span**: what was counted from the stream when it was so old that it might be parked at any time
//!   was written down, with the counters;
//! - the watermark, which a redrive leaves as it is: records below the one that is redriven may still be on
//!   their way, and would pass for counted.
//!
//! So a record that was parked and is above the watermark is [`Decision::Waiting`], as long as it may be delivered once
//! more. What nothing proves is [`Decision::Undecided`], and a person's to decide.

use std::time::Duration;

use crate::{sequence::SequenceNumber, time::EpochMillis, usage::Posting};

/// How a posting is made, by the age of its oldest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// As always.
    Fresh,
    /// With a late span: it may be given up soon, or was by an invocation that could not say so.
    Late,
    /// The same, and if it does not succeed, it is given up.
    Spent,
}

impl Age {
    /// Of a posting, where records are given up at this age. It is late from half of that on: until it is spent,
    /// every write that was made for it while it was fresh has long ended.
    #[must_use]
    pub fn of(posting: &Posting<'_>, now: EpochMillis, give_up_after: Duration) -> Self {
        let age = posting.oldest().map(|oldest| now.since(oldest)).unwrap_or_default();
        if age >= give_up_after {
            Self::Spent
        } else if age >= give_up_after / 2 {
            Self::Late
        } else {
            Self::Fresh
        }
    }
}

/// How long a record may be delivered: as long as a stream keeps it, and an invocation that has it may take.
///
/// AWS: [data retention limit](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html),
/// [timeout](https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html).
const DELIVERABLE: Duration = Duration::from_mins(24 * 60 + 15);

/// Whether a record that was created then may be delivered once more.
#[must_use]
pub fn may_come_again(created: EpochMillis, now: EpochMillis) -> bool {
    now.since(created) < DELIVERABLE
}

/// Who says that a snapshot lacks a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A dead letter of a record that the function could not read, so it is in no snapshot. Late spans around
    /// it do not hold it.
    Poison,
    /// A dead letter of a record that could not be counted.
    Letter {
        /// Whether it could not be learnt if the snapshot lacks the record: the last write for it that
        /// was not late may have been done although it failed.
        unsure: bool,
        /// See [`may_come_again`]: the answer that the record was parked may have been lost.
        may_come_again: bool,
    },
    /// A failure message: the event source mapping gave up a batch, of which the function may have counted some.
    Range {
        /// The batch's last record.
        end: SequenceNumber,
    },
}

/// What is known of a record and a snapshot, as it was read in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The snapshot's watermark of the record's bucket shard.
    pub watermark: Option<SequenceNumber>,
    /// Whether a marker says that the record was redriven.
    pub redriven: bool,
    /// Whether a late span holds the record.
    pub late: bool,
}

/// What is to become of a record, for one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It is to be counted.
    Count,
    /// A redrive has counted it.
    AlreadyRedriven,
    /// It was counted from the stream.
    AlreadyCounted,
    /// It is not counted yet, and may be by the function; ask again when later records are, or it is a day old.
    Waiting,
    /// Nothing proves whether it was counted.
    Undecided,
}

/// Whether a record is still to be counted.
///
/// Of a range, the records are decided in stream order, each when those before it are settled: that the stream's
/// watermark lies within the range then proves that it was counted up to there, since batches that are
/// delivered again only get smaller from behind. Poison in it has letters of its own: it was parked before.
#[must_use]
pub fn decide(record: SequenceNumber, origin: Origin, evidence: &Evidence) -> Decision {
    if evidence.redriven {
        return Decision::AlreadyRedriven;
    }
    if evidence.late && origin != Origin::Poison {
        return Decision::AlreadyCounted;
    }
    // Whoever counts from the stream raises the watermark to the record, or beyond.
    let Some(counted_to) = evidence.watermark.filter(|watermark| *watermark >= record) else {
        let waits = matches!(origin, Origin::Letter { may_come_again: true, .. });
        return if waits { Decision::Waiting } else { Decision::Count };
    };
    match origin {
        Origin::Poison | Origin::Letter { unsure: false, .. } => Decision::Count,
        Origin::Range { end } if counted_to <= end => Decision::AlreadyCounted,
        Origin::Letter { unsure: true, .. } | Origin::Range { .. } => Decision::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: u32) -> SequenceNumber {
        SequenceNumber::parse(&format!("1{number:020}")).unwrap()
    }

    const SURE: Origin = Origin::Letter { unsure: false, may_come_again: false };
    const UNSURE: Origin = Origin::Letter { unsure: true, may_come_again: false };
    const WAITING: Origin = Origin::Letter { unsure: false, may_come_again: true };

    fn range() -> Origin {
        Origin::Range { end: sequence(7) }
    }

    /// The record is number 5, the batch of a range ends with 7.
    fn check(origin: Origin, watermark: Option<u32>, expect: Decision) {
        let evidence = Evidence { watermark: watermark.map(sequence), ..Evidence::default() };
        assert_eq!(decide(sequence(5), origin, &evidence), expect, "{origin:?} {evidence:?}");
        // Whatever else: nothing is counted twice.
        let redriven = Evidence { redriven: true, ..evidence };
        assert_eq!(decide(sequence(5), origin, &redriven), Decision::AlreadyRedriven);
        let late = Evidence { late: true, ..evidence };
        let in_span = if origin == Origin::Poison { Decision::Count } else { Decision::AlreadyCounted };
        assert_eq!(decide(sequence(5), origin, &late), in_span);
    }

    #[test]
    fn only_what_is_proved_is_decided() {
        for origin in [Origin::Poison, SURE, UNSURE, range()] {
            check(origin, None, Decision::Count);
            check(origin, Some(4), Decision::Count);
        }
        for watermark in [5, 6, 8] {
            check(Origin::Poison, Some(watermark), Decision::Count);
            check(SURE, Some(watermark), Decision::Count);
            check(UNSURE, Some(watermark), Decision::Undecided);
        }
        for watermark in [5, 7] {
            check(range(), Some(watermark), Decision::AlreadyCounted);
        }
        check(range(), Some(8), Decision::Undecided);
    }

    #[test]
    fn a_record_that_may_come_again_waits_for_what_comes_after_it() {
        check(WAITING, None, Decision::Waiting);
        check(WAITING, Some(4), Decision::Waiting);
        check(WAITING, Some(6), Decision::Count);
        let at = |hours: i64| EpochMillis::new(hours * 3_600_000).unwrap();
        assert!(may_come_again(at(0), at(24)) && !may_come_again(at(0), at(25)));
    }
}
