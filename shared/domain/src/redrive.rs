//! Redrive: counting a record behind its stream's back, once, after it was parked or given up.
//!
//! Such a record lies below the watermark as soon as a later one of its bucket item was counted, so the
//! watermark alone no longer tells whether it is in. What does, is the [`Evidence`]:
//!
//! - a **marker**, one for each record and snapshot that were redriven, written with the counters;
//! - a **late span**: what was counted from the stream when it was so old that it might be parked at any time
//!   was written down, with the counters;
//! - the watermark as the stream left it: whoever redrives a record that is above the watermark raises it to
//!   that record, so that the record passes for counted if it is delivered after all, and keeps in the marker
//!   what the watermark was for the stream.
//!
//! What they do not prove is [`Decision::Undecided`], and a person's to decide.

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

/// Who says that a snapshot lacks a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A dead letter: the function parked the record.
    Letter {
        /// Whether it could not be learnt if the snapshot lacks the record: the last write for it that
        /// was not late may have been done although it failed.
        unsure: bool,
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
    /// What of it is the stream's: the same, unless a redrive raised it.
    pub from_stream: Option<SequenceNumber>,
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
    /// Nothing proves whether it was counted.
    Undecided,
}

/// Whether a record is still to be counted.
///
/// Of a range, the records are decided in stream order, each when those before it are settled: that the stream's
/// watermark lies within the range then proves that it was counted up to there, since batches that are
/// delivered again only get smaller from behind.
#[must_use]
pub fn decide(record: SequenceNumber, origin: Origin, evidence: &Evidence) -> Decision {
    if evidence.redriven {
        return Decision::AlreadyRedriven;
    }
    if evidence.late {
        return Decision::AlreadyCounted;
    }
    // Whoever counts from the stream raises the watermark to the record, or beyond.
    let Some(counted_to) = evidence.from_stream.filter(|watermark| *watermark >= record) else {
        return Decision::Count;
    };
    match origin {
        Origin::Letter { unsure: false } => Decision::Count,
        Origin::Range { end } if counted_to <= end => Decision::AlreadyCounted,
        Origin::Letter { unsure: true } | Origin::Range { .. } => Decision::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(number: u32) -> SequenceNumber {
        SequenceNumber::parse(&format!("1{number:020}")).unwrap()
    }

    const SURE: Origin = Origin::Letter { unsure: false };
    const UNSURE: Origin = Origin::Letter { unsure: true };

    fn range() -> Origin {
        Origin::Range { end: sequence(7) }
    }

    /// The record is number 5, the batch of a range ends with 7.
    fn check(origin: Origin, from_stream: Option<u32>, expect: Decision) {
        let watermark = from_stream.map(sequence);
        let evidence = Evidence { watermark, from_stream: watermark, ..Evidence::default() };
        assert_eq!(decide(sequence(5), origin, &evidence), expect, "{origin:?} {evidence:?}");
        // Whatever else: nothing is counted twice.
        let redriven = Evidence { redriven: true, ..evidence };
        assert_eq!(decide(sequence(5), origin, &redriven), Decision::AlreadyRedriven);
        let late = Evidence { late: true, ..evidence };
        assert_eq!(decide(sequence(5), origin, &late), Decision::AlreadyCounted);
    }

    #[test]
    fn only_what_is_proved_is_decided() {
        for origin in [SURE, UNSURE, range()] {
            check(origin, None, Decision::Count);
            check(origin, Some(4), Decision::Count);
        }
        for watermark in [5, 6, 8] {
            check(SURE, Some(watermark), Decision::Count);
            check(UNSURE, Some(watermark), Decision::Undecided);
        }
        for watermark in [5, 7] {
            check(range(), Some(watermark), Decision::AlreadyCounted);
        }
        check(range(), Some(8), Decision::Undecided);
    }

    #[test]
    fn a_watermark_that_a_redrive_raised_proves_nothing() {
        let raised = Evidence { watermark: Some(sequence(9)), from_stream: Some(sequence(4)), ..Evidence::default() };
        for origin in [SURE, UNSURE, range()] {
            assert_eq!(decide(sequence(5), origin, &raised), Decision::Count);
        }
    }
}
