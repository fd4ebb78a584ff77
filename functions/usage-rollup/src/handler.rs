//! One invocation: decode, park, fold, post, answer.

use std::num::NonZeroUsize;

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::{Batch, Parcel},
    concurrent::for_each,
    dead_letters::DeadLetterQueue,
    error::{CallError, causes},
    parking::{Parked, Unreportable, answer, park_all},
    snapshots::{self, Receipt, Snapshots},
    stream::StreamEvent,
};
use tidegate_domain::{
    usage::{self, Posting},
    window::Window,
};
use tokio::time::{Instant, timeout_at};

use crate::{
    refusal::{Refusal, lacking},
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

impl UsageRollup {
    /// Handles one batch. What is not done by `deadline` is reported as failed. What was done stays
    /// done and is not done again, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Handled {
        let batch: Batch<'_> = Batch::decode(event);
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
        let unparked = self.park(&batch.poison, deadline, &mut report).await;
        let blocking = unparked.into_iter().min_by_key(|parcel| (parcel.changes_before, parcel.sequence));
        let changes = batch.changes_before(blocking);
        report.withheld = batch.changes.len() - changes.len();
        let mut failures: Vec<_> = blocking.map(|parcel| parcel.sequence).into_iter().collect();

        let postings = usage::fold(changes, &self.windows);
        report.postings = postings.len();
        report.unused = changes.len() - used(&postings);
        let mut refusals = Vec::new();
        for result in for_each(self, &postings, Self::post, deadline, self.concurrency).await {
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
        let unparked = self.park(&lacking, deadline, &mut report).await;
        failures.extend(unparked.into_iter().map(|parcel| parcel.sequence));
        Handled { report, answer: answer(failures) }
    }

    /// Parks records; those that could not be parked.
    async fn park<'p, 'a>(
        &'p self,
        parcels: &'p [Parcel<'a>],
        deadline: Instant,
        report: &mut Report,
    ) -> Vec<&'p Parcel<'a>> {
        let Parked { parked, unparked } =
            park_all(self.dead_letters.as_ref(), parcels, deadline, self.concurrency).await;
        report.parked += parked;
        report.unparked += unparked.len();
        unparked
    }

    async fn post<'p, 'a>(&self, posting: &'p Posting<'a>, deadline: Instant) -> Result<Receipt, NotPosted<'p, 'a>> {
        match timeout_at(deadline, self.snapshots.post(posting)).await {
            Ok(Ok(receipt)) => Ok(receipt),
            Ok(Err(error)) => Err(NotPosted { posting, error: error.source.into(), unposted: error.unposted }),
            Err(_) => Err(NotPosted { posting, error: CallError::Deadline, unposted: vec![posting.clone()] }),
        }
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
