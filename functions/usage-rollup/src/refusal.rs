//! Postings that their snapshots will never take, and the records in them.

use std::collections::HashMap;

use tidegate_aws::{
    batch::FailedRecord,
    dead_letters::DeadLetter,
    snapshots,
    stream::{StreamEvent, sequence_number},
};
use tidegate_domain::{sequence::SequenceNumber, usage::Posting};

/// Postings that are missing from a snapshot, and why.
pub(crate) struct Refusal<'a> {
    pub(crate) postings: Vec<Posting<'a>>,
    pub(crate) reason: String,
}

/// The records that are missing from their snapshots, once for each snapshot, up to the first one that is delivered
/// again: from there on, another attempt follows.
pub(crate) fn missing_records<'a>(
    event: &'a StreamEvent,
    refusals: &[Refusal<'_>],
    redelivered_from: Option<SequenceNumber>,
) -> Vec<FailedRecord<'a>> {
    if refusals.is_empty() {
        return Vec::new();
    }
    let records = event.records.iter().map(|record| record.get());
    let records: HashMap<_, _> = records.filter_map(|record| Some((sequence_number(record)?, record))).collect();
    let mut failed_records = Vec::new();
    for Refusal { postings, reason } in refusals {
        for posting in postings {
            let snapshot = snapshots::describe(posting.snapshot());
            let settled = posting.sequences().filter(|sequence| redelivered_from.is_none_or(|from| *sequence < from));
            let missing = settled.filter_map(|sequence| Some((sequence, *records.get(&sequence)?)));
            failed_records.extend(missing.map(|(sequence, record)| FailedRecord {
                changes_before: 0,
                sequence: Some(sequence),
                letter: DeadLetter { record, reason: reason.clone(), snapshot: Some(snapshot.clone()) },
            }));
        }
    }
    failed_records
}
