//! A batch, decoded record by record, and what of it goes to the dead-letter queue.

use std::collections::HashMap;

use tidegate_aws::{
    dead_letters::DeadLetter,
    snapshots,
    stream::{Record, StreamEvent, decode, sequence_number},
};
use tidegate_domain::{bucket::BucketChange, sequence::SequenceNumber, usage::Posting};

/// A batch, decoded.
pub(crate) struct Batch<'a> {
    /// Records of items that are no buckets.
    pub(crate) not_ours: usize,
    /// Changes of buckets, in stream order.
    pub(crate) changes: Vec<BucketChange<'a>>,
    /// Records that cannot be decoded, in stream order.
    pub(crate) poison: Vec<Parcel<'a>>,
}

/// A record to be parked.
#[derive(Debug)]
pub(crate) struct Parcel<'a> {
    /// How many changes of the batch come before it.
    pub(crate) changes_before: usize,
    /// `None` if the record has none that could be reported.
    pub(crate) sequence: Option<SequenceNumber>,
    pub(crate) letter: DeadLetter<'a>,
}

/// Postings that their snapshot will never take, and why.
pub(crate) struct Refusal<'a> {
    pub(crate) postings: Vec<Posting<'a>>,
    pub(crate) reason: String,
}

impl<'a> Batch<'a> {
    pub(crate) fn decode(event: &'a StreamEvent) -> Self {
        let mut batch = Self { not_ours: 0, changes: Vec::with_capacity(event.records.len()), poison: Vec::new() };
        for record in event.records.iter().map(|record| record.get()) {
            match decode(record) {
                Ok(Record::Change(change)) => batch.changes.push(change),
                Ok(Record::NotOurs) => batch.not_ours += 1,
                Err(error) => batch.poison.push(Parcel {
                    changes_before: batch.changes.len(),
                    sequence: sequence_number(record),
                    letter: DeadLetter { record, reason: error.to_string(), snapshot: None },
                }),
            }
        }
        batch
    }

    /// The changes that come before the first of these records; all of them if there is none.
    pub(crate) fn changes_before(&self, blocked: Option<&Parcel<'_>>) -> &[BucketChange<'a>] {
        &self.changes[..blocked.map_or(self.changes.len(), |parcel| parcel.changes_before)]
    }
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
