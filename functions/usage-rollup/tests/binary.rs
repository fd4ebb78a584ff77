//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{fs, path::Path, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tidegate_domain::time::EpochMillis;
use tidegate_local::{
    bench::runtime_api::{Answer, RuntimeApi},
    books::Books,
    services::Services,
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

const BINARY: &str = env!("CARGO_BIN_EXE_usage-rollup");

/// Nothing here takes longer, unless it hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// 1970-01-01T00:10:00Z, which cargo-lambda's emulator hands out.
const CARGO_LAMBDA_DEADLINE: i64 = 600_000;

/// A command of the binary with nothing in its environment but what each function has.
fn command() -> Command {
    let mut command = Command::new(BINARY);
    command
        .env_clear()
        .env("AWS_LAMBDA_FUNCTION_NAME", "usage-rollup")
        .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/usage-rollup")
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "2026/01/01/[$LATEST]0123456789abcdef0123456789abcdef")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// The function, waiting for events, and all that it talks to. It has no dead-letter queue.
struct Function {
    process: Child,
    runtime_api: RuntimeApi,
    services: Services,
}

impl Function {
    async fn start(runtime_api: RuntimeApi, variables: &[(&str, &str)]) -> Self {
        let services = Services::embedded(None, "binary").await.unwrap();
        let process = command()
            .env("AWS_LAMBDA_RUNTIME_API", runtime_api.address().to_string())
            .env("AWS_ENDPOINT_URL_DYNAMODB", &services.endpoint)
            .env("TABLE_NAME", &services.table)
            .env("SNAPSHOT_WINDOWS", "hourly,daily,monthly")
            .envs(variables.iter().copied())
            .spawn()
            .unwrap();
        let mut function = Self { process, runtime_api, services };
        function.asks_for_the_next_event().await;
        function
    }

    async fn asks_for_the_next_event(&mut self) {
        let Self { process, runtime_api, .. } = self;
        watched(process, runtime_api.polled()).await.unwrap();
    }

    async fn invoke(&mut self, event: &Value) -> anyhow::Result<Answer> {
        let Self { process, runtime_api, .. } = self;
        watched(process, runtime_api.invoke(event.to_string().into())).await
    }

    /// The event must fail with a message that holds `expect`, and the process must live.
    async fn fails(&mut self, event: &Value, expect: &[&str]) {
        let message = self.invoke(event).await.unwrap_err().to_string();
        assert!(message.starts_with("the function reported an error: "), "{message:?}");
        for part in expect {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
        self.asks_for_the_next_event().await;
    }

    /// The event must be answered with `expect`.
    async fn answers(&mut self, event: &Value, expect: Value) -> Answer {
        let answer = self.invoke(event).await.unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&answer.body).unwrap(), expect);
        answer
    }

    async fn snapshots(&self) -> usize {
        Books::read(&self.services.dynamodb, &self.services.table).await.unwrap().iter().count()
    }

    /// Ends the process and returns what it wrote to stdout: lines of JSON, each an object.
    async fn log(mut self) -> Vec<Value> {
        self.process.start_kill().unwrap();
        let output = timeout(LIMIT, self.process.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert!(lines.iter().all(Value::is_object), "{lines:?}");
        lines
    }
}

/// Awaits `work` of the process, which must neither end nor hang.
async fn watched<T>(process: &mut Child, work: impl Future<Output = T>) -> T {
    let watch = async {
        tokio::select! {
            biased;
            done = work => done,
            status = process.wait() => panic!("the process ended: {status:?}"),
        }
    };
    timeout(LIMIT, watch).await.unwrap()
}

fn event(name: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    serde_json::from_slice(&fs::read(root.join("events/usage-rollup").join(name)).unwrap()).unwrap()
}

fn success() -> Value {
    json!({"batchItemFailures": []})
}

#[tokio::test]
async fn a_batch_becomes_snapshots() {
    let mut function = Function::start(RuntimeApi::start().await.unwrap(), &[]).await;
    function.answers(&event("batch.json"), success()).await;
    assert_eq!(function.snapshots().await, 12);
}

#[tokio::test]
async fn a_deadline_in_1970_is_none() {
    let deadline = EpochMillis::new(CARGO_LAMBDA_DEADLINE).unwrap();
    let mut function = Function::start(RuntimeApi::start().await.unwrap().with_deadline(deadline), &[]).await;
    function.answers(&event("batch.json"), success()).await;
    assert_eq!(function.snapshots().await, 12);
}

#[tokio::test]
async fn a_failed_invocation_is_reported_and_the_next_succeeds() {
    let mut function = Function::start(RuntimeApi::start().await.unwrap(), &[]).await;
    function.fails(&json!({"hello": 1}), &["missing field", "Records"]).await;
    // Nothing tells the event source mapping where such a record is, so the batch must come again.
    function.fails(&json!({"Records": [{"eventName": "MODIFY"}]}), &["sequence number", "whole batch"]).await;
    function.answers(&event("batch.json"), success()).await;
    assert_eq!(function.snapshots().await, 12);
}

#[tokio::test]
async fn the_log_is_json_and_tells_which_invocation_a_poison_record_was_in() {
    for level in ["WARN", "INFO"] {
        let variables = [("AWS_LAMBDA_LOG_LEVEL", level)];
        let mut function = Function::start(RuntimeApi::start().await.unwrap(), &variables).await;
        let event_with_poison = event("malformed-among-good.json");
        let sequence = &event_with_poison["Records"][1]["dynamodb"]["SequenceNumber"];

        function.answers(&event("batch.json"), success()).await;
        let failure = json!({"batchItemFailures": [{"itemIdentifier": sequence}]});
        let answer = function.answers(&event_with_poison, failure).await;

        let log = function.log().await;
        let about: Vec<_> = log.iter().filter(|line| line["sequence"] == *sequence).collect();
        assert!(matches!(about[..], [line] if line["level"] == "ERROR"), "{level}: {log:#?}");
        assert_eq!(about[0]["span"]["requestId"], answer.request_id, "{level}: {log:#?}");
        let metrics = log.iter().filter(|line| line.get("_aws").is_some());
        assert_eq!(metrics.count(), 2, "{level}: a line of metrics an invocation: {log:#?}");
    }
}

/// The process must end with an error that holds `expect`, before it asks anybody for anything.
async fn check_refused(variables: &[(&str, &str)], expect: &[&str]) {
    // Nothing listens at port 1: whoever asks for an event fails with another message.
    let mut command = command();
    command.env("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:1").envs(variables.iter().copied());
    let output = timeout(LIMIT, command.output()).await.unwrap().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{}: {message}", output.status);
    for part in expect {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    let table = ("TABLE_NAME", "limits");
    check_refused(&[], &["TABLE_NAME", "not set"]).await;
    check_refused(&[table, ("SNAPSHOT_WINDOWS", "hourly,weekly")], &["SNAPSHOT_WINDOWS", "\"hourly,weekly\""]).await;
    check_refused(&[table, ("SNAPSHOT_TTL_DAYS", "ninety")], &["SNAPSHOT_TTL_DAYS", "\"ninety\""]).await;
}
