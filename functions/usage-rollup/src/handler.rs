//! One invocation: decode, post what precedes poison, park the poison, post the rest, answer.

use std::num::NonZeroUsize;

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::{Batch, FailedRecord},
    dead_letters::DeadLetterQueue,
    parking::{BatchError, Parked, answer, park_all},
    snapshots::Snapshots,
    stream::StreamEvent,
};
use tidegate_domain::{bucket::BucketChange, sequence::SequenceNumber, window::Window};
use tokio::time::Instant;

use crate::{posting::Posted, refusal::missing_records, report::Report};

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

/// How one batch ended.
#[derive(Debug)]
pub struct Handled {
    pub report: Report,
    /// The lowest failed sequence number, if any: everything from there is delivered again.
    ///
    /// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).
    pub answer: Result<DynamoDbEventResponse, BatchError>,
}

impl UsageRollup {
    /// Handles one batch. What is not done by `deadline` is reported as failed. What was done stays done and is not done
    /// again, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Handled {
        let mut report = Report { records: event.records.len(), ..Report::default() };
        let batch: Batch<'_> = match Batch::decode(event) {
            Ok(batch) => batch,
            Err(error) => return Handled { report, answer: Err(error.into()) },
        };
        report.count_batch(&batch);

        // Usage that follows a poison record is counted only when that is parked. Otherwise it would raise watermarks
        // past the record, which would pass for counted once it can be decoded. In turn, poison is parked only when all
        // before it is posted. Otherwise it would be delivered and parked again.
        let first_poison = batch.poison.first().map_or(batch.changes.len(), |poison| poison.changes_before);
        let (before, after) = batch.changes.split_at(first_poison);
        let mut failures = self.post(event, before, deadline, &mut report).await;
        let end = if failures.is_empty() {
            let parked = self.park(&batch.poison, halfway_to(deadline)).await;
            failures.extend(report.count_parked(&parked));
            let blocking = parked.unparked.iter().map(|poison| poison.changes_before - first_poison).min();
            blocking.unwrap_or(after.len())
        } else {
            0
        };
        report.withheld = after.len() - end;
        failures.extend(self.post(event, &after[..end], deadline, &mut report).await);
        Handled { report, answer: answer(failures) }
    }

    /// Posts the usage in some changes, and parks the records of postings that were refused. Returns the sequence numbers
    /// to retry from.
    async fn post(
        &self,
        event: &StreamEvent,
        changes: &[BucketChange<'_>],
        deadline: Instant,
        report: &mut Report,
    ) -> Vec<Option<SequenceNumber>> {
        let Posted { report: posted, mut failures, refusals } = self.post_all(changes, deadline).await;
        *report += &posted;
        let missing = missing_records(event, &refusals, failures.iter().flatten().min().copied());
        failures.extend(report.count_parked(&self.park(&missing, deadline).await));
        failures
    }

    async fn park<'p, 'a>(&'p self, records: &'p [FailedRecord<'a>], deadline: Instant) -> Parked<'p, 'a> {
        park_all(self.dead_letters.as_ref(), records, deadline, self.concurrency).await
    }
}

/// Parking poison takes at most half of the time that is left: the rest is for what follows it.
fn halfway_to(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}
