//! The stream of one bucket: each record is an acquire of two tokens.

use serde_json::{Value, json};

use crate::Scene;

/// 2025-12-31T23:30:00Z, in seconds: when the records happened.
pub const CREATED: i64 = 1_767_223_800;
/// The bucket item's partition key.
pub const BUCKET: &str = "TQ5vSMvQTm4/BUCKET#user-1#api#0";
/// The stream's ARN.
pub const STREAM: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000";

pub fn acquire(at: u64) -> Value {
    let image = |consumed: u64| json!({"b_rpm_tc": {"N": (consumed * 2000).to_string()}});
    json!({
        "eventID": at.to_string(), "eventName": "MODIFY", "eventSource": "aws:dynamodb", "eventSourceARN": STREAM,
        "dynamodb": {
            "ApproximateCreationDateTime": CREATED, "Keys": {"PK": {"S": BUCKET}, "SK": {"S": "#STATE"}},
            "NewImage": image(at + 1), "OldImage": image(at), "SequenceNumber": sequence(at),
        },
    })
}

/// The `at`th acquire, of another entity's bucket.
pub fn acquire_of(entity: &str, at: u64) -> Value {
    let mut record = acquire(at);
    record["dynamodb"]["Keys"]["PK"] = json!({"S": BUCKET.replace("user-1", entity)});
    record
}

/// The `at`th acquire, which the function cannot decode.
pub fn poisoned(at: u64) -> Value {
    let mut record = acquire(at);
    record["dynamodb"]["NewImage"]["b_rpm_tc"] = json!({"N": "0.5"});
    record
}

/// The sequence number of the `at`th record.
pub fn sequence(at: u64) -> String {
    format!("1{at:020}")
}

/// The tokens and the events that each of the three snapshots holds, which must be alike.
pub async fn tokens(scene: &Scene) -> anyhow::Result<(i128, u64)> {
    let books = scene.books().await?;
    let mut usage: Vec<_> = books.iter().map(|(_, usage)| (usage.tokens["rpm"], usage.events)).collect();
    anyhow::ensure!(usage.len() == 3, "{books:?}");
    usage.dedup();
    anyhow::ensure!(usage.len() == 1, "{books:?}");
    Ok(usage[0])
}
