//! `tidegate capacity`, as a process with an environment.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tidegate_sandbox::{
    gate::Gate,
    lambda::{EmbeddedLambda, Fault, FunctionError},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

const FUNCTION: &str = "capacity-coordinator";

/// The command's environment, and a function with one answer for each action.
struct Operator {
    lambda: EmbeddedLambda,
}

impl Operator {
    async fn new() -> Self {
        let operator = Self { lambda: EmbeddedLambda::start().await.unwrap() };
        operator.answers(&ready());
        operator
    }

    /// Lets the function answer announcements so.
    fn answers(&self, announced: &Value) {
        let announced = announced.clone();
        self.lambda.functions().add(FUNCTION, move |request: Value| {
            let answer = match request["action"].as_str() {
                Some("announce") => Ok(announced.clone()),
                Some("release") => Ok(json!({"id": request["id"], "released": request["id"] == "load-42"})),
                Some("list") => Ok(json!({"announcements": [listed()]})),
                Some("status") if request["index"].is_null() => Ok(status()),
                Some("status") => Err(FunctionError::new("UnknownIndex", "table \"orders\" has no such index")),
                _ => Err(FunctionError::new("MalformedRequest", "unknown action")),
            };
            async { answer }
        });
    }

    fn command(&self, words: &str) -> Command {
        let mut command = command(words);
        command.env("TIDEGATE_COORDINATOR", FUNCTION).args(["--endpoint", self.lambda.endpoint()]);
        command
    }

    async fn run(&self, words: &str) -> (String, Option<i32>) {
        said(self.command(words).output().await.unwrap())
    }

    async fn succeeds(&self, words: &str) -> String {
        let (said, code) = self.run(words).await;
        assert_eq!(code, Some(0), "{words}: {said}");
        said
    }

    async fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.succeeds(&format!("{words} --json")).await).unwrap()
    }

    async fn fails(&self, words: &str, status: i32, expect: &[&str]) {
        let (said, code) = self.run(words).await;
        assert!(code == Some(status) && expect.iter().all(|part| said.contains(part)), "{words}: {code:?} {said}");
    }

    /// The requests since the last call, without their random runs.
    fn requests(&self) -> Vec<Value> {
        let invocations = self.lambda.functions().take_invocations().into_iter();
        let without_run = |mut request: Value| {
            request.as_object_mut().unwrap().remove("run");
            request
        };
        invocations.map(|invocation| without_run(invocation.payload)).collect()
    }

    fn actions(&self) -> Vec<String> {
        self.requests().iter().map(|request| request["action"].as_str().unwrap().to_owned()).collect()
    }
}

fn command(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .env_clear()
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .arg("capacity")
        .args(words.split(' '));
    command
}

/// What it printed, and its status.
fn said(Output { status, stdout, stderr }: Output) -> (String, Option<i32>) {
    (String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap(), status.code())
}

fn target(provisioned: u64) -> Value {
    json!({
        "resource": "table/orders", "mode": "provisioned", "minimum": 18_000, "provisioned": provisioned,
        "needed": 18_001, "maximum": 40_000, "limited_by_maximum": false,
    })
}

fn ready() -> Value {
    json!({"id": "load-42", "ready": true, "provisioned": 18_002, "until": 1_795_348_800, "targets": [target(18_002)]})
}

fn listed() -> Value {
    json!({
        "id": "load-42", "caller": "etl", "resources": ["table/orders/index/by-date", "table/orders"],
        "dimension": "write", "units": 4_000, "until": 1_795_348_800, "ready": true,
    })
}

fn status() -> Value {
    json!({
        "resource": "table/orders", "dimension": "write", "mode": "provisioned", "minimum": 18_000, "owner_minimum": 5,
        "maximum": 40_000, "target_utilization": 70.0, "provisioned": 18_002, "consumption": 8_600,
        "announced": 4_000, "needed": 18_001, "announcements": ["load-42"],
    })
}

/// Whether a text has these parts, in this order.
fn has(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in its place:\n{said}"));
        rest = &rest[at + part.len()..];
    }
}

#[tokio::test]
async fn an_announcement_stays_in_force() {
    let operator = Operator::new().await;
    let said = operator.succeeds("announce orders write 4000 --id load-42 --for 30m --caller ops").await;
    has(&said, &["resource", "needed", "table/orders", "provisioned", "18002", "18001", "18000", "40000"]);
    has(&said, &["\"load-42\"", "2026-11-22T12:00:00Z", "tidegate capacity release load-42"]);
    let expect = json!({
        "action": "announce", "id": "load-42", "table": "orders", "index": null, "dimension": "write", "units": 4_000,
        "for_seconds": 1_800, "caller": "ops",
    });
    assert_eq!(operator.requests(), [expect]);

    let said = operator.json("announce orders read 5 --index by-date --with-table --warm --id load-42").await;
    let expect = json!({
        "id": "load-42", "ready": true, "provisioned": 18_002, "until": 1_795_348_800, "targets": [target(18_002)],
        "dry_run": false,
    });
    assert_eq!(said, expect);
    let requests = operator.requests();
    let keys = ["index", "with_table", "warm", "for_seconds"].map(|key| requests[0][key].clone());
    assert_eq!((requests.len(), keys), (1, [json!("by-date"), json!(true), json!(true), json!(600)]));
}

#[tokio::test]
async fn capacity_that_is_not_ready_is_released() {
    let operator = Operator::new().await;
    let mut answer =
        json!({"id": "load-42", "ready": false, "provisioned": 8_000, "until": 5, "targets": [target(8_000)]});
    answer["retry_after_seconds"] = json!(20);
    operator.answers(&answer);
    let words = "announce orders write 4000 --id load-42 --deadline 1s";
    operator.fails(words, 1, &["error: ", "\"load-42\"", "not ready", "8000 of 18001 units"]).await;
    assert_eq!(operator.actions(), ["announce", "release"]);

    answer["dry_run"] = json!(true);
    operator.answers(&answer);
    operator.fails("announce orders write 4000", 1, &["dry run"]).await;
    answer["ready"] = json!(true);
    operator.answers(&answer);
    has(&operator.succeeds("announce orders write 4000 --id load-42").await, &["dry run", "was not made"]);
}

#[tokio::test]
async fn announcements_are_listed_and_released() {
    let operator = Operator::new().await;
    has(
        &operator.succeeds("list").await,
        &["id", "caller", "load-42", "etl", "by-date", "write", "4000", "2026-11-22T12:00:00Z", "yes", "table/orders"],
    );
    assert_eq!(operator.json("list").await, json!({"announcements": [listed()]}));
    has(&operator.succeeds("release load-42").await, &["\"load-42\" is released"]);
    has(&operator.succeeds("release load-43").await, &["\"load-43\" is not in force"]);
    assert_eq!(operator.json("release load-42").await, json!({"id": "load-42", "released": true}));
}

#[tokio::test]
async fn a_targets_state_is_shown() {
    let operator = Operator::new().await;
    let parts = ["table/orders, write", "provisioned", "18002", "minimum of the owner", "5", "70 %", "8600", "load-42"];
    has(&operator.succeeds("status orders write").await, &parts);
    assert_eq!(operator.json("status orders write").await, status());
    operator.fails("status orders write --index by-date", 1, &["error: ", "UnknownIndex", "no such index"]).await;
}

#[tokio::test]
async fn wrong_input_is_refused() {
    let operator = Operator::new().await;
    let check = async |words: &str, status, expect: &[&str]| operator.fails(words, status, expect).await;
    check("announce orders writes 5", 2, &["'writes'", "read, write"]).await;
    check("announce orders write many", 2, &["'many'"]).await;
    check("announce orders write 5 --for 10", 2, &["\"10\"", "10m"]).await;
    check("announce orders write 5 --with-table", 2, &["--index"]).await;
    check("announce orders write 5 --table limits", 2, &["--table is the bucket table"]).await;
    check("announce orders write 0", 1, &["invalid units 0"]).await;
    check("release a#%", 1, &["\"a#%\"", "announcement id"]).await;
    assert_eq!(operator.actions(), [""; 0]);
    let (said, code) = said(command("list").output().await.unwrap());
    assert!(code == Some(2) && said.contains("--function") && said.contains("TIDEGATE_COORDINATOR"), "{code:?} {said}");
}

#[tokio::test]
async fn a_missing_function_or_permission_is_named() {
    let operator = Operator::new().await;
    let expect = ["error: function \"other\" does not exist", "--function", "AWS_REGION"];
    operator.fails("list --function other", 1, &expect).await;
    operator.lambda.functions().on_invoke(|_| Some(Fault::AccessDenied));
    operator
        .fails("list", 1, &["error: function \"capacity-coordinator\"", "do not allow lambda:InvokeFunction"])
        .await;
}

#[tokio::test]
async fn an_interrupted_announcement_is_released() {
    let operator = Operator::new().await;
    let gate = Gate::closed();
    let held = gate.clone();
    operator
        .lambda
        .functions()
        .on_invoke(move |invocation| (invocation.payload["action"] == "announce").then(|| Fault::Held(held.clone())));
    let mut command = operator.command("announce orders write 4000");
    let mut announcing = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    gate.holds(1).await;
    let pid = announcing.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    let line = BufReader::new(announcing.stderr.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    assert!(line.contains("waiting for running invocations"), "{line}");
    gate.open().await;
    let (said, code) = said(announcing.wait_with_output().await.unwrap());
    assert_eq!((code, operator.actions()), (Some(130), vec!["announce".to_owned(), "release".to_owned()]), "{said}");
}
