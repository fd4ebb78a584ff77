//! A batch, decoded record by record, and what of it goes to the dead-letter queue.

use tidegate_domain::{
    bucket::{BucketChange, Counters},
    sequence::SequenceNumber,
};

use crate::{
    dead_letters::DeadLetter,
    stream::{Record, StreamEvent, StreamImage, decode, sequence_number},
};

/// A batch, decoded.
#[derive(Debug)]
pub struct Batch<'a, I = Counters<'a>> {
    /// Records of items that are no buckets.
    pub not_ours: usize,
    /// Changes of buckets, in stream order.
    pub changes: Vec<BucketChange<'a, I>>,
    /// Records that cannot be decoded, in stream order.
    pub poison: Vec<Parcel<'a>>,
}

/// A record to be parked.
#[derive(Debug)]
pub struct Parcel<'a> {
    /// How many changes of the batch come before it.
    pub changes_before: usize,
    /// `None` if the record has none that could be reported.
    pub sequence: Option<SequenceNumber>,
    /// The record, and why it is parked.
    pub letter: DeadLetter<'a>,
}

impl<'a, I: StreamImage<'a>> Batch<'a, I> {
    /// Decodes each record of an event.
    #[must_use]
    pub fn decode(event: &'a StreamEvent) -> Self {
        let mut batch = Self { not_ours: 0, changes: Vec::with_capacity(event.records.len()), poison: Vec::new() };
        for record in event.records.iter().map(|record| record.get()) {
            match decode(record) {
                Ok(Record::Change(change)) => batch.changes.push(change),
                Ok(Record::NotOurs) => batch.not_ours += 1,
                Err(error) => batch.poison.push(Parcel {
                    changes_before: batch.changes.len(),
                    sequence: sequence_number(record),
                    letter: DeadLetter { record, reason: error.to_string(), snapshot: None, unsure: false },
                }),
            }
        }
        batch
    }
}

impl<'a, I> Batch<'a, I> {
    /// The changes that come before this record; all of them if there is none.
    #[must_use]
    pub fn changes_before(&self, blocked: Option<&Parcel<'_>>) -> &[BucketChange<'a, I>] {
        &self.changes[..blocked.map_or(self.changes.len(), |parcel| parcel.changes_before)]
    }
}
