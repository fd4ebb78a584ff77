//! `tidegate tokens limits apply`, as a process with an environment.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod apply;
mod faults;
mod input;
mod python;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::{
    schema::tokens::{ACCOUNT_ID, LIMIT, RESOURCE_NAME, SERVICE_NAME, WINDOW_SEC},
    table,
    token_tables::TokenTables,
};
use tidegate_sandbox::{
    gateway::Gateway,
    item::{Item, number, text},
    services::Services,
};
use tokio::process::Command;

/// The base name of the tables.
const BASE: &str = "prod";

/// The token tables, and the command's environment.
struct Operator {
    services: Services,
    gateway: Gateway,
    limits: String,
}

/// What the command printed, and its exit code.
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}{}", self.out, self.err))
    }

    /// Each row as `account resource`, with its status.
    fn statuses(&self) -> BTreeMap<String, String> {
        let rows = self.json()["rows"].as_array().cloned().unwrap();
        let word = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        rows.iter()
            .map(|row| (format!("{} {}", word(row, "account"), word(row, "resource")), word(row, "status")))
            .collect()
    }

    fn counts(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.json()["counts"].clone()
    }
}

impl Operator {
    async fn new() -> Self {
        let services = Services::embedded(None, "buckets").await.unwrap();
        let tables = TokenTables::of(BASE);
        table::create_token_tables(&services.dynamodb, &tables).await.unwrap();
        let gateway = Gateway::start(&services.endpoint).await.unwrap();
        Self { services, gateway, limits: tables.limits }
    }

    /// The command that applies a file, with these further words.
    fn command(&self, file: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .env_clear()
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("LIMITER_TABLES_BASE_NAME", BASE)
            .args(["tokens", "limits", "apply", file, "--endpoint", &self.gateway.endpoint()])
            .args(words.split_whitespace());
        command
    }

    async fn run(&self, file: &str, words: &str) -> Said {
        run(self.command(file, words)).await
    }

    /// Applies limits, and prints JSON.
    async fn apply(&self, limits: Value, words: &str) -> Said {
        self.run(&json_file(&json!({"limits": limits})), &format!("{words} --json")).await
    }

    /// Writes a row as rate-limiter-py does, with another attribute.
    async fn put(&self, account: &str, resource: &str, limit: i64, service: &str) {
        self.put_with(
            account,
            resource,
            &[(LIMIT, number(limit)), (WINDOW_SEC, number(0)), (SERVICE_NAME, text(service))],
        )
        .await;
    }

    async fn put_with(&self, account: &str, resource: &str, attributes: &[(&str, AttributeValue)]) {
        let key = [(RESOURCE_NAME, text(resource)), (ACCOUNT_ID, text(account)), ("note", text("ours"))];
        let item: Item =
            key.into_iter().chain(attributes.iter().cloned()).map(|(name, value)| (name.to_owned(), value)).collect();
        self.services.dynamodb.put_item().table_name(&self.limits).set_item(Some(item)).send().await.unwrap();
    }

    /// Each row as `account resource`, with its other attributes in the order of their names.
    async fn table(&self) -> BTreeMap<String, String> {
        let scan = self.services.dynamodb.scan().table_name(&self.limits).into_paginator().items().send();
        let items: Vec<Item> = scan.try_collect().await.unwrap();
        items.into_iter().map(shown).collect()
    }
}

fn shown(mut item: Item) -> (String, String) {
    let [account, resource] = [ACCOUNT_ID, RESOURCE_NAME].map(|name| item.remove(name).unwrap());
    let attributes: BTreeMap<_, _> = item.into_iter().collect();
    let attributes: Vec<_> = attributes
        .iter()
        .map(|(name, value)| match value {
            AttributeValue::N(text) => format!("{name}={text}"),
            AttributeValue::S(text) => format!("{name}={text:?}"),
            other => format!("{name}={other:?}"),
        })
        .collect();
    (format!("{} {}", account.as_s().unwrap(), resource.as_s().unwrap()), attributes.join(" "))
}

async fn run(mut command: Command) -> Said {
    let output = command.output().await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Said { out, err, code: output.status.code() }
}

/// A new file with this content. The test directory is deleted with the build.
fn file(extension: &str, content: &str) -> String {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limits");
    fs::create_dir_all(&folder).unwrap();
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{}-{number}.{extension}", std::process::id()));
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

fn json_file(content: &Value) -> String {
    file("json", &content.to_string())
}

fn entry(account: &str, resource: &str, limit: i64) -> Value {
    json!({"accountId": account, "resourceName": resource, "limit": limit})
}

/// Pairs of texts, as a map.
fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Whether a text has these parts, in this order.
fn has(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in its place:\n{said}"));
        rest = &rest[at + part.len()..];
    }
}
