//! One invocation: decode, park, fold, post, answer.

use std::{num::NonZeroUsize, time::Duration};

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::{Batch, Parcel},
    concurrent::for_each,
    dead_letters::DeadLetterQueue,
    error::{CallError, causes},
    parking::{Parked, Unreportable, answer, park_all},
    snapshots::{self, Outcome, Receipt, Snapshots},
    stream::StreamEvent,
};
use tidegate_domain::{
    redrive::Age,
    time::EpochMillis,
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
    /// The age at which records that cannot be counted are parked.
    pub give_up_after: Duration,
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
    /// Handles one batch at the moment `now`. What is not done by `deadline` is reported as failed. What was
    /// done stays done and is not done again, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, now: EpochMillis, deadline: Instant) -> Handled {
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
        let turn = Turn { rollup: self, now, patience: patience(deadline) };
        for (age, result) in for_each(turn, &postings, Turn::post, deadline, self.concurrency).await {
            report.late += usize::from(age != Age::Fresh);
            let NotPosted { posting, error, unposted, unsure } = match result {
                Ok(receipt) => {
                    report.count(receipt);
                    continue;
                }
                Err(not_posted) => not_posted,
            };
            let (snapshot, reason) = (snapshots::describe(posting.snapshot()), causes(&error));
            if !error.is_retryable() {
                report.refused += 1;
                tracing::error!(snapshot, error = reason, "posting refused");
                refusals.push(Refusal { postings: unposted, reason, unsure });
            } else if age == Age::Spent && self.dead_letters.is_some() {
                report.given_up += 1;
                tracing::error!(snapshot, error = reason, unsure, "posting given up");
                refusals.push(Refusal { postings: unposted, reason, unsure });
            } else {
                report.failed += 1;
                tracing::warn!(snapshot, error = reason, "posting failed");
                failures.push(unposted.iter().flat_map(Posting::sequences).min());
            }
        }
        let comes_again = failures.iter().flatten().min().copied();
        let lacking = lacking(event, &refusals, comes_again);
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
}

/// What all postings of an invocation are made with.
#[derive(Clone, Copy)]
struct Turn<'t> {
    rollup: &'t UsageRollup,
    now: EpochMillis,
    /// Until when a posting that may be given up is tried, and until when it is looked for after that.
    patience: (Instant, Instant),
}

/// Of the time until the deadline, half to try and a quarter to look: parking takes time, too.
fn patience(deadline: Instant) -> (Instant, Instant) {
    let quarter = deadline.saturating_duration_since(Instant::now()) / 4;
    (deadline - quarter * 2, deadline - quarter)
}

impl Turn<'_> {
    async fn post<'p, 'a>(self, posting: &'p Posting<'a>, deadline: Instant) -> (Age, Posted<'p, 'a>) {
        let Self { rollup, now, patience: (try_until, look_until) } = self;
        let age = Age::of(posting, now, rollup.give_up_after);
        let post = async {
            match age {
                Age::Fresh => rollup.snapshots.post(posting).await,
                Age::Late | Age::Spent => rollup.snapshots.post_late(posting, now).await,
            }
        };
        let until = if age == Age::Spent { try_until } else { deadline };
        let (error, unposted) = match timeout_at(until, post).await {
            Ok(Ok(receipt)) => return (age, Ok(receipt)),
            Ok(Err(error)) => (error.source.into(), error.unposted),
            Err(_) => (CallError::Deadline, vec![posting.clone()]),
        };
        let mut not_posted = NotPosted { posting, error, unposted, unsure: true };
        if age == Age::Spent || !not_posted.error.is_retryable() {
            // A write that was made before may have been done although it failed.
            if let Ok(Ok(lacking)) = timeout_at(look_until, rollup.snapshots.lacking(&not_posted.unposted)).await {
                if lacking.is_empty() {
                    return (age, Ok(Receipt { outcome: Outcome::AlreadyPosted, writes: 0 }));
                }
                not_posted = NotPosted { unposted: lacking, unsure: false, ..not_posted };
            }
        }
        (age, Err(not_posted))
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
    /// Whether that part may be in all the same.
    unsure: bool,
}

/// How a posting went.
type Posted<'p, 'a> = Result<Receipt, NotPosted<'p, 'a>>;
