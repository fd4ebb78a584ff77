//! One invocation: decode, fold, post, park, answer.

use std::{collections::HashSet, error::Error, num::NonZeroUsize};

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_aws::{
    dead_letters::{DeadLetter, DeadLetterQueue},
    error::StoreError,
    snapshots::{self, Receipt, Snapshots},
    stream::{Record, StreamEvent, decode, sequence_number},
};
use tidegate_domain::{
    bucket::BucketChange,
    sequence::SequenceNumber,
    usage::{self, Posting},
    window::Window,
};
use tokio::time::{Instant, timeout_at};

use crate::report::Report;

/// The function: what it writes to, and how.
#[derive(Clone, Debug)]
pub struct UsageRollup {
    /// Which snapshots are kept.
    pub windows: Vec<Window>,
    /// Where they are kept.
    pub snapshots: Snapshots,
    /// Where records go that cannot be processed.
    pub dead_letters: Option<DeadLetterQueue>,
    /// How many calls are under way at the same time.
    pub concurrency: NonZeroUsize,
}

/// What one invocation did, and what it answers.
#[derive(Debug)]
pub struct Handled {
    /// What was done.
    pub report: Report,
    /// The lowest failed sequence number, if any: everything from there is delivered again.
    ///
    /// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).
    pub answer: Result<DynamoDbEventResponse, Unreportable>,
}

/// Why the whole batch must be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record could not be parked and has no sequence number to report, so the whole batch must come again")]
pub struct Unreportable;

impl UsageRollup {
    /// Handles one batch. What is not done by `deadline` is reported as failed. What was done stays
    /// done and is not done again, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Handled {
        let batch = Batch::decode(event);
        let postings = usage::fold(&batch.changes, &self.windows);
        let mut report = batch.report();
        report.postings = postings.len();

        let mut failures = Vec::new();
        let mut parcels = batch.poison;
        for (posting, result) in self.for_each(&postings, Self::post, deadline).await {
            let snapshot = || snapshots::describe(posting.snapshot());
            match result {
                Ok(receipt) => report.count(receipt),
                Err(error) if error.is_retryable() => {
                    report.failed += 1;
                    tracing::warn!(snapshot = snapshot(), error = causes(&error), "posting failed");
                    failures.extend(posting.sequences().map(Some).min());
                }
                Err(error) => {
                    report.refused += 1;
                    tracing::error!(snapshot = snapshot(), error = causes(&error), "posting refused");
                    parcels.extend(refused(event, posting, &causes(&error)));
                }
            }
        }
        for (parcel, result) in self.for_each(&parcels, Self::park, deadline).await {
            let (sequence, reason) = (parcel.sequence.as_ref().map(SequenceNumber::as_str), &parcel.letter.reason);
            match result {
                Ok(()) => {
                    report.parked += 1;
                    tracing::error!(sequence, reason, "record parked");
                }
                Err(error) => {
                    report.unparked += 1;
                    tracing::error!(sequence, reason, error = causes(&error), "record neither counted nor parked");
                    failures.push(parcel.sequence);
                }
            }
        }
        Handled { report, answer: answer(failures) }
    }

    async fn post<'p, 'a>(
        &self,
        posting: &'p Posting<'a>,
        deadline: Instant,
    ) -> (&'p Posting<'a>, Result<Receipt, CallError>) {
        (posting, within(deadline, self.snapshots.post(posting)).await)
    }

    async fn park<'p, 'a>(&self, parcel: &'p Parcel<'a>, deadline: Instant) -> (&'p Parcel<'a>, Result<(), CallError>) {
        let Some(queue) = &self.dead_letters else { return (parcel, Err(CallError::NoQueue)) };
        (parcel, within(deadline, queue.park(&parcel.letter)).await)
    }

    /// Makes a call for each item, as many at the same time as are allowed.
    async fn for_each<'p, T, F: Future>(
        &'p self,
        items: &'p [T],
        call: fn(&'p Self, &'p T, Instant) -> F,
        deadline: Instant,
    ) -> Vec<F::Output> {
        let mut calls = FuturesUnordered::new();
        let mut outputs = Vec::with_capacity(items.len());
        for item in items {
            if calls.len() == self.concurrency.get() {
                outputs.extend(calls.next().await);
            }
            calls.push(call(self, item, deadline));
        }
        while let Some(output) = calls.next().await {
            outputs.push(output);
        }
        outputs
    }
}

/// A batch, decoded record by record.
struct Batch<'a> {
    not_ours: usize,
    changes: Vec<BucketChange<'a>>,
    poison: Vec<Parcel<'a>>,
}

/// A record to be parked.
struct Parcel<'a> {
    /// `None` if the record has none that could be reported.
    sequence: Option<SequenceNumber>,
    letter: DeadLetter<'a>,
}

impl<'a> Batch<'a> {
    fn decode(event: &'a StreamEvent) -> Self {
        let mut batch = Self { not_ours: 0, changes: Vec::with_capacity(event.records.len()), poison: Vec::new() };
        for record in event.records.iter().map(|record| record.get()) {
            match decode(record) {
                Ok(Record::Change(change)) => batch.changes.push(change),
                Ok(Record::NotOurs) => batch.not_ours += 1,
                Err(error) => batch.poison.push(Parcel {
                    sequence: sequence_number(record),
                    letter: DeadLetter { record, reason: error.to_string(), snapshot: None },
                }),
            }
        }
        batch
    }

    fn report(&self) -> Report {
        Report {
            records: self.not_ours + self.changes.len() + self.poison.len(),
            not_ours: self.not_ours,
            changes: self.changes.len(),
            poison: self.poison.len(),
            ..Report::default()
        }
    }
}

/// The records of a posting that its table will never take, each with the snapshot that lacks it.
fn refused<'a>(event: &'a StreamEvent, posting: &Posting<'_>, reason: &str) -> Vec<Parcel<'a>> {
    let sequences: HashSet<_> = posting.sequences().collect();
    let snapshot = snapshots::describe(posting.snapshot());
    event
        .records
        .iter()
        .map(|record| (record.get(), sequence_number(record.get())))
        .filter(|(_, sequence)| sequence.is_some_and(|sequence| sequences.contains(&sequence)))
        .map(|(record, sequence)| Parcel {
            sequence,
            letter: DeadLetter { record, reason: reason.to_owned(), snapshot: Some(snapshot.clone()) },
        })
        .collect()
}

/// Names the lowest failure. An identifier that is null, empty or unknown would fail the whole batch
/// anyway, and without a reason that anyone could read.
fn answer(failures: Vec<Option<SequenceNumber>>) -> Result<DynamoDbEventResponse, Unreportable> {
    let failures: Vec<_> = failures.into_iter().collect::<Option<_>>().ok_or(Unreportable)?;
    let mut response = DynamoDbEventResponse::default();
    if let Some(lowest) = failures.iter().min() {
        let mut failure = DynamoDbBatchItemFailure::default();
        failure.item_identifier = Some(lowest.to_string());
        response.batch_item_failures.push(failure);
    }
    Ok(response)
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the deadline passed")]
    Deadline,
    #[error("there is no dead-letter queue")]
    NoQueue,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CallError {
    fn is_retryable(&self) -> bool {
        match self {
            Self::Deadline | Self::NoQueue => true,
            Self::Store(error) => error.is_retryable(),
        }
    }
}

async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, CallError> {
    Ok(timeout_at(deadline, call).await.map_err(|_| CallError::Deadline)??)
}

/// An error and what caused it, in one line.
fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}
