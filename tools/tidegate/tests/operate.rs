//! The operator's command, as a process with an environment: limits, entities, usage and buckets.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use axum::{Router, http::StatusCode, routing::post};
use serde_json::{Value, json};
use tidegate::Limiter;
use tidegate_aws::{client, namespaces::Namespaces};
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::{
    faults::{FaultyHttp, sdk_config},
    item::{number, text},
    loopback::LoopbackServer,
    services::Services,
};
use tokio::process::Command;

/// The command's environment, and the table.
struct Operator {
    services: Services,
}

impl Operator {
    async fn new() -> Self {
        let operator = Self { services: Services::embedded(None, "limits").await.unwrap() };
        operator.succeeds("namespace register default").await;
        operator
    }

    /// Runs the command with these words. Returns what it printed and its status.
    async fn run(&self, words: &str) -> (String, Option<i32>) {
        let endpoint = ["--endpoint", &self.services.endpoint];
        run(&["--table", "limits"], words, &endpoint).await
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

    /// A limiter, as an application uses it.
    async fn limiter(&self) -> Limiter {
        let sdk = sdk_config(&self.services.endpoint, FaultyHttp::undisturbed());
        Limiter::builder(client::dynamodb(&sdk), "limits").build().await.unwrap()
    }
}

async fn run(before: &[&str], words: &str, after: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .env_clear()
        .env("USER", "ops")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .args(before)
        .args(words.split(' '))
        .args(after);
    let output = command.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (said, output.status.code())
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
async fn limits_are_set_shown_and_deleted() {
    let operator = Operator::new().await;
    assert_eq!(operator.json("limits list").await, json!([]));
    let said = operator.succeeds("limits set --resource gpt-4 requests=600/minute tokens=1000/300s:5000").await;
    has(&said, &["resource \"gpt-4\"", "requests=600/minute tokens=1000/300s:5000", "existing buckets"]);
    operator.succeeds("limits set --entity key-1 --resource gpt-4 requests=60/minute").await;
    operator.succeeds("limits set --entity key-1 requests=5/day").await;
    operator.succeeds("limits set --system requests=1/second").await;
    let said = operator.succeeds("limits get --resource gpt-4").await;
    has(&said, &["entity", "(all)", "gpt-4", "requests", "600", "1 min", "600", "tokens", "1000", "5 min", "5000"]);
    let shown = operator.json("limits get --entity key-1").await;
    let limit = json!({"name": "requests", "tokens": 5, "period_seconds": 86_400, "burst": 5});
    let expect = json!({"entity": "key-1", "resource": null, "limits": [limit], "disabled": null, "unsupported": null});
    assert_eq!(shown, expect);
    let listed = operator.json("limits list").await;
    let scopes: Vec<_> = listed.as_array().unwrap().iter().map(|of| (&of["entity"], &of["resource"])).collect();
    let (key, gpt, all) = (&json!("key-1"), &json!("gpt-4"), &Value::Null);
    assert_eq!(scopes, [(all, all), (all, gpt), (key, all), (key, gpt)]);

    let limiter = operator.limiter().await;
    let _lease = limiter.acquire("key-1", "gpt-4").take("requests", 1).await.unwrap();
    let reached = operator.json("limits set --entity key-1 --resource gpt-4 requests=90/minute").await;
    assert_eq!(reached, json!({"written": 1, "left": 0}));
    let said = operator.succeeds("limits delete --entity key-1 --resource gpt-4").await;
    has(&said, &["entity \"key-1\" on resource \"gpt-4\"", "1 bucket item changed"]);
    operator.fails("limits delete --entity key-1 --resource gpt-4", 1, &["nothing is configured", "key-1"]).await;
    operator.fails("limits get --entity key-1 --resource gpt-4", 1, &["nothing is configured", "key-1"]).await;
    let audit = operator.json("audit --entity key-1").await;
    let actions: Vec<_> = audit.as_array().unwrap().iter().map(|event| &event["action"]).collect();
    assert_eq!(actions, ["limits_deleted", "limits_set", "limits_set", "limits_set"]);
    assert_eq!(audit[0]["principal"], "ops");
    has(&operator.succeeds("audit --system").await, &["limits_set", "ops", "limits: requests=1/second"]);
}

#[tokio::test]
async fn wrong_input_is_refused() {
    let operator = Operator::new().await;
    let check = async |words: &str, status, expect: &[&str]| operator.fails(words, status, expect).await;
    check("limits set --resource gpt-4 requests=600", 2, &["requests=600", "NAME=TOKENS/PERIOD"]).await;
    check("limits set --resource gpt-4 requests=0/minute", 2, &["requests", "0 tokens"]).await;
    check("limits set --resource gpt-4 a=1/day a=2/day", 1, &["\"a\"", "twice"]).await;
    check("limits set --resource gpt-4", 2, &["LIMIT"]).await;
    check("limits set requests=600/minute", 2, &["--entity", "--resource", "--system"]).await;
    check("limits set --system --entity a requests=1/day", 2, &["cannot be used with"]).await;
    check("limits get --entity a#b", 1, &["\"a#b\"", "entity"]).await;
    check("entity create a --parent a", 1, &["\"a\"", "own parent"]).await;
    check("entity create a --metadata b", 2, &["\"b\" is not NAME=VALUE"]).await;
    check("entity get nobody", 1, &["\"nobody\" was not created"]).await;
    check("usage", 2, &["ENTITY"]).await;
    check("usage key-1 --from yesterday", 2, &["\"yesterday\"", "2026-01-01"]).await;
    check("usage key-1 --window weekly", 2, &["\"weekly\"", "hourly"]).await;
    check("bucket show key-1 gpt-4", 1, &["key-1", "gpt-4", "nothing was acquired yet"]).await;
    check("disable", 2, &["--entity", "--resource"]).await;
    check("limits list --namespace other", 1, &["\"other\"", "\"limits\"", "tidegate namespace register other"]).await;
    let (said, code) = run(&[], "limits list", &[]).await;
    assert!(code == Some(2) && said.contains("--table") && said.contains("TIDEGATE_TABLE"), "{code:?} {said}");
}

#[tokio::test]
async fn a_missing_table_is_named() {
    let operator = Operator::new().await;
    let endpoint = ["--endpoint", &operator.services.endpoint];
    for words in ["limits list", "usage key-1", "bucket show a b", "entity get a", "namespace register a"] {
        let (said, code) = run(&["--table", "no-such-table"], words, &endpoint).await;
        assert_eq!(code, Some(1), "{said}");
        has(&said, &["error: table \"no-such-table\" does not exist", "--table", "AWS_REGION"]);
    }
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    let refusal = json!({
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "Message": "User: ops is not authorized to perform: dynamodb:GetItem on resource: limits",
    });
    let answer = async move || (StatusCode::BAD_REQUEST, refusal.to_string());
    let server = LoopbackServer::start("no permission", Router::new().route("/", post(answer))).await.unwrap();
    let endpoint = format!("http://{}", server.address());
    let (said, code) = run(&["--table", "limits"], "limits list", &["--endpoint", &endpoint]).await;
    assert_eq!(code, Some(1), "{said}");
    has(&said, &["error: table \"limits\"", "do not allow", "dynamodb:GetItem"]);
}

#[tokio::test]
async fn entities_are_created_disabled_and_deleted() {
    let operator = Operator::new().await;
    operator.succeeds("limits set --resource gpt-4 requests=600/minute").await;
    let created =
        operator.json("entity create key-1 --name Production --parent team-1 --cascade --metadata owner=ops").await;
    assert_eq!((&created["name"], &created["cascade"]), (&json!("Production"), &json!(true)));
    operator.fails("entity create key-1", 1, &["\"key-1\" exists already"]).await;
    assert_eq!(operator.json("entity get key-1").await, created);
    assert_eq!(operator.json("entity children team-1").await, json!([created]));
    has(&operator.succeeds("entity children team-1").await, &["key-1", "Production", "team-1", "yes", "owner=ops"]);
    has(&operator.succeeds("entity children key-1").await, &["no children"]);

    let limiter = operator.limiter().await;
    let is_refused = async || limiter.acquire("key-2", "gpt-4").take("requests", 1).await.is_err();
    assert!(!is_refused().await);
    has(&operator.succeeds("disable --entity key-2 --resource gpt-4").await, &["is disabled", "1 bucket item changed"]);
    assert!(is_refused().await);
    has(&operator.succeeds("bucket show key-2 gpt-4").await, &["disabled"]);
    operator.succeeds("enable --entity key-2 --resource gpt-4").await;
    assert!(!is_refused().await);
    operator.succeeds("disable --resource gpt-4").await;
    assert!(!is_refused().await, "the entity is an exception");
    operator.succeeds("inherit --entity key-2 --resource gpt-4").await;
    assert!(is_refused().await);
    has(&operator.succeeds("entity delete key-1").await, &["\"key-1\"", "items deleted"]);
    operator.fails("entity get key-1", 1, &["was not created"]).await;
}

#[tokio::test]
async fn a_bucket_is_shown_by_shard() {
    let operator = Operator::new().await;
    operator.succeeds("limits set --entity key-1 --resource gpt-4 requests=100/day").await;
    let limiter = operator.limiter().await;
    let _lease = limiter.acquire("key-1", "gpt-4").take("requests", 60).await.unwrap();
    let said = operator.succeeds("bucket show key-1 gpt-4").await;
    has(&said, &["shard", "holds", "full in", "0", "requests", "40", "100", "14 h", "never", "wcu"]);
    let shown = operator.json("bucket show key-1 gpt-4").await;
    let requests = &shown["total"]["requests"];
    assert_eq!(requests["capacity_millitokens"], 100_000);
    assert!(requests["available_millitokens"].as_i64().is_some_and(|held| (40_000..40_100).contains(&held)), "{shown}");
    let wait = requests["full_in_seconds"].as_f64().unwrap();
    assert!((51_700.0..=51_840.0).contains(&wait), "{shown}");

    // A second shard is announced, and is not created yet.
    let namespace =
        Namespaces::new(operator.services.dynamodb.clone(), "limits").find("default").await.unwrap().unwrap();
    let update = operator.services.dynamodb.update_item().table_name("limits");
    let update = update.key("PK", text(format!("{namespace}/BUCKET#key-1#gpt-4#0"))).key("SK", text("#STATE"));
    let update =
        update.update_expression("SET shard_count = :two, #ttl = :past").expression_attribute_names("#ttl", "ttl");
    let update = update.expression_attribute_values(":two", number(2)).expression_attribute_values(":past", number(1));
    update.send().await.unwrap();
    let said = operator.succeeds("bucket show key-1 gpt-4").await;
    has(&said, &["0", "requests", "1970-01-01T00:00:01Z", "expired", "1", "not created yet", "all", "requests"]);
    assert_eq!(operator.json("bucket show key-1 gpt-4").await["shards"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn usage_is_added_up() {
    let operator = Operator::new().await;
    let namespaces = Namespaces::new(operator.services.dynamodb.clone(), "limits");
    let namespace = namespaces.register("default", EpochMillis::EPOCH).await.unwrap();
    for day in 1..=3 {
        let start = format!("2026-01-0{day}T00:00:00Z");
        let item = [
            ("PK", text(format!("{namespace}/ENTITY#key-1"))),
            ("SK", text(format!("#USAGE#gpt-4#{start}#daily"))),
            ("GSI2PK", text(format!("{namespace}/RESOURCE#gpt-4"))),
            ("GSI2SK", text(format!("USAGE#{start}#key-1"))),
            ("entity_id", text("key-1")),
            ("resource", text("gpt-4")),
            ("window", text("daily")),
            ("window_start", text(start)),
            ("total_events", number(day)),
            ("tokens", number(100 * day)),
        ];
        let item = item.map(|(name, value)| (name.to_owned(), value)).into();
        operator.services.dynamodb.put_item().table_name("limits").set_item(Some(item)).send().await.unwrap();
    }
    let said = operator.succeeds("usage key-1").await;
    has(&said, &["start", "tokens", "2026-01-01T00:00:00Z", "key-1", "gpt-4", "1", "100", "total", "6", "600"]);
    let some = operator.json("usage key-1 --resource gpt-4 --from 2026-01-02 --to 2026-01-03T00:00:00Z").await;
    assert_eq!(some["total"], json!({"events": 2, "tokens": {"tokens": 200}, "overdrawn": {}}));
    assert_eq!(some["snapshots"][0]["start"], "2026-01-02T00:00:00Z");
    assert_eq!(operator.json("usage --resource gpt-4").await["total"]["events"], 6);
    has(&operator.succeeds("usage key-1 --window hourly").await, &["no hourly usage is recorded"]);
}

#[tokio::test]
async fn shells_can_complete_the_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (said, code) = run(&[], &format!("completions {shell}"), &[]).await;
        assert!(code == Some(0) && said.contains("tidegate") && said.contains("limits"), "{said}");
    }
}
