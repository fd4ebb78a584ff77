//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use serde_json::{Value, json};
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::{
    process::{Binary, Process},
    runtime_api::RuntimeApi,
    usage_totals::UsageTotals,
};

const BINARY: Binary = Binary { name: "usage-rollup", path: env!("CARGO_BIN_EXE_usage-rollup") };

/// 1970-01-01T00:10:00Z, which cargo-lambda's emulator hands out.
const CARGO_LAMBDA_DEADLINE: i64 = 600_000;

async fn start_on(runtime_api: RuntimeApi, variables: &[(&str, &str)]) -> Process {
    let windows = ("SNAPSHOT_WINDOWS", "hourly,daily,monthly");
    let variables: Vec<_> = [windows].into_iter().chain(variables.iter().copied()).collect();
    BINARY.start(runtime_api, &variables).await.unwrap()
}

async fn start(variables: &[(&str, &str)]) -> Process {
    start_on(RuntimeApi::start().await.unwrap(), variables).await
}

async fn snapshots(function: &Process) -> usize {
    let services = &function.services;
    UsageTotals::read(&services.dynamodb, &services.table).await.unwrap().iter().count()
}

fn event(name: &str) -> Value {
    BINARY.payload(name).unwrap()
}

fn success() -> Value {
    json!({"batchItemFailures": []})
}

#[tokio::test]
async fn a_batch_becomes_snapshots() {
    let mut function = start(&[]).await;
    function.check(&event("batch.json"), success()).await;
    assert_eq!(snapshots(&function).await, 12);
}

#[tokio::test]
async fn success_is_one_line_without_names() {
    let mut function = start(&[]).await;
    let answer = function.check(&event("batch.json"), success()).await;
    let log = function.log().await.unwrap();
    let [line] = &log[..] else { panic!("{log:#?}") };
    assert_eq!((&line["function_request_id"], &line["Posted"]), (&json!(answer.request_id), &json!(12)));
    assert!(!line.to_string().contains("solo-"), "no tenant is named: {line:#}");
}

#[tokio::test]
async fn a_deadline_in_1970_is_none() {
    let deadline = EpochMillis::new(CARGO_LAMBDA_DEADLINE).unwrap();
    let mut function = start_on(RuntimeApi::start().await.unwrap().with_deadline(deadline), &[]).await;
    function.check(&event("batch.json"), success()).await;
    assert_eq!(snapshots(&function).await, 12);
}

#[tokio::test]
async fn the_next_invocation_succeeds_after_a_failure() {
    let mut function = start(&[]).await;
    function.check_failure(&json!({"hello": 1}), &["missing field", "Records"]).await;
    // Nothing tells the event source mapping where such a record is, so the batch must be delivered again.
    function.check_failure(&json!({"Records": [{"eventName": "MODIFY"}]}), &["sequence number", "whole batch"]).await;
    // Nor is anything of it right while the stream shows too little.
    let mut misconfigured = event("insert.json");
    misconfigured["Records"][0]["dynamodb"]["StreamViewType"] = json!("KEYS_ONLY");
    function.check_failure(&misconfigured, &["misconfigured", "KEYS_ONLY", "NEW_AND_OLD_IMAGES"]).await;
    function.check(&event("batch.json"), success()).await;
    assert_eq!(snapshots(&function).await, 12);
}

#[tokio::test]
async fn the_log_names_the_invocation_of_poison() {
    for level in ["WARN", "INFO"] {
        let mut function = start(&[("AWS_LAMBDA_LOG_LEVEL", level)]).await;
        let event_with_poison = event("malformed-among-good.json");
        let sequence = &event_with_poison["Records"][1]["dynamodb"]["SequenceNumber"];

        function.check(&event("batch.json"), success()).await;
        let failure = json!({"batchItemFailures": [{"itemIdentifier": sequence}]});
        let answer = function.check(&event_with_poison, failure).await;

        let log = function.log().await.unwrap();
        let about: Vec<_> = log.iter().filter(|line| line["sequence"] == *sequence).collect();
        assert!(matches!(about[..], [line] if line["level"] == "ERROR"), "{level}: {log:#?}");
        assert_eq!(about[0]["function_request_id"], answer.request_id, "{level}: {log:#?}");
        let metrics = log.iter().filter(|line| line.get("_aws").is_some());
        assert_eq!(metrics.count(), 2, "{level}: a line of metrics an invocation: {log:#?}");
    }
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    let table = ("TABLE_NAME", "limits");
    BINARY.check_refusal(&[], &["TABLE_NAME", "not set"]).await;
    BINARY
        .check_refusal(&[table, ("SNAPSHOT_WINDOWS", "hourly,weekly")], &["SNAPSHOT_WINDOWS", "\"hourly,weekly\""])
        .await;
    BINARY.check_refusal(&[table, ("SNAPSHOT_TTL_DAYS", "ninety")], &["SNAPSHOT_TTL_DAYS", "\"ninety\""]).await;
}
