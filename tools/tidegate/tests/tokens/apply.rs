//! The limits of the file are in the table.

use super::*;

#[tokio::test]
async fn rows_become_as_in_the_file() {
    let operator = Operator::new().await;
    operator.put("1", "emr", 10, "s").await;
    operator.put("2", "emr", 10, "s").await;
    operator.put("3", "emr", 10, "other").await;
    operator.put("5", "emr", 10, "s").await;
    operator.put("6", "emr", 10, "other").await;
    let limits = json!([
        entry("1", "emr", 10),
        {"accountId": "2", "resourceName": "emr", "limit": 20, "windowSec": 60},
        entry("3", "emr", 10),
        entry("4", "emr", 0),
    ]);
    let said = operator.run(&json_file(&json!({"limits": limits})), "--service s").await;
    let warning = "warning: account \"3\" on resource \"emr\" moves from service \"other\" to \"s\"\n";
    assert_eq!((said.code, said.err.as_str()), (Some(0), warning), "{}", said.out);
    has(&said.out, &["status", "resource", "account", "limit", "window (s)", "service"]);
    has(&said.out, &["changed", "2", "10 -> 20", "0 -> 60", "s", "changed", "3", "10", "0", "other -> s"]);
    has(&said.out, &["created", "4", "0", "0", "s", "left", "5", "10", "0", "s"]);
    has(&said.out, &["\ntable \"prod-limits\": 1 created, 2 changed, 1 left, 1 unchanged\n"]);
    let expect = map([
        ("1 emr", "limit=10 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("2 emr", "limit=20 note=\"ours\" serviceName=\"s\" windowSec=60"),
        ("3 emr", "limit=10 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("4 emr", "limit=0 serviceName=\"s\" windowSec=0"),
        ("5 emr", "limit=10 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("6 emr", "limit=10 note=\"ours\" serviceName=\"other\" windowSec=0"),
    ]);
    assert_eq!(operator.table().await, expect);

    operator.gateway.take_usage();
    assert_eq!(operator.apply(limits, "--service s").await.counts(), json!({"left": 1, "unchanged": 4}));
    let calls: Vec<_> = operator.gateway.take_usage().calls.into_keys().collect();
    assert_eq!(calls, ["BatchGetItem", "Query"], "equal rows are not written");
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let operator = Operator::new().await;
    operator.put("1", "emr", 10, "s").await;
    operator.put("2", "emr", 10, "s").await;
    let before = operator.table().await;
    let limits = json!([entry("1", "emr", 20), entry("3", "emr", 5)]);
    let said = operator.apply(limits.clone(), "--service s --prune --dry-run").await;
    assert_eq!(said.statuses(), map([("1 emr", "change"), ("2 emr", "delete"), ("3 emr", "create")]));
    assert_eq!(said.counts(), json!({"create": 1, "change": 1, "delete": 1, "unchanged": 0}));
    assert_eq!(said.json()["dry_run"], true);
    assert_eq!(operator.table().await, before);
    let expect = json!({
        "resource": "emr", "account": "1", "status": "change",
        "before": {"limit": 10, "window_seconds": 0, "service": "s"},
        "after": {"limit": 20, "window_seconds": 0, "service": "s"},
    });
    assert_eq!(said.json()["rows"][0], expect);
    assert_eq!(said.json()["rows"][1]["after"], Value::Null);
    let file = json_file(&json!({"limits": limits}));
    let said = operator.run(&file, "--service s --prune --dry-run").await;
    has(
        &said.out,
        &["change", "delete", "create", "dry run of table \"prod-limits\": 1 create, 1 change, 1 delete, 0 unchanged"],
    );
    let said = operator.apply(limits, "--service s --prune").await;
    assert_eq!(said.counts(), json!({"created": 1, "changed": 1, "deleted": 1, "unchanged": 0}));
    assert_eq!(said.json()["dry_run"], false);
}

#[tokio::test]
async fn only_prune_deletes() {
    let operator = Operator::new().await;
    for (account, service) in [("1", "s"), ("2", "s"), ("3", "other")] {
        operator.put(account, "emr", 10, service).await;
    }
    let before = operator.table().await;
    assert_eq!(operator.apply(json!([]), "--service s").await.counts(), json!({"left": 2, "unchanged": 0}));
    assert_eq!(operator.table().await, before);
    let said = operator.apply(json!([entry("2", "emr", 10)]), "--service s --prune").await;
    assert_eq!(said.statuses(), map([("1 emr", "deleted")]));
    assert_eq!(operator.table().await.keys().collect::<Vec<_>>(), ["2 emr", "3 emr"]);
    let said = operator.apply(json!([]), "--service s --prune").await;
    assert_eq!(said.counts(), json!({"deleted": 1, "unchanged": 0}));
    assert_eq!(operator.table().await.keys().collect::<Vec<_>>(), ["3 emr"]);
    let said = operator.apply(json!([]), "--service s --prune").await;
    assert_eq!(said.counts(), json!({"unchanged": 0}));
}

#[tokio::test]
async fn without_a_service_rows_keep_theirs() {
    let operator = Operator::new().await;
    operator.put("1", "emr", 10, "s").await;
    operator.put("2", "emr", 10, "s").await;
    let said = operator.apply(json!([entry("1", "emr", 20), entry("3", "emr", 30)]), "").await;
    assert_eq!(said.statuses(), map([("1 emr", "changed"), ("3 emr", "created")]));
    let expect = map([
        ("1 emr", "limit=20 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("2 emr", "limit=10 note=\"ours\" serviceName=\"s\" windowSec=0"),
        ("3 emr", "limit=30 windowSec=0"),
    ]);
    assert_eq!(operator.table().await, expect);
    let said = operator.apply(json!([entry("1", "emr", 20)]), "--prune").await;
    assert_eq!(said.code, Some(1));
    has(&said.err, &["error: --prune", "--service NAME", "\"service\""]);
    assert_eq!(operator.table().await, expect);
}

#[tokio::test]
async fn values_that_cannot_be_read_are_replaced() {
    let operator = Operator::new().await;
    operator.put_with("1", "emr", &[(LIMIT, text("10")), (WINDOW_SEC, number(0))]).await;
    operator.put_with("2", "emr", &[(LIMIT, number(10))]).await;
    operator.put_with("3", "emr", &[]).await;
    let limits: Vec<_> = ["1", "2", "3"].map(|account| entry(account, "emr", 10)).into();
    let said = operator.apply(json!(limits), "--service s").await;
    assert_eq!(said.counts(), json!({"changed": 3, "unchanged": 0}));
    let row = "limit=10 note=\"ours\" serviceName=\"s\" windowSec=0";
    assert_eq!(operator.table().await, map([("1 emr", row), ("2 emr", row), ("3 emr", row)]));
}

#[tokio::test]
async fn a_toml_file_states_the_same() {
    let operator = Operator::new().await;
    let toml = "service = \"s\"\n\n[[limits]]\naccountId = \"1\"\nresourceName = \"emr\"\nlimit = 10\n\n\
                [[limits]]\naccountId = \"2\"\nresourceName = \"emr\"\nlimit = 20\nwindowSec = 60\n";
    let said = operator.run(&file("toml", toml), "--json").await;
    assert_eq!(said.counts(), json!({"created": 2, "unchanged": 0}));
    let limits =
        json!([entry("1", "emr", 10), {"accountId": "2", "resourceName": "emr", "limit": 20, "windowSec": 60}]);
    assert_eq!(operator.apply(limits, "--service s").await.counts(), json!({"unchanged": 2}));
}

#[tokio::test]
async fn all_pages_of_the_index_are_read() {
    const ROWS: usize = 15;
    let operator = Operator::new().await;
    let note = "x".repeat(100_000);
    for account in 0..ROWS {
        let attributes = [(LIMIT, number(1)), (SERVICE_NAME, text("s")), ("large", text(&note))];
        operator.put_with(&account.to_string(), "emr", &attributes).await;
    }
    operator.gateway.take_usage();
    let said = operator.apply(json!([entry("0", "glue", 1)]), "--service s --prune").await;
    assert_eq!(said.counts(), json!({"created": 1, "deleted": ROWS, "unchanged": 0}));
    assert!(operator.gateway.take_usage().calls["Query"] > 1, "the index has one page");
    assert_eq!(operator.table().await.into_keys().collect::<Vec<_>>(), ["0 glue"]);
}

#[tokio::test]
async fn many_rows_are_read_in_batches() {
    const ROWS: i64 = 205;
    let operator = Operator::new().await;
    let limits: Vec<_> = (0..ROWS).map(|account| entry(&account.to_string(), "emr", account)).collect();
    assert_eq!(operator.apply(json!(limits), "").await.counts(), json!({"created": ROWS, "unchanged": 0}));
    operator.gateway.take_usage();
    assert_eq!(operator.apply(json!(limits), "").await.counts(), json!({"unchanged": ROWS}));
    let usage = operator.gateway.take_usage();
    assert_eq!(usage.calls, [("BatchGetItem".to_owned(), 3)].into());
    // A row that is read consistently costs one unit, else half of one.
    assert_eq!(usage.read_units.to_string(), ROWS.to_string());
}
