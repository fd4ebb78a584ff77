//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use serde_json::{Value, json};
use tidegate_sandbox::{
    process::{Binary, Process},
    runtime_api::RuntimeApi,
};

const BINARY: Binary = Binary { name: "bucket-keeper", path: env!("CARGO_BIN_EXE_bucket-keeper") };

async fn start(variables: &[(&str, &str)]) -> Process {
    BINARY.start(RuntimeApi::start().await.unwrap(), variables).await.unwrap()
}

fn event(name: &str) -> Value {
    BINARY.payload(name).unwrap()
}

fn success() -> Value {
    json!({"batchItemFailures": []})
}

/// How many buckets a repair looked at, of all.
fn repaired(buckets: usize) -> Value {
    json!({"buckets": buckets, "complete": true})
}

#[tokio::test]
async fn a_batch_and_a_repair_are_answered() {
    let mut function = start(&[]).await;
    for name in ["batch.json", "bump.json", "unfamiliar.json", "empty.json"] {
        function.check(&event(name), success()).await;
    }
    // The bucket of `bump.json` was registered, but is not in the table, so its entry goes.
    for buckets in [1, 0] {
        function.check(&event("repair.json"), repaired(buckets)).await;
    }
}

#[tokio::test]
async fn the_process_survives_an_unknown_event() {
    let mut function = start(&[]).await;
    function.check_failure(&json!({"action": "rapair"}), &["\"rapair\"", "\"repair\""]).await;
    function.check_failure(&json!({"hello": 1}), &["Records", "action"]).await;
    // Nothing tells the event source mapping where such a record is, so the batch must be delivered again.
    let nameless = json!({"Records": [{"eventName": "MODIFY"}]});
    function.check_failure(&nameless, &["sequence number", "whole batch"]).await;
    function.check(&event("batch.json"), success()).await;
}

#[tokio::test]
async fn the_log_names_the_invocation_of_poison() {
    let mut function = start(&[("AWS_LAMBDA_LOG_LEVEL", "WARN")]).await;
    let event_with_poison = event("malformed-among-good.json");
    let sequence = &event_with_poison["Records"][1]["dynamodb"]["SequenceNumber"];
    function.check(&event("repair.json"), repaired(0)).await;
    let failure = json!({"batchItemFailures": [{"itemIdentifier": sequence}]});
    let answer = function.check(&event_with_poison, failure).await;

    let log = function.log().await.unwrap();
    let about: Vec<_> = log.iter().filter(|line| line["sequence"] == *sequence).collect();
    assert!(matches!(about[..], [line] if line["level"] == "ERROR"), "{log:#?}");
    assert_eq!(about[0]["function_request_id"], answer.request_id, "{log:#?}");
    let metrics = log.iter().filter(|line| line.get("_aws").is_some());
    let kinds: Vec<_> = metrics.map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["repair", "batch"], "a line of metrics an invocation: {log:#?}");
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    let table = ("TABLE_NAME", "limits");
    BINARY.check_refusal(&[], &["TABLE_NAME", "not set"]).await;
    BINARY.check_refusal(&[table, ("MAX_SHARDS", "48")], &["MAX_SHARDS", "\"48\"", "power of two"]).await;
    BINARY.check_refusal(&[table, ("MAX_SHARDS", "128")], &["MAX_SHARDS", "\"128\"", "64"]).await;
    BINARY.check_refusal(&[table, ("SHARD_PRESSURE_PERCENT", "0")], &["SHARD_PRESSURE_PERCENT", "\"0\""]).await;
    BINARY.check_refusal(&[table, ("DEAD_LETTER_QUEUE_URL", "parked")], &["DEAD_LETTER_QUEUE_URL", "\"parked\""]).await;
}
