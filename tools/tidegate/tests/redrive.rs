//! The operator's command, as a process with an environment.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{
    process::{Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::{
    queue::Message,
    records::{consumed, dead_letter, discarded_batch, record},
    s3::{BUCKET, Call, EmbeddedS3, Fault},
    services::Services,
    usage_totals::UsageTotals,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    sync::mpsc,
};

/// An acquire of so many millitokens, hours ago.
fn acquire(entity: &str, millitokens: &str) -> Value {
    record(&format!("TQ5vSMvQTm4/BUCKET#{entity}#api#0"), 1, None, &consumed("rpm", millitokens))
}

fn letter(millitokens: &str) -> Message {
    dead_letter(&acquire("user-1", millitokens))
}

/// Lets the event source mapping discard a batch.
fn discard(s3: &EmbeddedS3, key: &str, records: &[Value]) {
    s3.bucket().put(key, discarded_batch("usage-rollup", records), EpochMillis::EPOCH);
}

/// The command, with an environment of embedded services.
fn command(services: &Services, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .env_clear()
        .env("AWS_ENDPOINT_URL_DYNAMODB", &services.endpoint)
        .env("AWS_ENDPOINT_URL_SQS", services.queue.endpoint())
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .args(["redrive", "--table", &services.table, "--from-table", "limits", "--snapshot-ttl-days", "90"])
        .args(arguments);
    command
}

fn of_failures(services: &Services, s3: &EmbeddedS3) -> Command {
    let failures = format!("s3://{BUCKET}/failures/");
    let mut command = command(services, &["--windows", "hourly", "--json", "--failures", &failures]);
    command.env("AWS_ENDPOINT_URL_S3", s3.endpoint());
    command
}

/// What it printed, and its status.
fn said(Output { status, stdout, stderr }: Output) -> (String, Option<i32>) {
    (String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap(), status.code())
}

async fn redrive_queue(services: &Services, arguments: &[&str]) -> (String, Option<i32>) {
    let output = command(services, arguments).args(["--queue", services.queue.url()]).output().await;
    said(output.unwrap())
}

/// The JSON that it printed, and its status.
async fn redrive_failures(services: &Services, s3: &EmbeddedS3) -> (Value, Option<i32>) {
    let Output { status, stdout, .. } = of_failures(services, s3).output().await.unwrap();
    (serde_json::from_slice(&stdout).unwrap(), status.code())
}

async fn tokens(services: &Services) -> Vec<(String, i128)> {
    let books = UsageTotals::read(&services.dynamodb, &services.table).await.unwrap();
    let mut tokens: Vec<_> =
        books.iter().map(|(snapshot, usage)| (snapshot.window.clone(), usage.tokens["rpm"])).collect();
    tokens.sort();
    tokens
}

#[tokio::test]
async fn an_operator_sees_what_is_left() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    services.queue.put(letter("7000"));
    let (said, code) = redrive_queue(&services, &["--windows", "hourly,monthly", "--dry-run"]).await;
    assert_eq!((code, tokens(&services).await), (Some(0), vec![]), "{said}");
    assert!(said.contains("dry run"), "{said}");

    services.queue.put(letter("0.5"));
    let (said, code) = redrive_queue(&services, &["--windows", "hourly,monthly"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("b_rpm_tc") && said.contains("cannot be decoded"), "{said}");
    let counted = [("hourly".to_owned(), 7), ("monthly".to_owned(), 7)];
    assert_eq!(tokens(&services).await, counted, "{said}");
    let [left] = &services.queue.messages()[..] else { panic!("{said}") };
    assert!(left.body.contains("0.5"), "{}", left.body);
}

#[tokio::test]
async fn wrong_options_are_refused_before_anything_is_received() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    services.queue.put(letter("7000"));
    let check = async |arguments: &[&str], expect: &str| {
        let (said, code) = said(command(&services, arguments).output().await.unwrap());
        assert!(code == Some(2) && said.contains(expect), "{code:?} {said}");
    };
    let url = services.queue.url();
    check(&["--queue", url], "--windows").await;
    check(&["--queue", url, "--windows", "hourly,weekly"], "\"weekly\"").await;
    check(&["--windows", "hourly"], "--queue").await;
    check(&["--windows", "hourly", "--queue", url, "--failures", "s3://b/p"], "cannot be used with").await;
    check(&["--windows", "hourly", "--failures", "b/p"], "\"b/p\" is not a location like s3://").await;
    assert_eq!((services.queue.messages().len(), tokens(&services).await), (1, vec![]));
}

#[tokio::test]
async fn discarded_batches_are_read_from_s3() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    let s3 = EmbeddedS3::start(None).await.unwrap();
    discard(&s3, "failures/1", &[acquire("user-1", "7000"), acquire("user-2", "0.5")]);
    discard(&s3, "failures/2", &[acquire("user-2", "5000")]);
    let (summary, code) = redrive_failures(&services, &s3).await;
    let left = summary["left"].as_array().unwrap();
    assert!(left.len() == 1 && left[0]["name"] == "failures/1", "{summary:#}");
    assert!(left[0]["reason"].as_str().is_some_and(|reason| reason.contains("b_rpm_tc")), "{summary:#}");
    let figures = ["items", "deleted", "counted", "undecided"].map(|name| summary[name].as_u64());
    assert_eq!((figures, code), ([2, 1, 2, 0].map(Some), Some(1)), "{summary:#}");
    assert_eq!(tokens(&services).await, [("hourly".to_owned(), 5), ("hourly".to_owned(), 7)]);
}

#[tokio::test]
async fn another_run_goes_on_after_ctrl_c() {
    let services = Services::embedded(None, "redrive").await.unwrap();
    let s3 = EmbeddedS3::start(None).await.unwrap();
    (0..3).for_each(|at| discard(&s3, &format!("failures/{at}"), &[acquire(&format!("user-{at}"), "7000")]));
    // No object can be read before the command has seen the signal: until then, it tries again.
    let is_seen = Arc::new(AtomicBool::new(false));
    let (reads, mut is_read) = mpsc::unbounded_channel();
    let seen = Arc::clone(&is_seen);
    s3.bucket().on_call(move |_, call| {
        let is_early = matches!(call, Call::Get { .. }) && !seen.load(Ordering::SeqCst);
        // Fails when the test has ended.
        let _ = is_early.then(|| reads.send(()));
        is_early.then_some(Fault::SlowDown)
    });
    let mut child = of_failures(&services, &s3).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().unwrap().to_string();
    tokio::select! {
        read = is_read.recv() => read.unwrap(),
        status = child.wait() => panic!("{status:?}"),
    }
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next_line().await.unwrap().unwrap();
    assert!(line.contains("finishing what is under way"), "{line}");
    is_seen.store(true, Ordering::SeqCst);
    let Output { status, stdout, .. } = child.wait_with_output().await.unwrap();
    let summary: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!((status.code(), &summary["interrupted"]), (Some(130), &json!(true)), "{summary:#}");
    assert_eq!((&summary["items"], &summary["deleted"], tokens(&services).await), (&json!(3), &json!(0), vec![]));

    s3.bucket().undisturbed();
    let (summary, code) = redrive_failures(&services, &s3).await;
    assert_eq!((code, &summary["deleted"]), (Some(0), &json!(3)), "{summary:#}");
    assert_eq!(tokens(&services).await.len(), 3);
}
