//! Postings that the table will never take, and the records in them.

use std::collections::HashMap;

use tidegate_aws::{
    batch::Parcel,
    dead_letters::DeadLetter,
    snapshots,
    stream::{StreamEvent, sequence_number},
};
use tidegate_domain::usage::Posting;

/// Postings that their snapshot will never take, and why.
pub(crate) struct Refusal<'a> {
    pub(crate) postings: Vec<Posting<'a>>,
    pub(crate) reason: String,
}

/// The records that their snapshots lack, once for each snapshot.
pub(crate) fn lacking<'a>(event: &'a StreamEvent, refusals: &[Refusal<'_>]) -> Vec<Parcel<'a>> {
    if refusals.is_empty() {
        return Vec::new();
    }
    let records = event.records.iter().map(|record| record.get());
    let records: HashMap<_, _> = records.filter_map(|record| Some((sequence_number(record)?, record))).collect();
    let mut parcels = Vec::new();
    for Refusal { postings, reason } in refusals {
        for posting in postings {
            let snapshot = snapshots::describe(posting.snapshot());
            let lacking = posting.sequences().filter_map(|sequence| Some((sequence, *records.get(&sequence)?)));
            parcels.extend(lacking.map(|(sequence, record)| Parcel {
                changes_before: 0,
                sequence: Some(sequence),
                letter: DeadLetter { record, reason: reason.clone(), snapshot: Some(snapshot.clone()) },
            }));
        }
    }
    parcels
}
