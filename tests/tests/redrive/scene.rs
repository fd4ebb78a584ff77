//! A scene with a redrive in it.

use serde_json::{Value, json};
use tidegate_aws::{client, dead_letters::DeadLetterQueue, redrive::Redrive, snapshots::Snapshots};
use tidegate_domain::{time::EpochMillis, window::Window};
use tidegate_local::{
    faults::{FaultRates, FaultyHttp, sdk_config},
    redrive::{Redriver, Summary},
};
use tidegate_tests::Scene;

/// 2025-12-31T23:30:00Z, in seconds: when the records happened.
pub const CREATED: i64 = 1_767_223_800;
pub const BUCKET: &str = "TQ5vSMvQTm4/BUCKET#user-1#api#0";

/// A moment at which the records are old enough to be given up, and batches long given up.
pub fn later() -> EpochMillis {
    EpochMillis::new((CREATED + 7 * 3600) * 1000).unwrap()
}

/// The `at`th acquire of 2 tokens from one bucket.
pub fn acquire(at: u64) -> Value {
    let image = |consumed: u64| json!({"b_rpm_tc": {"N": (consumed * 2000).to_string()}});
    json!({
        "eventID": at.to_string(), "eventName": "MODIFY", "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": CREATED, "Keys": {"PK": {"S": BUCKET}, "SK": {"S": "#STATE"}},
            "NewImage": image(at + 1), "OldImage": image(at), "SequenceNumber": sequence(at),
        },
    })
}

pub fn sequence(at: u64) -> String {
    format!("1{at:020}")
}

/// A redriver of the scene's queue whose calls of the table go by `http`.
pub fn redriver_by(scene: &Scene, http: FaultyHttp) -> Redriver {
    let services = &scene.services;
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http));
    let sqs = client::sqs(&sdk_config(services.queue.endpoint(), FaultyHttp::new(FaultRates::default(), 0)));
    Redriver {
        letters: DeadLetterQueue::new(sqs, services.queue.url(), "usage-rollup"),
        streams: services.streams.clone(),
        redrive: Redrive {
            snapshots: Snapshots::new(dynamodb, &services.table, 90),
            dry_run: false,
            count_undecided: false,
        },
        windows: Window::ALL.to_vec(),
        function: "usage-rollup".to_owned(),
    }
}

pub fn redriver(scene: &Scene) -> Redriver {
    redriver_by(scene, FaultyHttp::new(FaultRates::default(), 0))
}

pub async fn redrive(scene: &Scene) -> anyhow::Result<Summary> {
    redriver(scene).run(later()).await
}

/// The tokens and the events that each of the three snapshots holds, which must be alike.
pub async fn tokens(scene: &Scene) -> anyhow::Result<(i128, u64)> {
    let books = scene.books().await?;
    let usage: Vec<_> = books.iter().map(|(_, usage)| (usage.tokens["rpm"], usage.events)).collect();
    assert!(usage.len() == 3 && usage.iter().all(|some| *some == usage[0]), "{books:?}");
    Ok(usage[0])
}
