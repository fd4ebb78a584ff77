//! What becomes of records that cannot be processed, and what an invocation answers for its failures.

use std::num::NonZeroUsize;

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use tidegate_domain::sequence::SequenceNumber;
use tokio::time::{Instant, timeout_at};

use crate::{
    batch::{FailedRecord, MisconfiguredStream},
    concurrent::for_each,
    dead_letters::DeadLetterQueue,
    error::{CallError, causes},
};

#[derive(Debug)]
pub struct Parked<'p, 'a> {
    /// How many records are in the queue now.
    pub parked: usize,
    pub unparked: Vec<&'p FailedRecord<'a>>,
}

/// Why the whole batch must be delivered again.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A failed record cannot be named.
    #[error("a record could not be parked and has no sequence number to report, so the whole batch must be retried")]
    Unreportable,
    /// No record can be processed.
    #[error(transparent)]
    MisconfiguredStream(#[from] MisconfiguredStream),
}

/// Parks records, and logs each. Without a queue, none can be.
pub async fn park_all<'p, 'a>(
    queue: Option<&'p DeadLetterQueue>,
    failed_records: &'p [FailedRecord<'a>],
    deadline: Instant,
    concurrency: NonZeroUsize,
) -> Parked<'p, 'a> {
    let mut outcome = Parked { parked: 0, unparked: Vec::new() };
    for (failed_record, result) in for_each(queue, failed_records, park, deadline, concurrency).await {
        let (sequence, reason) =
            (failed_record.sequence.as_ref().map(SequenceNumber::as_str), &failed_record.letter.reason);
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

async fn park<'p, 'a>(
    queue: Option<&DeadLetterQueue>,
    failed_record: &'p FailedRecord<'a>,
    deadline: Instant,
) -> (&'p FailedRecord<'a>, Result<(), CallError>) {
    let Some(queue) = queue else { return (failed_record, Err(CallError::NoQueue)) };
    if Instant::now() >= deadline {
        return (failed_record, Err(CallError::Deadline));
    }
    let parked = timeout_at(deadline, queue.park(&failed_record.letter)).await;
    (failed_record, parked.map_err(|_| CallError::Deadline).and_then(|parked| Ok(parked?)))
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
