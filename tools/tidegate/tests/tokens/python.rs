//! The real loader, rate-limiter-py 0.3.0, on the same table. It is skipped where Python does not have that library: see
//! `tidegate_sandbox::python`.

use tidegate_sandbox::python::{interpreter, python_at};

use super::*;

/// Loads a file for the service `s` with the real loader. `false` where there is none.
async fn load(operator: &Operator, file: &str) -> bool {
    let Some(python) = interpreter("limiter, boto3").await.unwrap() else { return false };
    let mut command = python_at(python, &operator.gateway.endpoint());
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/limit_loader.py"));
    command.args(["s", file]).env("LIMITER_TABLES_BASE_NAME", BASE);
    let said = run(command).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    true
}

fn limits() -> Value {
    json!([
        entry("1", "emr", 10),
        {"accountId": "2", "resourceName": "emr", "limit": 20, "windowSec": 60},
        entry("3", "glue", 0),
    ])
}

#[tokio::test]
async fn both_find_what_the_other_applied_unchanged() {
    let (ours, theirs) = (Operator::new().await, Operator::new().await);
    let file = json_file(&json!({"limits": limits()}));
    if !load(&theirs, &file).await {
        return;
    }
    assert_eq!(ours.apply(limits(), "--service s").await.counts(), json!({"created": 3, "unchanged": 0}));
    assert_eq!(ours.table().await, theirs.table().await);

    for operator in [&ours, &theirs] {
        operator.gateway.take_usage();
        assert_eq!(operator.apply(limits(), "--service s --prune").await.counts(), json!({"unchanged": 3}));
        assert!(load(operator, &file).await);
        let calls: Vec<_> = operator.gateway.take_usage().calls.into_iter().collect();
        assert_eq!(calls, [("BatchGetItem".to_owned(), 1), ("Query".to_owned(), 2)], "one of them has written");
    }
}

#[tokio::test]
async fn names_that_collide_for_the_loader_are_two_rows() {
    let operator = Operator::new().await;
    let limits = json!([entry("ab", "c", 1), entry("a", "bc", 1)]);
    let file = json_file(&json!({"limits": limits}));
    if !load(&operator, &file).await {
        return;
    }
    let row = "limit=1 serviceName=\"s\" windowSec=0";
    assert_eq!(operator.table().await, map([("a bc", row)]), "the loader keeps the last of the two");
    let said = operator.apply(limits.clone(), "--service s --prune").await;
    assert_eq!(said.statuses(), map([("ab c", "created")]));
    assert_eq!(operator.table().await, map([("a bc", row), ("ab c", row)]));
    // The loader finds one of them equal, and then takes the other one for a row that the file lacks.
    assert!(load(&operator, &file).await);
    assert_eq!(operator.table().await.len(), 1);
    assert_eq!(operator.apply(limits, "--service s --prune").await.counts(), json!({"created": 1, "unchanged": 1}));
}
