//! Stream records as Lambda delivers them, and what is kept of those that could not be processed.

use std::fmt::{self, Display};

use aws_lambda_events::streams::DynamoDbEventResponse;
use serde_json::{Value, json, value::RawValue};
use tidegate_aws::{batch::BatchError, stream::StreamEvent};

use crate::{mapping::StreamRecord, queue::Message};

/// When the records were created: 2025-12-31T23:30:00Z, in seconds.
pub const CREATED: i64 = 1_767_223_800;
/// The bucket item's partition key.
pub const BUCKET: &str = "TQ5vSMvQTm4/BUCKET#user-1#api#0";
pub const STREAM: &str = "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-01-01T00:00:00.000";

/// The sequence number of the `at`th record.
pub fn sequence(at: u64) -> String {
    format!("1{at:020}")
}

/// The `at`th record: a write to the bucket item with this partition key. Without an old image, the item is new.
pub fn record(pk: &str, at: u64, old: Option<Value>, new: &Value) -> Value {
    let mut change = json!({
        "ApproximateCreationDateTime": CREATED, "Keys": {"PK": {"S": pk}, "SK": {"S": "#STATE"}}, "NewImage": new,
        "SequenceNumber": sequence(at),
    });
    let name = if old.is_some() { "MODIFY" } else { "INSERT" };
    if let Some(old) = old {
        change["OldImage"] = old;
    }
    json!({
        "eventID": at.to_string(), "eventName": name, "eventSource": "aws:dynamodb", "eventSourceARN": STREAM,
        "dynamodb": change,
    })
}

/// An image of a bucket item that has consumed so many millitokens of a limit.
pub fn consumed(limit: &str, millitokens: impl Display) -> Value {
    json!({format!("b_{limit}_tc"): {"N": millitokens.to_string()}})
}

/// The `at`th record, an acquire of two tokens from [`BUCKET`].
pub fn acquire(at: u64) -> Value {
    record(BUCKET, at, Some(consumed("rpm", at * 2_000)), &consumed("rpm", (at + 1) * 2_000))
}

/// The `at`th record, an acquire from another entity's bucket.
pub fn acquire_of(entity: &str, at: u64) -> Value {
    let mut record = acquire(at);
    record["dynamodb"]["Keys"]["PK"] = json!({"S": BUCKET.replace("user-1", entity)});
    record
}

/// The `at`th record, an acquire that no function can decode.
pub fn poisoned(at: u64) -> Value {
    let mut record = acquire(at);
    record["dynamodb"]["NewImage"] = consumed("rpm", "0.5");
    record
}

impl Display for StreamRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.json.fmt(f)
    }
}

/// The event of a batch, as Lambda hands it to a function.
pub fn event(records: impl IntoIterator<Item = impl Display>) -> anyhow::Result<StreamEvent> {
    let records = records.into_iter().map(|record| RawValue::from_string(record.to_string()));
    Ok(StreamEvent { records: records.collect::<Result<_, _>>()? })
}

/// The sequence number from which a batch is delivered again, if the response names one.
pub fn failure(answer: &Result<DynamoDbEventResponse, BatchError>) -> Option<String> {
    let failure = answer.as_ref().ok()?.batch_item_failures.first()?;
    failure.item_identifier.clone()
}

/// A record as `usage-rollup` parks it.
pub fn dead_letter(record: &Value) -> Message {
    Message { body: record.to_string(), attributes: [("function".to_owned(), "usage-rollup".to_owned())].into() }
}

/// A batch of the function with this name as the event source mapping stores it.
pub fn discarded_batch(function: &str, records: &[Value]) -> String {
    let stored = json!({
        "requestContext": {"functionArn": format!("arn:aws:lambda:us-east-1:123456789012:function:{function}:$LATEST")},
        "payload": json!({"Records": records}).to_string(),
    });
    stored.to_string()
}
