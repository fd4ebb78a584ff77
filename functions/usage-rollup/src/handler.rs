//! One invocation: decode, post what precedes poison, park the poison, post the rest, answer.

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::{self, Batch, answer, park_all},
    stream::StreamEvent,
};
use tidegate_lambda::process::{Diagnostic, Invocation, diagnostic};
use tokio::time::Instant;

use crate::{
    UsageRollup,
    posting::Poster,
    report::{BatchResult, RollupReport},
};

pub type Handled = batch::Handled<RollupReport>;

impl UsageRollup {
    /// Handles the batch of an invocation, and writes its metrics.
    pub async fn invoke(&self, invocation: Invocation<'_, StreamEvent>) -> Result<DynamoDbEventResponse, Diagnostic> {
        let (event, _, deadline, emitter) = invocation.into_parts();
        let handled = self.handle(&event, deadline).await;
        emitter.emit("batch", handled.report);
        handled.answer.map_err(|error| diagnostic("BatchError", &error))
    }

    /// Handles one batch. What is not done by `deadline` is reported as failed. What was done stays done and is not done
    /// again, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Handled {
        let batch: Batch<'_> = match Batch::decode(event) {
            Ok(batch) => batch,
            Err(error) => {
                let report = RollupReport { records: event.records.len(), ..RollupReport::default() };
                return Handled { report, answer: Err(error.into()) };
            }
        };
        let poster = self.poster(event, deadline);
        let mut result = BatchResult::of(event, &batch);

        // Changes after a poison record are posted only after it is parked. Otherwise the watermark would rise above the
        // record, and its redelivery would be taken for counted. Poison is parked only after all changes before it are
        // posted. Otherwise it would be delivered and parked again.
        result += poster.post(batch.before_poison()).await;
        let mut after_poison = &[][..];
        if result.failures.is_empty() {
            let dead_letters = self.dead_letters.as_ref();
            let parked = park_all(dead_letters, &batch.poison, halfway_to(deadline), self.concurrency).await;
            after_poison = batch.after_poison(&parked.unparked);
            result += parked;
        }
        result.report.withheld = batch.after_poison(&[]).len() - after_poison.len();
        result += poster.post(after_poison).await;
        Handled { report: result.report, answer: answer(result.failures) }
    }

    fn poster<'p>(&'p self, event: &'p StreamEvent, deadline: Instant) -> Poster<'p> {
        let Self { windows, snapshots, dead_letters, concurrency } = self;
        Poster { event, windows, snapshots, dead_letters: dead_letters.as_ref(), concurrency: *concurrency, deadline }
    }
}

/// Parking poison takes at most half of the time that is left: the rest is for what follows it.
fn halfway_to(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}
