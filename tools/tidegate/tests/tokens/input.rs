//! Wrong files, options and names.

use super::*;

async fn fails(operator: &Operator, file: &str, words: &str, status: i32, expect: &[&str]) {
    let said = operator.run(file, words).await;
    assert_eq!(said.code, Some(status), "{}{}", said.out, said.err);
    assert_eq!(said.out, "");
    has(&said.err, expect);
}

#[tokio::test]
async fn wrong_files_are_refused() {
    let operator = Operator::new().await;
    let of = |limit: Value| {
        let mut entries = vec![entry("1", "emr", 1), entry("2", "emr", 1), entry("3", "emr", 1), entry("4", "emr", 1)];
        entries[3]["limit"] = limit;
        json_file(&json!({"limits": entries}))
    };
    let text = of(json!("10"));
    fails(&operator, &text, "", 1, &["error: ", &text, "limits[3].limit: expected a whole number from 0, got \"10\""])
        .await;
    let broken = file("json", "{\"limits\": [\n  {\"accountId\": }\n]}");
    fails(&operator, &broken, "", 1, &[&broken, "line 2 column 17"]).await;
    let broken = file("toml", "[[limits]]\naccountId = 1 2\n");
    fails(&operator, &broken, "", 1, &[&broken, "line 2, column 13"]).await;
    fails(&operator, "no-such-file.json", "", 1, &["no-such-file.json", "No such file"]).await;
    let named = json_file(&json!({"service": "a", "limits": []}));
    fails(&operator, &named, "--service b", 1, &["--service is \"b\"", "\"service\" is \"a\""]).await;
    fails(&operator, &named, "--service=", 2, &["--service"]).await;
    assert_eq!(operator.run(&named, "--service a").await.code, Some(0));
    assert_eq!(operator.table().await, map([]));
}

#[tokio::test]
async fn warnings_are_no_errors() {
    let operator = Operator::new().await;
    let entry = json!({"accountId": "1", "resourceName": "emr:x", "limit": 1, "windowsec": 60});
    let said = operator.apply(json!([&entry]), "").await;
    assert_eq!(said.counts(), json!({"created": 1, "unchanged": 0}));
    has(
        &said.err,
        &["warning: limits[0].windowsec is ignored", "windowSec", "warning: resourceName \"emr:x\" has a colon"],
    );
    assert_eq!(operator.table().await, map([("1 emr:x", "limit=1 windowSec=0")]));
    operator.apply(json!([{"accountId": "1", "resourceName": "emr:x", "limit": 1, "windowSec": 60}]), "").await;
    let said = operator.apply(json!([entry]), "").await;
    has(&said.err, &["warning: account \"1\" on resource \"emr:x\" loses its window"]);
}

#[tokio::test]
async fn the_bucket_table_is_no_token_table() {
    let operator = Operator::new().await;
    let file = json_file(&json!({"limits": [entry("1", "emr", 1)]}));
    fails(&operator, &file, "--table staging-limits", 2, &["--table is the bucket table", "--base"]).await;
    let mut command = operator.command(&file, "");
    command.env("TIDEGATE_TABLE", "buckets");
    assert_eq!(run(command).await.code, Some(0));
}

#[tokio::test]
async fn only_the_names_that_are_needed_must_be_set() {
    let operator = Operator::new().await;
    let file = json_file(&json!({"limits": [entry("1", "emr", 1)]}));
    let with = async |words: &str, variables: &[(&str, &str)]| {
        let mut command = operator.command(&file, words);
        command.env_remove("LIMITER_TABLES_BASE_NAME").envs(variables.iter().copied());
        run(command).await
    };
    let said = with("", &[]).await;
    assert_eq!(said.code, Some(2));
    has(&said.err, &["LIMIT_TABLE", "LIMITER_TABLES_BASE_NAME", "--base"]);
    let table = ("LIMIT_TABLE", "prod-limits");
    assert_eq!(with("", &[table]).await.code, Some(0));
    let said = with("--service s", &[table]).await;
    assert_eq!(said.code, Some(1));
    has(&said.err, &["LIMIT_SERVICE_INDEX", "--base"]);
    let index = ("LIMIT_SERVICE_INDEX", "prod-limits-service-index");
    assert_eq!(with("--service s", &[table, index]).await.code, Some(0));
    // The option is more specific than the variables, and needs no bucket table.
    assert_eq!(with("--service s --base prod", &[("LIMIT_TABLE", "no-such-table")]).await.code, Some(0));
}

#[tokio::test]
async fn a_missing_table_or_index_is_named() {
    let operator = Operator::new().await;
    let file = json_file(&json!({"limits": [entry("1", "emr", 1)]}));
    let table =
        ["error: table \"test-limits\" does not exist", "--base, LIMIT_TABLE, LIMITER_TABLES_BASE_NAME", "AWS_REGION"];
    fails(&operator, &file, "--base test", 1, &table).await;
    fails(&operator, &file, "--base test --service s", 1, &table).await;
    let mut command = operator.command(&file, "--service s");
    command.env("LIMIT_SERVICE_INDEX", "no-such-index");
    let said = run(command).await;
    assert_eq!(said.code, Some(1));
    has(
        &said.err,
        &["error: index \"no-such-index\" of table \"prod-limits\"", "LIMIT_SERVICE_INDEX", "specified index"],
    );
}

#[tokio::test]
async fn the_help_states_the_semantics() {
    let operator = Operator::new().await;
    let said = operator.run("limits.json", "--help").await;
    assert_eq!(said.code, Some(0));
    has(&said.out, &["--prune", "LimitLoader", "A missing windowSec is 0", "conflict", "LIMIT_SERVICE_INDEX"]);
}
