//! What every stream function does with a batch: it decodes each record, parks those that cannot be processed, and
//! answers from where to retry.

use std::{
    num::NonZeroUsize,
    panic::{self, AssertUnwindSafe},
};

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use tidegate_domain::{
    bucket::{BucketChange, Counters},
    sequence::SequenceNumber,
};
use tokio::time::Instant;

use crate::{
    concurrent::{concurrently, within},
    dead_letters::{DeadLetter, DeadLetterQueue},
    error::{CallError, causes},
    stream::{DecodeError, Record, StreamEvent, StreamImage, decode, sequence_number},
};

#[derive(Debug)]
pub struct Batch<'a, I = Counters<'a>> {
    /// The number of records of items that are not buckets.
    pub not_ours: usize,
    /// Changes of buckets, in stream order.
    pub changes: Vec<BucketChange<'a, I>>,
    /// Records that cannot be decoded, in stream order.
    pub poison: Vec<FailedRecord<'a>>,
}

/// A record to be parked.
#[derive(Debug)]
pub struct FailedRecord<'a> {
    /// The number of changes in the batch that precede the record.
    pub changes_before: usize,
    /// `None` if the record has no sequence number that a response could name.
    pub sequence: Option<SequenceNumber>,
    pub dead_letter: DeadLetter<'a>,
}

/// How parking some records ended.
#[derive(Debug)]
pub struct Parked<'p, 'a> {
    /// The number of records that are in the queue now.
    pub parked: usize,
    pub unparked: Vec<&'p FailedRecord<'a>>,
}

/// How one batch ended: the counts of the function, and its response.
#[derive(Debug)]
pub struct Handled<R> {
    pub report: R,
    /// See [`answer`].
    pub answer: Result<DynamoDbEventResponse, BatchError>,
}

/// Why Lambda must deliver the whole batch again.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    #[error("a record could not be parked and has no sequence number to report, so the whole batch must be retried")]
    Unreportable,
    #[error(transparent)]
    MisconfiguredStream(#[from] MisconfiguredStream),
}

/// The table's stream does not show what the function needs. Until an operator fixes the stream, no record can be
/// processed. None is parked: the batch fails, and the stream keeps the records.
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
    /// Decodes each record with `decode`. A record whose decoding panics is poison like any other.
    fn decode_by(
        event: &'a StreamEvent,
        decode: fn(&'a str) -> Result<Record<'a, I>, DecodeError>,
    ) -> Result<Self, MisconfiguredStream> {
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
                dead_letter: DeadLetter { record, reason, snapshot: None },
            });
        }
        Ok(batch)
    }

    /// The changes before the first poison record.
    pub fn before_poison(&self) -> &[BucketChange<'a, I>] {
        &self.changes[..self.first_poison()]
    }

    /// The changes behind the first poison record, up to the first record of `unparked`.
    pub fn after_poison(&self, unparked: &[&FailedRecord<'_>]) -> &[BucketChange<'a, I>] {
        let end = unparked.iter().map(|poison| poison.changes_before).min();
        &self.changes[self.first_poison()..end.unwrap_or(self.changes.len())]
    }

    fn first_poison(&self) -> usize {
        self.poison.first().map_or(self.changes.len(), |poison| poison.changes_before)
    }
}

/// Parks records, and logs each. Without a queue, none can be parked.
pub async fn park_all<'p, 'a>(
    queue: Option<&DeadLetterQueue>,
    failed_records: &'p [FailedRecord<'a>],
    deadline: Instant,
    concurrency: NonZeroUsize,
) -> Parked<'p, 'a> {
    let park = |failed_record: &'p FailedRecord<'a>| async move {
        (failed_record, park(queue, &failed_record.dead_letter, deadline).await)
    };
    let mut outcome = Parked { parked: 0, unparked: Vec::new() };
    for (failed_record, result) in concurrently(failed_records, concurrency, park).await {
        let sequence = failed_record.sequence.as_ref().map(SequenceNumber::as_str);
        let reason = &failed_record.dead_letter.reason;
        match result {
            Ok(()) => {
                outcome.parked += 1;
                tracing::error!(sequence, reason, "record parked");
            }
            Err(error) => {
                tracing::error!(sequence, reason, error = causes(&error), "record could not be parked");
                outcome.unparked.push(failed_record);
            }
        }
    }
    outcome
}

async fn park(
    queue: Option<&DeadLetterQueue>,
    dead_letter: &DeadLetter<'_>,
    deadline: Instant,
) -> Result<(), CallError> {
    let queue = queue.ok_or(CallError::NoQueue)?;
    if Instant::now() >= deadline {
        return Err(CallError::Deadline);
    }
    within(deadline, queue.park(dead_letter)).await
}

/// Returns the lowest failed sequence number: Lambda delivers everything from there again. A null, empty or unknown
/// identifier would make Lambda retry the whole batch without a readable error.
///
/// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).
pub fn answer(failures: impl IntoIterator<Item = Option<SequenceNumber>>) -> Result<DynamoDbEventResponse, BatchError> {
    let failures: Vec<_> = failures.into_iter().collect::<Option<_>>().ok_or(BatchError::Unreportable)?;
    let mut response = DynamoDbEventResponse::default();
    if let Some(lowest) = failures.iter().min() {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = Some(lowest.to_string());
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_domain::{
        bucket::{BucketKey, ChangeKind, Entity, Namespace, Resource, Shard},
        sequence::StreamLabel,
        time::EpochMillis,
    };

    use super::*;

    const SEQUENCE: &str = "100000000000000000001";

    /// An event of records that differ by their kind only.
    fn event(kinds: &[&str]) -> StreamEvent {
        let record = |kind: &&str| json!({"kind": kind, "dynamodb": {"SequenceNumber": SEQUENCE}});
        serde_json::from_value(json!({"Records": kinds.iter().map(record).collect::<Vec<_>>()})).unwrap()
    }

    /// Panics on poison, and takes any other record for a change.
    #[expect(clippy::unnecessary_wraps, reason = "decoders return results")]
    fn decode_all_but_poison(record: &str) -> Result<Record<'_, ()>, DecodeError> {
        assert!(!record.contains("poison"), "a record on which the decoder fails");
        Ok(Record::Change(BucketChange {
            bucket: BucketKey {
                namespace: Namespace::new("ns").unwrap(),
                entity: Entity::new("user-1").unwrap(),
                resource: Resource::new("api").unwrap(),
                shard: Shard::ZERO,
            },
            stream: StreamLabel::parse("2026-01-01T00:00:00.000").unwrap(),
            sequence: SequenceNumber::parse(SEQUENCE).unwrap(),
            created: EpochMillis::EPOCH,
            kind: ChangeKind::Updated,
            old: (),
            new: (),
        }))
    }

    #[test]
    fn a_record_whose_decoding_panics_is_poison() {
        let event = event(&["change", "poison", "change"]);
        let batch = Batch::decode_by(&event, decode_all_but_poison).unwrap();
        let [poison] = &batch.poison[..] else { panic!("{:?}", batch.poison) };
        assert_eq!(
            (batch.changes.len(), poison.changes_before, poison.dead_letter.record),
            (2, 1, event.records[1].get())
        );
        assert_eq!(poison.sequence.map(|sequence| sequence.to_string()).as_deref(), Some(SEQUENCE));
        assert!(poison.dead_letter.reason.contains("panicked"), "{}", poison.dead_letter.reason);
    }

    #[test]
    fn changes_wait_for_the_poison_before_them() {
        // `unparked` holds indices of poison records; `expect` is the number of changes before and after poison.
        let check = |kinds: &[&str], unparked: &[usize], expect: (usize, usize)| {
            let event = event(kinds);
            let batch = Batch::decode_by(&event, decode_all_but_poison).unwrap();
            let unparked: Vec<_> = unparked.iter().map(|index| &batch.poison[*index]).collect();
            let changes = (batch.before_poison().len(), batch.after_poison(&unparked).len());
            assert_eq!(changes, expect, "{kinds:?}, without {unparked:?}");
        };
        check(&[], &[], (0, 0));
        check(&["change", "change"], &[], (2, 0));
        check(&["change", "poison", "change", "change"], &[], (1, 2));
        check(&["change", "poison", "change", "change"], &[0], (1, 0));
        check(&["poison", "change", "poison", "change"], &[], (0, 2));
        check(&["poison", "change", "poison", "change"], &[1], (0, 1));
        check(&["poison", "change", "poison", "change"], &[1, 0], (0, 0));
        check(&["change", "poison"], &[0], (1, 0));
    }
}
