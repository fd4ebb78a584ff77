//! A redrive counts what was parked or discarded, exactly once.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod batches;
mod calls;
mod parked;

use aws_smithy_runtime_api::client::http::HttpClient;
use indicatif::ProgressBar;
use tidegate_aws::{client, dead_letters::DeadLetterQueue, redrive::Redrive, snapshots::Snapshots};
use tidegate_command::redrive::{Queue, Redriver, StoredFailures, Summary};
use tidegate_domain::{redrive::Decision, window::Window};
use tidegate_sandbox::s3::{BUCKET, EmbeddedS3};
use tidegate_tests::rollup::prelude::{
    CREATED, EpochMillis, FaultyHttp, RollupScene, Value, discarded_batch, event, failure, sdk_config,
};

/// So many hours after the records were created.
fn hours(hours: i64) -> EpochMillis {
    EpochMillis::new((CREATED + hours * 3600) * 1000).unwrap()
}

/// More than a day after the records were created: the stream no longer delivers them.
fn later() -> EpochMillis {
    hours(25)
}

/// A redriver whose calls of the table go by `http`.
fn redriver_by(scene: &RollupScene, http: impl HttpClient + 'static) -> Redriver {
    let dynamodb = client::dynamodb(&sdk_config(&scene.services.endpoint, http));
    Redriver {
        redrive: Redrive {
            snapshots: Snapshots::new(dynamodb, &scene.services.table, 90),
            dry_run: false,
            count_undecided: None,
        },
        windows: Window::ALL.to_vec(),
        from_table: "limits".to_owned(),
    }
}

fn redriver(scene: &RollupScene) -> Redriver {
    redriver_by(scene, FaultyHttp::undisturbed())
}

/// The scene's dead-letter queue.
fn queue(scene: &RollupScene) -> Queue {
    queue_by(scene, FaultyHttp::undisturbed())
}

fn queue_by(scene: &RollupScene, http: FaultyHttp) -> Queue {
    let sqs = client::sqs(&sdk_config(scene.services.queue.endpoint(), http));
    Queue::new(DeadLetterQueue::new(sqs, scene.services.queue.url(), "usage-rollup"))
}

/// The objects under `failures/`.
fn failures(s3: &EmbeddedS3) -> StoredFailures {
    let client = client::s3(&sdk_config(&s3.endpoint(), FaultyHttp::undisturbed()), true);
    StoredFailures::new(client, BUCKET.to_owned(), "failures/".to_owned(), "usage-rollup".to_owned())
}

async fn redrive_queue(scene: &RollupScene, redriver: &Redriver, now: EpochMillis) -> anyhow::Result<Summary> {
    redriver.run(&mut queue(scene), now, &ProgressBar::hidden(), std::future::pending()).await
}

async fn redrive_failures(s3: &EmbeddedS3, redriver: &Redriver, now: EpochMillis) -> anyhow::Result<Summary> {
    redriver.run(&mut failures(s3), now, &ProgressBar::hidden(), std::future::pending()).await
}

/// Lets the function handle these records.
async fn deliver(scene: &RollupScene, records: &[Value]) -> anyhow::Result<()> {
    let handled = scene.invoke(&event(records)?).await;
    anyhow::ensure!(failure(&handled.answer).is_none(), "{handled:?}");
    Ok(())
}

/// Lets the event source mapping discard a batch.
fn discard(s3: &EmbeddedS3, key: &str, records: &[Value]) {
    discard_of(s3, key, "tidegate-UsageRollup-1A2B3C", records);
}

fn discard_of(s3: &EmbeddedS3, key: &str, function: &str, records: &[Value]) {
    s3.bucket().put(format!("failures/{key}"), discarded_batch(function, records), later());
}

/// The records to count, redriven already, waiting and undecided.
fn decisions(summary: &Summary) -> [usize; 4] {
    [Decision::Count, Decision::AlreadyRedriven, Decision::Waiting, Decision::Undecided].map(|it| summary.decided(it))
}
