//! A scene with a redrive in it.

use aws_smithy_runtime_api::client::http::HttpClient;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tidegate_aws::{client, dead_letters::DeadLetterQueue, redrive::Redrive, snapshots::Snapshots};
use tidegate_command::redrive::{Queue, Redriver, StoredFailures, Summary};
use tidegate_domain::{redrive::Decision, time::EpochMillis, window::Window};
use tidegate_sandbox::{
    faults::{FaultRates, FaultyHttp, sdk_config},
    queue::Message,
    s3::{BUCKET, EmbeddedS3},
};
use tidegate_tests::{Scene, event, failure, records::CREATED};

/// So many hours after the records happened.
pub fn hours(hours: i64) -> EpochMillis {
    EpochMillis::new((CREATED + hours * 3600) * 1000).unwrap()
}

/// A day and more after the records happened: the stream delivers them no more.
pub fn later() -> EpochMillis {
    hours(25)
}

/// A redriver whose calls of the table go by `http`.
pub fn redriver_by(scene: &Scene, http: impl HttpClient + 'static) -> Redriver {
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

pub fn redriver(scene: &Scene) -> Redriver {
    redriver_by(scene, FaultyHttp::new(FaultRates::default(), 0))
}

/// A record as the function parks it.
pub fn letter(record: &Value) -> Message {
    let attributes = [("function".to_owned(), "usage-rollup".to_owned())].into();
    Message { body: record.to_string(), attributes }
}

/// The scene's dead-letter queue.
pub fn queue(scene: &Scene) -> Queue {
    queue_by(scene, FaultyHttp::new(FaultRates::default(), 0))
}

pub fn queue_by(scene: &Scene, http: FaultyHttp) -> Queue {
    let sqs = client::sqs(&sdk_config(scene.services.queue.endpoint(), http));
    Queue::new(DeadLetterQueue::new(sqs, scene.services.queue.url(), "usage-rollup"))
}

/// The objects under `failures/`.
pub fn failures(s3: &EmbeddedS3) -> StoredFailures {
    let client = client::s3(&sdk_config(&s3.endpoint(), FaultyHttp::new(FaultRates::default(), 0)), true);
    StoredFailures::new(client, BUCKET.to_owned(), "failures/".to_owned(), "usage-rollup".to_owned())
}

pub async fn redrive_queue(scene: &Scene, redriver: &Redriver, now: EpochMillis) -> anyhow::Result<Summary> {
    redriver.run(&mut queue(scene), now, &ProgressBar::hidden(), std::future::pending()).await
}

pub async fn redrive_failures(s3: &EmbeddedS3, redriver: &Redriver, now: EpochMillis) -> anyhow::Result<Summary> {
    redriver.run(&mut failures(s3), now, &ProgressBar::hidden(), std::future::pending()).await
}

/// Lets the function handle these records.
pub async fn deliver(scene: &Scene, records: &[Value]) -> anyhow::Result<()> {
    let handled = scene.invoke(&event(records)?).await;
    anyhow::ensure!(failure(&handled).is_none(), "{handled:?}");
    Ok(())
}

/// Lets the event source mapping discard a batch.
pub fn discard(s3: &EmbeddedS3, key: &str, records: &[Value]) {
    discard_of(s3, key, "tidegate-UsageRollup-1A2B3C", records);
}

pub fn discard_of(s3: &EmbeddedS3, key: &str, function: &str, records: &[Value]) {
    let stored = json!({
        "requestContext": {"functionArn": format!("arn:aws:lambda:us-east-1:123456789012:function:{function}:$LATEST")},
        "payload": json!({"Records": records}).to_string(),
    });
    s3.bucket().put(format!("failures/{key}"), stored.to_string(), later());
}

/// How often it was decided to count, that all was counted, to wait, and to ask a person.
pub fn decisions(summary: &Summary) -> [usize; 4] {
    [Decision::Count, Decision::AlreadyRedriven, Decision::Waiting, Decision::Undecided].map(|it| summary.decided(it))
}
