//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::{
    clock,
    schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID},
    table,
    token_tables::TokenTables,
};
use tidegate_sandbox::{
    process::{Binary, Process},
    runtime_api::RuntimeApi,
};

const BINARY: Binary = Binary { name: "token-sweeper", path: env!("CARGO_BIN_EXE_token-sweeper") };

const BASE: (&str, &str) = ("LIMITER_TABLES_BASE_NAME", "prod");
const CLUSTER: &str = "j-1YONHTCP3YZKC";

/// The function with the token tables, and these variables beside their names.
async fn start(variables: &[(&str, &str)]) -> Process {
    let variables: Vec<_> = variables.iter().copied().chain([BASE]).collect();
    let function = BINARY.start(RuntimeApi::start().await.unwrap(), &variables).await.unwrap();
    table::create_token_tables(&function.services.dynamodb, &TokenTables::of(BASE.1)).await.unwrap();
    function
}

/// Writes a token that expires in so many seconds.
async fn put(function: &Process, reservation: &str, resource: &str, expires_in: i64) {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let expires = clock::now().unwrap().get() / 1000 + expires_in;
    let put = function.services.dynamodb.put_item().table_name(TokenTables::of(BASE.1).non_fungible);
    put.item(RESOURCE_COORDINATE, text("emr-cluster:123456789012"))
        .item(RESERVATION_ID, text(reservation))
        .item(RESOURCE_ID, text(resource))
        .item(EXPIRATION_TIME, AttributeValue::N(expires.to_string()))
        .send()
        .await
        .unwrap();
}

async fn left(function: &Process) -> Vec<String> {
    let scan = function.services.dynamodb.scan().table_name(TokenTables::of(BASE.1).non_fungible);
    let items = scan.consistent_read(true).send().await.unwrap().items.unwrap_or_default();
    let mut left: Vec<_> = items.iter().map(|item| item[RESERVATION_ID].as_s().unwrap().clone()).collect();
    left.sort();
    left
}

fn event(name: &str) -> Value {
    BINARY.payload(name).unwrap()
}

fn failures(messages: &[&Value]) -> Value {
    let failures: Vec<_> = messages.iter().map(|id| json!({"itemIdentifier": id})).collect();
    json!({"batchItemFailures": failures})
}

/// The ids of an event's messages.
fn ids(batch: &Value) -> Vec<&Value> {
    batch["Records"].as_array().unwrap().iter().map(|message| &message["messageId"]).collect()
}

/// What is answered to the end of the cluster.
fn response(decision: &str, why: &str, deleted: usize) -> Value {
    json!({
        "event": "6f1c2b7e-0000-4000-8000-000000000001", "processor": "emr-cluster", "resource": CLUSTER,
        "decision": decision, "why": why, "deleted": deleted,
    })
}

#[tokio::test]
async fn an_end_deletes_its_tokens() {
    let mut function = start(&[]).await;
    put(&function, "r-1", CLUSTER, 60).await;
    put(&function, "r-2", CLUSTER, 60).await;
    put(&function, "r-3", "j-RUNNING", 60).await;
    function.check(&event("emr-cluster.json"), response("deleted", "the resource has ended", 2)).await;
    assert_eq!(left(&function).await, ["r-3"]);
    // The payload is of long ago, so nothing is waited for.
    let untracked = response("untracked", "no token, and none is to be expected", 0);
    function.check(&event("emr-cluster.json"), untracked).await;
}

#[tokio::test]
async fn the_answer_names_failed_messages() {
    let mut function = start(&[("MISSING_TOKEN_GRACE_SECONDS", "4000000000")]).await;
    put(&function, "r-1", CLUSTER, 60).await;
    let batch = event("batch-with-strays.json");
    let ids = ids(&batch);
    // The cluster has a token; the Glue job may still get one.
    function.check(&batch, failures(&ids[3..])).await;
    assert!(left(&function).await.is_empty());
    function.check(&event("empty.json"), failures(&[])).await;
}

#[tokio::test]
async fn a_batch_handles_all_kinds_of_events() {
    let mut function = start(&[]).await;
    put(&function, "r-1", CLUSTER, 60).await;
    function.check(&event("batch.json"), failures(&[])).await;
    assert!(left(&function).await.is_empty());
}

#[tokio::test]
async fn a_reconcile_takes_what_has_expired() {
    let mut function = start(&[]).await;
    put(&function, "expired", "j-1", -1).await;
    put(&function, "live", "j-2", 60).await;
    let (_, answer) = function.invoke(&event("reconcile.json")).await.unwrap();
    assert_eq!((&answer["tokens"], &answer["deleted"], &answer["complete"]), (&json!(2), &json!(1), &json!(true)));
    assert_eq!(answer["decided"][0]["reservation"], "expired");
    assert_eq!(left(&function).await, ["live"]);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let mut function = start(&[("DRY_RUN", "true")]).await;
    put(&function, "ended", CLUSTER, 60).await;
    put(&function, "expired", "j-1", -1).await;
    let found = response("would-delete", "the resource has ended; a dry run leaves its tokens (1)", 0);
    function.check(&event("emr-cluster.json"), found).await;
    let (_, answer) = function.invoke(&event("reconcile.json")).await.unwrap();
    assert_eq!((&answer["deleted"], &answer["decided"][0]["decision"]), (&json!(0), &json!("would-delete")));
    assert_eq!(left(&function).await, ["ended", "expired"]);
}

#[tokio::test]
async fn the_process_survives_a_stray_event() {
    let mut function = start(&[]).await;
    function.check_failure(&event("unknown-source.json"), &["no processor", "\"my.jobs\""]).await;
    function.check_failure(&event("without-source.json"), &["no source"]).await;
    function.check_failure(&event("glue-job-without-id.json"), &["\"glue-job\"", "detail.jobRunId"]).await;
    function.check_failure(&json!({"action": "recon"}), &["\"recon\"", "\"reconcile\""]).await;
    function.check_failure(&json!(7), &["a number", "expected an object"]).await;
    // Nothing tells the event source mapping which message that is, so the batch must be delivered again.
    let nameless = json!({"Records": [{"eventSource": "aws:sqs", "body": "{}"}]});
    function.check_failure(&nameless, &["no id", "whole batch"]).await;
    function.check(&event("empty.json"), failures(&[])).await;
}

#[tokio::test]
async fn each_decision_is_logged_with_its_reason() {
    let mut function = start(&[]).await;
    put(&function, "r-1", CLUSTER, 60).await;
    let batch = event("batch-with-strays.json");
    let ids = ids(&batch);
    let answer = function.check(&batch, failures(&ids[3..7])).await;

    let log = function.log().await.unwrap();
    let about = |id: &Value| log.iter().filter(|line| line["message_id"] == *id).collect::<Vec<_>>();
    for (id, level, decision) in [
        (ids[0], "INFO", "deleted"),
        (ids[1], "INFO", "deleted"),
        (ids[2], "INFO", "no-end"),
        (ids[3], "ERROR", "failed"),
        (ids[4], "ERROR", "failed"),
        (ids[5], "ERROR", "failed"),
        (ids[6], "ERROR", "failed"),
        (ids[7], "INFO", "untracked"),
    ] {
        let [line] = about(id)[..] else { panic!("{id}: {log:#?}") };
        assert_eq!((&line["level"], &line["decision"]), (&json!(level), &json!(decision)), "{line:#}");
        assert!(line["why"].as_str().is_some_and(|why| !why.is_empty()), "{line:#}");
        assert_eq!(line["function_request_id"], answer.request_id, "{line:#}");
    }
    let metrics: Vec<_> = log.iter().filter(|line| line.get("_aws").is_some()).collect();
    assert!(matches!(metrics[..], [line] if line["kind"] == "batch" && line["Deleted"] == 1), "{log:#?}");
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    BINARY.check_refusal(&[], &["NON_FUNGIBLE_TABLE", "not set"]).await;
    BINARY.check_refusal(&[("NON_FUNGIBLE_TABLE", "tokens")], &["NON_FUNGIBLE_RES_INDEX", "not set"]).await;
    BINARY
        .check_refusal(&[BASE, ("MISSING_TOKEN_GRACE_SECONDS", "2m")], &["MISSING_TOKEN_GRACE_SECONDS", "\"2m\""])
        .await;
    BINARY.check_refusal(&[BASE, ("DRY_RUN", "yes")], &["DRY_RUN", "\"yes\""]).await;
    let processors = r#"[{"name": "jobs", "source": "my.jobs"}]"#;
    BINARY
        .check_refusal(&[BASE, ("EVENT_PROCESSORS", processors)], &["EVENT_PROCESSORS", "jobs", "id-path", "required"])
        .await;
}
