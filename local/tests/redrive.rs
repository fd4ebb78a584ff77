//! The operator's command, as a process with an environment.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_local::{books::Books, queue::Message, services::Services};
use tokio::process::Command;

const BUCKET: &str = "TQ5vSMvQTm4/BUCKET#user-1#api#0";

fn letter(consumed: &str) -> Message {
    let record = json!({
        "eventName": "INSERT",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_767_223_800, "Keys": {"PK": {"S": BUCKET}, "SK": {"S": "#STATE"}},
            "NewImage": {"b_rpm_tc": {"N": consumed}}, "SequenceNumber": "100000000000000000001",
        },
    });
    let attributes = BTreeMap::from([("function".to_owned(), "usage-rollup".to_owned())]);
    Message { body: record.to_string(), attributes }
}

/// Runs the command; what it printed, and its exit code.
async fn redrive(services: &Services, arguments: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-local"))
        .env_clear()
        .env("AWS_ENDPOINT_URL_DYNAMODB", &services.endpoint)
        .env("AWS_ENDPOINT_URL_SQS", services.queue.endpoint())
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .args(["redrive", "--queue-url", services.queue.url(), "--table", &services.table])
        .args(arguments)
        .output()
        .await
        .unwrap();
    (String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(), output.status.code())
}

async fn tokens(services: &Services) -> Vec<(String, i128)> {
    let books = Books::read(&services.dynamodb, &services.table).await.unwrap();
    books.iter().map(|(snapshot, usage)| (snapshot.window.clone(), usage.tokens["rpm"])).collect()
}

#[tokio::test]
async fn an_operator_sees_what_was_done_and_what_is_left() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    services.queue.put(letter("7000"));
    let (said, code) = redrive(&services, &["--windows", "hourly,monthly", "--dry-run"]).await;
    assert_eq!((code, tokens(&services).await), (Some(0), vec![]), "{said}");
    assert!(said.contains("dry run"), "{said}");

    services.queue.put(letter("0.5"));
    let (said, code) = redrive(&services, &["--windows", "hourly,monthly"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("b_rpm_tc") && said.contains("cannot be decoded"), "{said}");
    let mut found = tokens(&services).await;
    found.sort();
    assert_eq!(found, [("hourly".to_owned(), 7), ("monthly".to_owned(), 7)], "{said}");
    let [left] = &services.queue.messages()[..] else { panic!("{said}") };
    let left: Value = serde_json::from_str(&left.body).unwrap();
    assert_eq!(left["dynamodb"]["NewImage"]["b_rpm_tc"]["N"], "0.5");
}

#[tokio::test]
async fn the_windows_are_never_guessed() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    services.queue.put(letter("7000"));
    let (said, code) = redrive(&services, &[]).await;
    assert!(code.is_some_and(|code| code != 0) && said.contains("--windows"), "{said}");
    assert_eq!((services.queue.messages().len(), tokens(&services).await), (1, vec![]));
}

#[tokio::test]
async fn an_unknown_window_is_refused_before_anything_is_received() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    services.queue.put(letter("7000"));
    let (said, code) = redrive(&services, &["--windows", "hourly,weekly"]).await;
    assert!(code.is_some_and(|code| code != 0) && said.contains("\"weekly\""), "{said}");
    assert_eq!((services.queue.messages().len(), tokens(&services).await), (1, vec![]));
}
