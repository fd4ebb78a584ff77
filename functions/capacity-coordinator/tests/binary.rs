//! The binary as Lambda runs it: a process with an environment, on the Runtime API.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use aws_sdk_dynamodb::types::{
    AttributeDefinition, KeySchemaElement, KeyType, ProvisionedThroughput, ScalarAttributeType,
};
use serde_json::{Value, json};
use tidegate_aws::table;
use tidegate_domain::throttle::CapacityKind::Write;
use tidegate_sandbox::{
    capacity::EmbeddedCapacity,
    process::{Binary, Process},
    runtime_api::RuntimeApi,
};

const BINARY: Binary = Binary { name: "capacity-coordinator", path: env!("CARGO_BIN_EXE_capacity-coordinator") };

const REQUIRED: [(&str, &str); 2] = [("STATE_TABLE", "announcements"), ("TABLES", "orders")];
const TABLE: &str = "table/orders";

/// The function with a state table, and a table `orders` whose 30,000 units are enough for its payloads.
async fn start(services: &EmbeddedCapacity, variables: &[(&str, &str)]) -> Process {
    let endpoint = services.endpoint();
    let endpoints =
        [("AWS_ENDPOINT_URL_APPLICATION_AUTO_SCALING", endpoint), ("AWS_ENDPOINT_URL_CLOUDWATCH", endpoint)];
    let variables: Vec<_> = variables.iter().copied().chain(REQUIRED).chain(endpoints).collect();
    let function = BINARY.start(RuntimeApi::start().await.unwrap(), &variables).await.unwrap();
    let client = &function.services.dynamodb;
    table::create_announcements(client, "announcements").await.unwrap();
    let throughput = ProvisionedThroughput::builder().read_capacity_units(100).write_capacity_units(30_000);
    let attribute = AttributeDefinition::builder().attribute_name("id").attribute_type(ScalarAttributeType::S);
    let create = client.create_table().table_name("orders").attribute_definitions(attribute.build().unwrap());
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash).build().unwrap();
    create.key_schema(key).provisioned_throughput(throughput.build().unwrap()).send().await.unwrap();
    let account = services.account();
    account.create_provisioned("orders", 100, 30_000);
    account.register(TABLE, Write, 5, 40_000).unwrap();
    account.put_policy(TABLE, Write, 50.0).unwrap();
    account.consumes(TABLE, Write, 1_000.0);
    function
}

fn event(name: &str) -> Value {
    BINARY.payload(name).unwrap()
}

#[tokio::test]
async fn an_announcement_is_answered_listed_and_released() {
    let services = EmbeddedCapacity::start().await.unwrap();
    let mut function = start(&services, &[]).await;
    let (_, answer) = function.invoke(&event("announce.json")).await.unwrap();
    assert_eq!((&answer["id"], &answer["ready"]), (&json!("load-42"), &json!(true)), "{answer}");
    assert_eq!(services.account().minimum(TABLE, Write), Some(10_000));
    let (_, listed) = function.invoke(&event("list.json")).await.unwrap();
    assert_eq!(listed["announcements"][0]["until"], answer["until"]);
    let (_, status) = function.invoke(&event("status.json")).await.unwrap();
    assert_eq!((&status["minimum"], &status["owner_minimum"]), (&json!(10_000), &json!(5)), "{status}");
    function.check(&event("release.json"), json!({"id": "load-42", "released": true})).await;
    assert_eq!(services.account().minimum(TABLE, Write), Some(5));
    function.invoke(&event("restore.json")).await.unwrap();

    let log = function.log().await.unwrap();
    let line = |kind: &str| log.iter().find(|line| line["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {log:#?}"));
    let announced = line("announce");
    assert_eq!((&announced["Announced"], &announced["Raised"]), (&json!(1), &json!(1)), "{announced:#}");
    assert!(announced["SecondsToReady"].is_number(), "{announced:#}");
    assert_eq!((&line("release")["Restored"], &line("restore")["Succeeded"]), (&json!(1), &json!(1)));
}

/// EventBridge Scheduler passes its input as it is.
#[tokio::test]
async fn a_schedule_announces() {
    let services = EmbeddedCapacity::start().await.unwrap();
    let mut function = start(&services, &[]).await;
    let (_, answer) = function.invoke(&event("scheduled-event.json")).await.unwrap();
    assert_eq!((&answer["ready"], services.account().minimum(TABLE, Write)), (&json!(true), Some(10_000)), "{answer}");
}

#[tokio::test]
async fn the_process_survives_a_wrong_request() {
    let services = EmbeddedCapacity::start().await.unwrap();
    let mut function = start(&services, &[]).await;
    function.check_failure(&event("unknown-action.json"), &["action is \"reserve\""]).await;
    function.check_failure(&event("unknown-key.json"), &["unknown field `unit`"]).await;
    function.check_failure(&event("announce-on-demand-warm.json"), &["ALLOW_WARM"]).await;
    function.check_failure(&event("announce-index.json"), &["no global secondary index \"by-date\""]).await;
    function.check_failure(&json!(7), &["the event is 7"]).await;
    assert!(function.invoke(&event("announce.json")).await.is_ok());
}

#[tokio::test]
async fn a_wrong_environment_is_refused() {
    BINARY.check_refusal(&REQUIRED[..1], &["TABLES is not set"]).await;
    BINARY.check_refusal(&REQUIRED[1..], &["STATE_TABLE is not set"]).await;
    let variables = [REQUIRED[0], REQUIRED[1], ("MAX_SECONDS", "1h")];
    BINARY.check_refusal(&variables, &["MAX_SECONDS", "\"1h\""]).await;
}
