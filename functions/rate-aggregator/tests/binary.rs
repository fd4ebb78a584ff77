//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_aws::{clock, schema::rates::worker_key};
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::{
    process::{Binary, Process},
    runtime_api::RuntimeApi,
    s3::{BUCKET, Call, EmbeddedS3, Fault, workers::report},
};
use tokio::{
    sync::{Notify, mpsc},
    time::Duration,
};

const BINARY: Binary = Binary { name: "rate-aggregator", path: env!("CARGO_BIN_EXE_rate-aggregator") };

const REQUIRED: [(&str, &str); 2] = [("BUCKET", BUCKET), ("PREFIX", "fleet")];

/// The function with a bucket, and these variables beside those that it must have.
async fn start(runtime_api: RuntimeApi, s3: &EmbeddedS3, variables: &[(&str, &str)]) -> Process {
    let endpoint = s3.endpoint();
    let place = [("AWS_ENDPOINT_URL_S3", endpoint.as_str()), ("S3_FORCE_PATH_STYLE", "true")];
    let variables: Vec<_> = variables.iter().copied().chain(REQUIRED).chain(place).collect();
    BINARY.start(runtime_api, &variables).await.unwrap()
}

/// Under a prefix, two workers that count, one that is stale, and one that cannot be.
fn fleet(s3: &EmbeddedS3, prefix: &str) {
    let now = clock::now().unwrap();
    let put = |worker: &str, text: String| s3.bucket().put(worker_key(prefix, worker), text, now);
    put("1", report("1", now, 12.5, 0.1));
    put("2", report("2", now, 0.5, 0.2));
    put("3", report("3", EpochMillis::new(now.get() - 60_000).unwrap(), 7.0, 7.0));
    put("4", "{".to_owned());
}

fn event(name: &str) -> Value {
    BINARY.payload(name).unwrap()
}

fn response(prefix: &str, sequence: u64) -> Value {
    json!({
        "prefix": prefix, "outcome": "published", "sequence": sequence,
        "active_workers": 2, "stale_workers": 1, "rejected_workers": 1,
    })
}

#[tokio::test]
async fn one_aggregation_is_answered_and_measured() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/");
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[]).await;
    let (answer, body) = function.invoke(&event("once.json")).await.unwrap();
    assert_eq!(body, json!({"aggregations": 1, "jobs": [response("fleet/", 1)]}));
    let summary = s3.bucket().get("fleet/summary.json").unwrap();
    let summary: Value = serde_json::from_slice(&summary.content).unwrap();
    assert_eq!((&summary["aggregated_read_rate"], &summary["aggregated_write_rate"]), (&json!(13.0), &json!(0.3)));

    let log = function.log().await.unwrap();
    let lines = |kind: &str| log.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let [aggregation] = lines("aggregation")[..] else { panic!("{log:#?}") };
    for (name, expect) in [
        ("ReadRate", 13.0),
        ("WriteRate", 0.3),
        ("Active", 2.0),
        ("Stale", 1.0),
        ("Rejected", 1.0),
        ("Gets", 4.0),
        ("GetsSaved", 0.0),
    ] {
        assert_eq!(aggregation[name].as_f64(), Some(expect), "{name}: {aggregation:#}");
    }
    for (name, expect) in [
        ("prefix", "fleet/"),
        ("outcome", "published"),
        ("rejections", "it is no JSON object: 1"),
        ("function_request_id", &answer.request_id),
    ] {
        assert_eq!(aggregation[name], expect, "{name}: {aggregation:#}");
    }
    assert!(aggregation["OldestAge"].is_number() && aggregation["AggregationTime"].is_number(), "{aggregation:#}");
    let [invocation] = lines("once")[..] else { panic!("{log:#?}") };
    for count in ["Aggregations", "Succeeded", "Published"] {
        assert_eq!(invocation[count], 1, "{invocation:#}");
    }
    for (name, expect) in [("Active", 2.0), ("Rejected", 1.0), ("Gets", 4.0), ("Pages", 1.0), ("ReadRate", 13.0)] {
        assert_eq!(invocation[name].as_f64(), Some(expect), "{name}: {invocation:#}");
    }
    let rejected = log.iter().find(|line| line["key"] == "fleet/worker-4.json").unwrap();
    assert_eq!((&rejected["level"], &rejected["reason"]), (&json!("WARN"), &json!("it is no JSON object")));
}

/// What the lines that are left out would have said is in the invocation's own.
#[tokio::test]
async fn a_job_without_news_has_no_line() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/");
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[]).await;
    for _ in 0..3 {
        function.invoke(&event("once.json")).await.unwrap();
    }
    let log = function.log().await.unwrap();
    let count = |kind: &str| log.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((count("aggregation"), count("once")), (1, 3), "{log:#?}");
    let last = log.iter().rfind(|line| line["kind"] == "once").unwrap();
    assert_eq!((last["Active"].as_f64(), last["GetsSaved"].as_f64()), (Some(2.0), Some(4.0)), "{last:#}");
}

/// The deadline is far off, so only its cadence makes it write again.
#[tokio::test]
async fn a_schedules_call_aggregates_again_and_again() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/");
    let written = Arc::new(Notify::new());
    let notify = Arc::clone(&written);
    s3.bucket().on_call(move |bucket, call| {
        if matches!(call, Call::Put { .. }) && bucket.get("fleet/summary.json").is_some() {
            notify.notify_one();
        }
        None
    });
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[("INTERVAL_SECONDS", "1")]).await;
    let event = event("schedule.json");
    tokio::select! {
        answer = function.invoke(&event) => panic!("{answer:?}"),
        () = written.notified() => {}
    }
}

/// A second aggregation would begin too late, whoever calls.
#[tokio::test]
async fn an_invocation_ends_with_its_last_aggregation() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/");
    let deadline = clock::now().unwrap().after(Duration::from_mins(1));
    let runtime_api = RuntimeApi::start().await.unwrap().with_deadline(deadline);
    let mut function = start(runtime_api, &s3, &[("INTERVAL_SECONDS", "900")]).await;
    for (number, name) in ["schedule.json", "scheduled-event.json"].into_iter().enumerate() {
        let (_, body) = function.invoke(&event(name)).await.unwrap();
        assert_eq!((&body["aggregations"], &body["jobs"][0]["sequence"]), (&json!(1), &json!(number + 1)), "{name}");
    }
}

#[tokio::test]
async fn what_hangs_is_given_up() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/");
    s3.bucket().on_call(|_, call| matches!(call, Call::List { .. }).then_some(Fault::Hang));
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[("INTERVAL_SECONDS", "1")]).await;
    function.check_failure(&event("once.json"), &["fleet/", "the deadline passed"]).await;
}

/// A report hangs, and so does the summary: both are given up in time to answer.
#[tokio::test]
async fn an_invocation_ends_in_time() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    let now = clock::now().unwrap();
    for worker in 0..10 {
        let worker = worker.to_string();
        s3.bucket().put(worker_key("fleet/", &worker), report(&worker, now, 1.0, 1.0), now);
    }
    let (written, mut writes) = mpsc::unbounded_channel();
    s3.bucket().on_call(move |_, call| match call {
        Call::Get { key } if key.ends_with("worker-7.json") => Some(Fault::Hang),
        Call::Put { .. } => {
            written.send(()).unwrap();
            Some(Fault::Hang)
        }
        _ => None,
    });
    let deadline = clock::now().unwrap().after(Duration::from_secs(2));
    let runtime_api = RuntimeApi::start().await.unwrap().with_deadline(deadline);
    let mut function = start(runtime_api, &s3, &[]).await;
    function.check_failure(&event("schedule.json"), &["fleet/", "the deadline passed"]).await;
    assert!(clock::now().unwrap() < deadline);
    assert!(writes.try_recv().is_ok());
}

#[tokio::test]
async fn a_failed_job_is_named() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    fleet(&s3, "fleet/a/");
    fleet(&s3, "fleet/b/");
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[("DISCOVER_JOBS", "true")]).await;
    let (_, mut body) = function.invoke(&event("once.json")).await.unwrap();
    body["jobs"].as_array_mut().unwrap().sort_by_key(|job| job["prefix"].to_string());
    assert_eq!(body, json!({"aggregations": 1, "jobs": [response("fleet/a/", 1), response("fleet/b/", 1)]}));
    s3.bucket().on_call(|_, call| match call {
        Call::List { prefix, .. } if prefix == "fleet/b/" => Some(Fault::AccessDenied),
        _ => None,
    });
    function.check_failure(&event("once.json"), &["fleet/b/", "ListObjectsV2 failed"]).await;
}

#[tokio::test]
async fn the_process_survives_a_stray_event() {
    let s3 = EmbeddedS3::start(None).await.unwrap();
    let mut function = start(RuntimeApi::start().await.unwrap(), &s3, &[]).await;
    function.check_failure(&event("unknown-action.json"), &["\"twice\"", "\"once\""]).await;
    function.check_failure(&event("no-object.json"), &["[]", "expected an object"]).await;
    let (_, body) = function.invoke(&event("once.json")).await.unwrap();
    assert_eq!((&body["jobs"][0]["outcome"], &body["jobs"][0]["active_workers"]), (&json!("idle"), &json!(0)));
    assert_eq!(s3.bucket().get("fleet/summary.json"), None);
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    let [bucket, prefix] = REQUIRED;
    BINARY.check_refusal(&[], &["BUCKET", "not set"]).await;
    BINARY.check_refusal(&[bucket], &["PREFIX", "not set"]).await;
    BINARY.check_refusal(&[bucket, ("PREFIX", "/fleet")], &["PREFIX", "\"/fleet\""]).await;
    BINARY.check_refusal(&[bucket, prefix, ("INTERVAL_SECONDS", "0")], &["INTERVAL_SECONDS", "\"0\""]).await;
    BINARY.check_refusal(&[bucket, prefix, ("DISCOVER_JOBS", "yes")], &["DISCOVER_JOBS", "\"yes\""]).await;
}
