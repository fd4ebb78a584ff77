//! Postings that the table does not take, now or ever, and the records in them.

use std::collections::HashMap;

use tidegate_aws::{
    batch::Parcel,
    dead_letters::DeadLetter,
    snapshots,
    stream::{StreamEvent, sequence_number},
};
use tidegate_domain::{sequence::SequenceNumber, usage::Posting};

/// Postings of a snapshot that lacks them, and why.
pub(crate) struct Refusal<'a> {
    pub(crate) postings: Vec<Posting<'a>>,
    pub(crate) reason: String,
    /// Whether the snapshot may hold them all the same.
    pub(crate) unsure: bool,
}

/// The records that their snapshots lack, once for each snapshot, up to the first one that comes again: what
/// comes again may be counted then.
pub(crate) fn lacking<'a>(
    event: &'a StreamEvent,
    refusals: &[Refusal<'_>],
    comes_again: Option<SequenceNumber>,
) -> Vec<Parcel<'a>> {
    if refusals.is_empty() {
        return Vec::new();
    }
    let records = event.records.iter().map(|record| record.get());
    let records: HashMap<_, _> = records.filter_map(|record| Some((sequence_number(record)?, record))).collect();
    let mut parcels = Vec::new();
    for Refusal { postings, reason, unsure } in refusals {
        for posting in postings {
            let snapshot = snapshots::describe(posting.snapshot());
            let settled = posting.sequences().filter(|sequence| comes_again.is_none_or(|again| *sequence < again));
            let lacking = settled.filter_map(|sequence| Some((sequence, *records.get(&sequence)?)));
            parcels.extend(lacking.map(|(sequence, record)| Parcel {
                changes_before: 0,
                sequence: Some(sequence),
                letter: DeadLetter {
                    record,
                    reason: reason.clone(),
                    snapshot: Some(snapshot.clone()),
                    unsure: *unsure,
                },
            }));
        }
    }
    parcels
}
