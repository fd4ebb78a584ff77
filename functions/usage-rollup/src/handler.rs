//! One invocation: decode, park, fold, post, answer.

use std::{error::Error, num::NonZeroUsize};

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_aws::{
    dead_letters::DeadLetterQueue,
    error::StoreError,
    snapshots::{self, Receipt, Snapshots},
    stream::StreamEvent,
};
use tidegate_domain::{
    sequence::SequenceNumber,
    usage::{self, Posting},
    window::Window,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    batch::{Batch, Parcel, Refusal, lacking},
    report::Report,
};

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
        let mut report = Report {
            records: event.records.len(),
            not_ours: batch.not_ours,
            changes: batch.changes.len(),
            poison: batch.poison.len(),
            ..Report::default()
        };

        // Parked before anything is counted: what lies behind a record that could not be parked waits,
        // and comes again with it. Counted now, it would carry watermarks past that record, which would
        // pass for counted once it can be decoded.
        let unparked = self.park_all(&batch.poison, deadline, &mut report).await;
        let blocking = unparked.into_iter().min_by_key(|parcel| (parcel.changes_before, parcel.sequence));
        let changes = batch.changes_before(blocking);
        report.withheld = batch.changes.len() - changes.len();
        let mut failures: Vec<_> = blocking.map(|parcel| parcel.sequence).into_iter().collect();

        let postings = usage::fold(changes, &self.windows);
        report.postings = postings.len();
        report.unused = changes.len() - used(&postings);
        let mut refusals = Vec::new();
        for result in self.for_each(&postings, Self::post, deadline).await {
            match result {
                Ok(receipt) => report.count(receipt),
                Err(NotPosted { posting, error, unposted }) if error.is_retryable() => {
                    report.failed += 1;
                    let snapshot = snapshots::describe(posting.snapshot());
                    tracing::warn!(snapshot, error = causes(&error), "posting failed");
                    failures.push(unposted.iter().flat_map(Posting::sequences).min());
                }
                Err(NotPosted { posting, error, unposted }) => {
                    report.refused += 1;
                    let (snapshot, reason) = (snapshots::describe(posting.snapshot()), causes(&error));
                    tracing::error!(snapshot, error = reason, "posting refused");
                    refusals.push(Refusal { postings: unposted, reason });
                }
            }
        }
        let lacking = lacking(event, &refusals);
        let unparked = self.park_all(&lacking, deadline, &mut report).await;
        failures.extend(unparked.into_iter().map(|parcel| parcel.sequence));
        Handled { report, answer: answer(failures) }
    }

    /// Parks records; those that could not be parked.
    async fn park_all<'p, 'a>(
        &'p self,
        parcels: &'p [Parcel<'a>],
        deadline: Instant,
        report: &mut Report,
    ) -> Vec<&'p Parcel<'a>> {
        let mut unparked = Vec::new();
        for (parcel, result) in self.for_each(parcels, Self::park, deadline).await {
            let (sequence, reason) = (parcel.sequence.as_ref().map(SequenceNumber::as_str), &parcel.letter.reason);
            match result {
                Ok(()) => {
                    report.parked += 1;
                    tracing::error!(sequence, reason, "record parked");
                }
                Err(error) => {
                    report.unparked += 1;
                    tracing::error!(sequence, reason, error = causes(&error), "record neither counted nor parked");
                    unparked.push(parcel);
                }
            }
        }
        unparked
    }

    async fn park<'p, 'a>(&self, parcel: &'p Parcel<'a>, deadline: Instant) -> (&'p Parcel<'a>, Result<(), CallError>) {
        let Some(queue) = &self.dead_letters else { return (parcel, Err(CallError::NoQueue)) };
        let parked = timeout_at(deadline, queue.park(&parcel.letter)).await;
        (parcel, parked.map_err(|_| CallError::Deadline).and_then(|parked| Ok(parked?)))
    }

    async fn post<'p, 'a>(&self, posting: &'p Posting<'a>, deadline: Instant) -> Result<Receipt, NotPosted<'p, 'a>> {
        match timeout_at(deadline, self.snapshots.post(posting)).await {
            Ok(Ok(receipt)) => Ok(receipt),
            Ok(Err(error)) => Err(NotPosted { posting, error: error.source.into(), unposted: error.unposted }),
            Err(_) => Err(NotPosted { posting, error: CallError::Deadline, unposted: vec![posting.clone()] }),
        }
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

/// How many changes the postings count. Each has a part in one posting of every window.
fn used(postings: &[Posting<'_>]) -> usize {
    let window = |posting: &Posting<'_>| posting.snapshot().period.window();
    let Some(first) = postings.first().map(window) else { return 0 };
    postings.iter().filter(|posting| window(posting) == first).map(|posting| posting.sequences().count()).sum()
}

/// A posting that is not in, or not known to be in.
struct NotPosted<'p, 'a> {
    posting: &'p Posting<'a>,
    error: CallError,
    /// The part of it that is not.
    unposted: Vec<Posting<'a>>,
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
        !matches!(self, Self::Store(error) if !error.is_retryable())
    }
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
