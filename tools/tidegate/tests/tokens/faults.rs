//! Other writers, lost responses and calls that fail.

use axum::http::StatusCode;
use tidegate_aws::token_limits::{TokenLimits, WriteOutcome};
use tidegate_domain::token_limits::{LimitKey, LimitRow};
use tidegate_sandbox::gateway::{Conditions, HeldCall};
use tokio::{
    sync::mpsc,
    time::{Duration, timeout},
};

use super::*;

fn error(kind: &str, message: &str) -> (StatusCode, Value) {
    (StatusCode::BAD_REQUEST, json!({"__type": format!("com.amazon.coral.service#{kind}"), "Message": message}))
}

fn refusal() -> (StatusCode, Value) {
    error("AccessDeniedException", "User: ops is not authorized to perform: dynamodb:UpdateItem")
}

/// The next calls that are held. They come soon, or the command has ended without them.
async fn calls(held: &mut mpsc::UnboundedReceiver<HeldCall>, count: usize) -> Vec<HeldCall> {
    let mut calls = Vec::new();
    while calls.len() < count {
        let call = timeout(Duration::from_secs(30), held.recv()).await;
        calls.push(call.expect("no further call comes").unwrap());
    }
    calls
}

#[tokio::test]
async fn a_row_of_another_writer_is_a_conflict() {
    let operator = Operator::new().await;
    operator.put("1", "emr", 10, "s").await;
    operator.put("2", "emr", 10, "s").await;
    operator.put_with("4", "emr", &[(LIMIT, number(10))]).await;
    let limits: Vec<_> = ["1", "2", "3", "4"].map(|account| entry(account, "emr", 20)).into();
    let limits = json!(limits);
    let mut held = operator.gateway.hold("UpdateItem");
    let applying = operator.apply(limits.clone(), "--service s");
    let writing = async {
        let calls = calls(&mut held, 4).await;
        operator.put("1", "emr", 11, "s").await;
        operator.put("3", "emr", 12, "other").await;
        operator.put_with("4", "emr", &[(LIMIT, number(10)), (WINDOW_SEC, number(5))]).await;
        drop(calls);
    };
    let (said, ()) = tokio::join!(applying, writing);
    assert_eq!(said.code, Some(1));
    has(&said.err, &["another writer has changed 3 rows", "run the same command again"]);
    let statuses = [("1 emr", "conflict"), ("2 emr", "changed"), ("3 emr", "conflict"), ("4 emr", "conflict")];
    assert_eq!(said.statuses(), map(statuses));
    let expect = map([
        ("1 emr", "limit=11 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("2 emr", "limit=20 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("3 emr", "limit=12 note=\"ours\" serviceName=\"other\" windowSec=0"),
        ("4 emr", "limit=10 note=\"ours\" windowSec=5"),
    ]);
    assert_eq!(operator.table().await, expect);

    drop(held);
    let said = operator.apply(limits, "--service s").await;
    assert_eq!(said.counts(), json!({"changed": 3, "unchanged": 1}));
}

#[tokio::test]
async fn a_row_that_changes_is_not_pruned() {
    let operator = Operator::new().await;
    for account in ["1", "2", "3", "4"] {
        operator.put(account, "emr", 10, "s").await;
    }
    let mut held = operator.gateway.hold("DeleteItem");
    let applying = operator.apply(json!([]), "--service s --prune");
    let writing = async {
        let calls = calls(&mut held, 4).await;
        operator.put("1", "emr", 10, "other").await;
        operator.put("2", "emr", 11, "s").await;
        let key = [(RESOURCE_NAME, text("emr")), (ACCOUNT_ID, text("3"))].map(|(name, value)| (name.to_owned(), value));
        let delete = operator.services.dynamodb.delete_item().table_name(&operator.limits);
        delete.set_key(Some(key.into())).send().await.unwrap();
        drop(calls);
    };
    let (said, ()) = tokio::join!(applying, writing);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let statuses = map([("1 emr", "conflict"), ("2 emr", "conflict"), ("3 emr", "deleted"), ("4 emr", "deleted")]);
    assert_eq!(said.statuses(), statuses);
    assert_eq!(operator.table().await.into_keys().collect::<Vec<_>>(), ["1 emr", "2 emr"]);
}

#[tokio::test]
async fn a_failed_call_leaves_the_others_reported() {
    let operator = Operator::new().await;
    let limits = json!([entry("1", "emr", 1), entry("2", "emr", 2), entry("3", "emr", 3)]);
    let mut held = operator.gateway.hold("UpdateItem");
    let answering = async {
        let mut calls = calls(&mut held, 3).await;
        calls.remove(0).send(refusal()).unwrap();
    };
    let (said, ()) = tokio::join!(operator.apply(limits, "--service s"), answering);
    assert_eq!(said.code, Some(1));
    has(&said.err, &["error: table \"prod-limits\"", "do not allow", "run the same command again", "UpdateItem"]);
    let statuses = said.statuses();
    let created: Vec<_> = statuses.iter().filter(|(_, status)| *status == "created").map(|(key, _)| key).collect();
    assert_eq!(said.json()["counts"], json!({"created": 2, "failed": 1, "unchanged": 0}));
    assert_eq!(operator.table().await.keys().collect::<Vec<_>>(), created);
}

#[tokio::test]
async fn no_write_starts_after_a_failure() {
    let operator = Operator::new().await;
    let limits: Vec<_> = (0..20).map(|account| entry(&account.to_string(), "emr", 1)).collect();
    let mut held = operator.gateway.hold("UpdateItem");
    let answering = async move {
        let calls = calls(&mut held, 8).await;
        // Further calls are not held.
        drop(held);
        for call in calls {
            call.send(refusal()).unwrap();
        }
    };
    let (said, ()) = tokio::join!(operator.apply(json!(limits), ""), answering);
    assert_eq!(said.code, Some(1));
    assert_eq!(said.json()["counts"], json!({"failed": 8, "not tried": 12, "unchanged": 0}));
    assert_eq!(operator.table().await, map([]));
}

#[tokio::test]
async fn a_lost_response_is_no_conflict() {
    let operator = Operator::new().await;
    operator.put("1", "emr", 10, "s").await;
    operator.gateway.set(Conditions { lose_every: 1, ..Conditions::default() });
    operator.gateway.take_usage();
    let said = operator.apply(json!([entry("1", "emr", 20)]), "--service s").await;
    assert_eq!(said.counts(), json!({"changed": 1, "unchanged": 0}));
    let usage = operator.gateway.take_usage();
    assert_eq!((usage.lost_responses, usage.calls["UpdateItem"]), (1, 2));

    // The same for a deletion, which the gateway does not lose.
    let (store, key) = (store(&operator), key("1"));
    let seen = store.rows(&[key.clone()].into()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(store.delete(&key, &seen).await.unwrap(), WriteOutcome::Written);
    }
    assert_eq!(operator.table().await, map([]));
}

#[tokio::test]
async fn a_deleted_row_is_not_created_again() {
    let operator = Operator::new().await;
    operator.put_with("1", "emr", &[]).await;
    let (store, key) = (store(&operator), key("1"));
    let seen = store.rows(&[key.clone()].into()).await.unwrap();
    store.delete(&key, &seen).await.unwrap();
    let row = LimitRow { limit: Some(30), window_seconds: Some(0), service: None };
    assert_eq!(store.set(&key, &seen, &row).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(operator.table().await, map([]));
}

#[tokio::test]
async fn a_transaction_is_no_conflict() {
    let operator = Operator::new().await;
    operator.put("2", "emr", 10, "s").await;
    for operation in ["UpdateItem", "DeleteItem"] {
        let mut held = operator.gateway.hold(operation);
        let answering = async {
            let call = calls(&mut held, 1).await.remove(0);
            call.send(error("TransactionConflictException", "Transaction is ongoing for the item")).unwrap();
            drop(calls(&mut held, 1).await);
        };
        let words = if operation == "UpdateItem" { "--service s" } else { "--service s --prune" };
        let (said, ()) = tokio::join!(operator.apply(json!([entry("1", "emr", 20)]), words), answering);
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    assert_eq!(operator.table().await, map([("1 emr", "limit=20 serviceName=\"s\" windowSec=0")]));
}

fn store(operator: &Operator) -> TokenLimits {
    TokenLimits::new(operator.services.dynamodb.clone(), &operator.limits)
}

fn key(account: &str) -> LimitKey {
    LimitKey { resource: "emr".to_owned(), account: account.to_owned() }
}
