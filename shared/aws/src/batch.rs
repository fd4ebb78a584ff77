//! A batch, decoded record by record, and what of it goes to the dead-letter queue.

use std::panic::{self, AssertUnwindSafe};

use tidegate_domain::{
    bucket::{BucketChange, Counters},
    sequence::SequenceNumber,
};

use crate::{
    dead_letters::DeadLetter,
    stream::{DecodeError, Record, StreamEvent, StreamImage, decode, sequence_number},
};

#[derive(Debug)]
pub struct Batch<'a, I = Counters<'a>> {
    /// Records of items that are no buckets.
    pub not_ours: usize,
    /// Changes of buckets, in stream order.
    pub changes: Vec<BucketChange<'a, I>>,
    /// Records that cannot be decoded, in stream order.
    pub poison: Vec<FailedRecord<'a>>,
}

/// A record to be parked.
#[derive(Debug)]
pub struct FailedRecord<'a> {
    /// How many changes of the batch come before it.
    pub changes_before: usize,
    /// `None` if the record has none that could be reported.
    pub sequence: Option<SequenceNumber>,
    /// The record, and why it is parked.
    pub letter: DeadLetter<'a>,
}

pub type Decode<'a, I> = fn(&'a str) -> Result<Record<'a, I>, DecodeError>;

/// The table's stream does not show what the function needs. No record of it can be processed until somebody configures
/// the stream anew, so none is parked: the batch fails, and the stream keeps the records.
#[derive(Debug, thiserror::Error)]
#[error("the stream is misconfigured, so nothing of the batch was processed")]
pub struct MisconfiguredStream {
    source: DecodeError,
}

impl<'a, I: StreamImage<'a>> Batch<'a, I> {
    /// Decodes each record of an event.
    pub fn decode(event: &'a StreamEvent) -> Result<Self, MisconfiguredStream> {
        Self::decode_by(event, decode)
    }
}

impl<'a, I> Batch<'a, I> {
    /// The same by another way to decode a record. A record whose decoding panics is poison like any other.
    pub fn decode_by(event: &'a StreamEvent, decode: Decode<'a, I>) -> Result<Self, MisconfiguredStream> {
        let mut batch = Self { not_ours: 0, changes: Vec::with_capacity(event.records.len()), poison: Vec::new() };
        for record in event.records.iter().map(|record| record.get()) {
            let reason = match panic::catch_unwind(AssertUnwindSafe(|| decode(record))) {
                Ok(Ok(Record::Change(change))) => {
                    batch.changes.push(change);
                    continue;
                }
                Ok(Ok(Record::NotOurs)) => {
                    batch.not_ours += 1;
                    continue;
                }
                Ok(Err(source)) if source.is_systemic() => return Err(MisconfiguredStream { source }),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "decoding it panicked".to_owned(),
            };
            batch.poison.push(FailedRecord {
                changes_before: batch.changes.len(),
                sequence: sequence_number(record),
                letter: DeadLetter { record, reason, snapshot: None },
            });
        }
        Ok(batch)
    }
}
