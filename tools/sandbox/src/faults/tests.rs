use std::future::Future;

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::{transact_write_items::TransactWriteItemsError, update_item::UpdateItemError},
    types::{AttributeValue, KeysAndAttributes, Put, TransactWriteItem},
};
use futures::{StreamExt, stream};
use tidegate_aws::{client, schema, table};

use super::*;
use crate::dynamodb::EmbeddedDynamoDb;

const TABLE: &str = "faults-buckets";

/// A table, and a client that meets no faults to look at it with.
struct Service {
    embedded: EmbeddedDynamoDb,
    direct: Client,
}

impl Service {
    async fn start() -> Self {
        let embedded = EmbeddedDynamoDb::start(None).await.unwrap();
        let direct = client::dynamodb(&sdk_config(embedded.endpoint(), FaultyHttp::undisturbed()));
        table::create(&direct, TABLE).await.unwrap();
        Self { embedded, direct }
    }

    fn faulty(&self, rates: FaultRates) -> (Client, FaultyHttp) {
        let http = FaultyHttp::new(rates, 7);
        (client::dynamodb(&sdk_config(self.embedded.endpoint(), http.clone())), http)
    }

    /// What the counter holds: how often 1 was added.
    async fn counter(&self) -> u64 {
        let item = self.direct.get_item().table_name(TABLE).set_key(Some(key())).send().await.unwrap();
        item.item.map_or(0, |item| item["n"].as_n().unwrap().parse().unwrap())
    }
}

fn key() -> std::collections::HashMap<String, AttributeValue> {
    [schema::PK, schema::SK].map(|name| (name.to_owned(), AttributeValue::S("counter".to_owned()))).into()
}

async fn add_one(client: &Client) -> Result<(), SdkError<UpdateItemError>> {
    let add = client.update_item().table_name(TABLE).set_key(Some(key())).update_expression("ADD n :one");
    add.expression_attribute_values(":one", AttributeValue::N("1".to_owned())).send().await.map(drop)
}

#[tokio::test]
async fn an_unacknowledged_write_is_done_again() {
    let service = Service::start().await;
    let rates = FaultRates { internal_after: 0.15, dropped_after: 0.15, ..FaultRates::default() };
    let (client, http) = service.faulty(rates);
    for _ in 0..200 {
        add_one(&client).await.unwrap();
    }
    let counts = http.counts();
    assert!(counts.internal_after > 10 && counts.dropped_after > 10, "{counts:?}");
    assert_eq!(counts.total(), counts.unacknowledged());
    assert_eq!(service.counter().await, 200 + counts.unacknowledged());
    assert_eq!(http.writes(), 200 + counts.unacknowledged());
}

#[tokio::test]
async fn faults_before_the_service_leave_no_trace() {
    let service = Service::start().await;
    let rates = FaultRates { throttled: 0.2, internal_before: 0.2, dropped_before: 0.2, ..FaultRates::default() };
    let (client, http) = service.faulty(rates);
    for _ in 0..200 {
        add_one(&client).await.unwrap();
    }
    let counts = http.counts();
    assert!(counts.throttled > 10 && counts.internal_before > 10 && counts.dropped_before > 10, "{counts:?}");
    assert_eq!(counts.unacknowledged(), 0);
    assert_eq!(service.counter().await, 200);
    assert_eq!(http.writes(), 200);
}

#[tokio::test]
async fn concurrent_writes_are_accounted_for() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates { conflict: 0.0, ..FaultRates::spread(0.5) });
    let client = &client;
    let added = stream::iter(0..300).map(|_| add_one(client)).buffer_unordered(16).collect::<Vec<_>>().await;
    assert!(added.iter().all(Result::is_ok));
    let counts = http.counts();
    assert!(counts.total() > 150 && counts.unacknowledged() > 50, "{counts:?}");
    assert_eq!(service.counter().await, 300 + counts.unacknowledged());
}

/// One attempt under one fault: the error's code (none where there is no answer), and whether 1 was added.
async fn check(rates: FaultRates, codes: &[Option<&str>], written: u64) {
    let service = Service::start().await;
    let http = FaultyHttp::new(rates, 7);
    let once = sdk_config(service.embedded.endpoint(), http.clone())
        .into_builder()
        .retry_config(aws_config::retry::RetryConfig::disabled())
        .build();
    let client = client::dynamodb(&once);
    for _ in 0..20 {
        let error = add_one(&client).await.unwrap_err();
        assert!(codes.contains(&error.code()), "{error:?}");
        assert_eq!(error.code().is_none(), matches!(error, SdkError::DispatchFailure(_)));
    }
    assert_eq!(http.counts().total(), 20);
    assert_eq!(service.counter().await, 20 * written);
}

#[tokio::test]
async fn each_fault_looks_as_on_aws() {
    let none = FaultRates::default();
    let throttled = [Some("ProvisionedThroughputExceededException"), Some("ThrottlingException")];
    let internal = [Some("InternalServerError")];
    check(FaultRates { throttled: 1.0, ..none }, &throttled, 0).await;
    check(FaultRates { conflict: 1.0, ..none }, &[Some("TransactionConflictException")], 0).await;
    check(FaultRates { internal_before: 1.0, ..none }, &internal, 0).await;
    check(FaultRates { internal_after: 1.0, ..none }, &internal, 1).await;
    check(FaultRates { dropped_before: 1.0, ..none }, &[None], 0).await;
    check(FaultRates { dropped_after: 1.0, ..none }, &[None], 1).await;
}

#[tokio::test]
async fn refused_writes_meet_no_faults_behind_them() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates { internal_after: 1.0, ..FaultRates::default() });
    let never = client.update_item().table_name(TABLE).set_key(Some(key())).update_expression("REMOVE n");
    let error = never.condition_expression("attribute_exists(n)").send().await.unwrap_err();
    assert_eq!(error.code(), Some("ConditionalCheckFailedException"));
    assert_eq!(http.counts(), FaultCounts::default());
    assert_eq!(http.writes(), 0);
    assert_eq!(http.write_units(), 1, "a condition that fails costs as much as a write");
}

#[tokio::test]
async fn a_transaction_costs_two_units_per_item() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates::default());
    let put = |sk: &str| {
        let put = Put::builder().table_name(TABLE).item(schema::PK, AttributeValue::S("counter".to_owned()));
        let put = put.item(schema::SK, AttributeValue::S(sk.to_owned()));
        put.condition_expression(format!("attribute_not_exists({})", schema::PK)).build().unwrap()
    };
    let both = [put("a"), put("b")].map(|put| TransactWriteItem::builder().put(put).build()).to_vec();
    client.transact_write_items().set_transact_items(Some(both.clone())).send().await.unwrap();
    assert_eq!(http.write_units(), 4);
    client.transact_write_items().set_transact_items(Some(both)).send().await.unwrap_err();
    assert_eq!(http.write_units(), 8);
    client.delete_item().table_name(TABLE).set_key(Some(key())).send().await.unwrap();
    assert_eq!((http.write_units(), http.writes()), (9, 0));
}

#[tokio::test]
async fn a_consistent_read_costs_twice_as_much() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates::default());
    let get = || client.get_item().table_name(TABLE).set_key(Some(key()));
    get().send().await.unwrap();
    assert_eq!(http.half_read_units(), 1);
    get().consistent_read(true).send().await.unwrap();
    assert_eq!(http.half_read_units(), 3);
    let mut missing = key();
    missing.insert(schema::SK.to_owned(), AttributeValue::S("missing".to_owned()));
    let keys = KeysAndAttributes::builder().keys(key()).keys(missing).consistent_read(true).build().unwrap();
    client.batch_get_item().request_items(TABLE, keys).send().await.unwrap();
    assert_eq!((http.half_read_units(), http.write_units()), (7, 0));
}

#[tokio::test]
async fn transactions_are_cancelled_with_a_reason() {
    let service = Service::start().await;
    let (_, http) = service.faulty(FaultRates::default());
    let client = client::dynamodb(&sdk_config(service.embedded.endpoint(), http.clone()));
    let check = async |fault: Fault, expect: &[&str]| {
        http.on_call(move |_, _| Some(fault));
        let put = Put::builder().table_name(TABLE).set_item(Some(key())).build().unwrap();
        let puts = vec![TransactWriteItem::builder().put(put).build(); 2];
        let error = client.transact_write_items().set_transact_items(Some(puts)).send().await.unwrap_err();
        let TransactWriteItemsError::TransactionCanceledException(canceled) = error.into_service_error() else {
            panic!("{fault:?}");
        };
        let codes: Vec<_> = canceled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
        assert!(matches!(codes[..], [first, "None"] if expect.contains(&first)), "{codes:?}");
    };
    check(Fault::Conflict, &["TransactionConflict"]).await;
    check(Fault::Throttled, &["ThrottlingError", "ProvisionedThroughputExceeded"]).await;
    assert_eq!(service.counter().await, 0);
}

#[tokio::test]
async fn reads_meet_faults_and_calls_hang() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates { throttled: 0.5, conflict: 0.5, ..FaultRates::default() });
    let get = || client.get_item().table_name(TABLE).set_key(Some(key())).send();
    get().await.unwrap();
    while http.counts().throttled == 0 {
        get().await.unwrap();
    }
    assert_eq!(http.counts().conflict, 0, "reads do not conflict");
    http.on_call(|operation, body| (operation == "GetItem" && body.contains("counter")).then_some(Fault::Hang));
    tokio::select! {
        biased;
        read = get() => panic!("{read:?}"),
        added = add_one(&service.direct) => added.unwrap(),
    }
}

/// Runs the invocation until it ends or the process dies.
async fn survives(http: &FaultyHttp, invocation: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = http.crashed() => false,
        () = invocation => true,
    }
}

#[tokio::test]
async fn a_crash_ends_the_process_after_the_write() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates::default());
    let add = async |times: usize| {
        for _ in 0..times {
            add_one(&client).await.unwrap();
        }
    };
    http.crash_after(3);
    assert!(!survives(&http, add(10)).await);
    assert_eq!(service.counter().await, 3);

    // Even the answer of the last write is lost.
    http.heal();
    http.crash_after(1);
    assert!(!survives(&http, add(1)).await);
    assert_eq!(service.counter().await, 4);

    // A crashed process writes nothing, even later.
    let looks = async {
        for _ in 0..50 {
            assert_eq!(service.counter().await, 4);
        }
    };
    tokio::select! {
        biased;
        () = add(1) => panic!("a dead process was answered"),
        () = looks => {}
    }

    http.heal();
    assert!(survives(&http, add(10)).await);
    assert_eq!(service.counter().await, 14);

    http.crash_after(0);
    assert!(!survives(&http, add(1)).await);
    assert_eq!(service.counter().await, 14);
}

#[tokio::test]
async fn a_call_that_outlives_the_crash_is_repeated() {
    let service = Service::start().await;
    let (client, http) = service.faulty(FaultRates::default());
    http.crash_after(1);
    let (added, ()) = futures::join!(add_one(&client), async {
        http.crashed().await;
        assert_eq!(service.counter().await, 1);
        http.heal();
    });
    added.unwrap();
    assert_eq!(service.counter().await, 2);
}

#[tokio::test]
async fn a_seed_makes_the_same_faults_again() {
    let mut counts = Vec::new();
    for _ in 0..2 {
        let service = Service::start().await;
        let (client, http) = service.faulty(FaultRates { conflict: 0.0, ..FaultRates::spread(0.5) });
        for _ in 0..50 {
            add_one(&client).await.unwrap();
        }
        counts.push(http.counts());
    }
    assert!(counts[0].total() > 10);
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_total_rate_is_spread_over_all_kinds() {
    let rates = FaultRates::spread(0.6);
    let drawn = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.95].map(|drawn| rates.fault(drawn));
    let [throttled, conflict, internal_before, internal_after, dropped_before, dropped_after, none, still_none] = drawn;
    assert_eq!((throttled, conflict), (Some(Fault::Throttled), Some(Fault::Conflict)));
    assert_eq!(internal_before, Some(Fault::InternalBefore));
    assert_eq!(internal_after, Some(Fault::InternalAfter));
    assert_eq!(dropped_before, Some(Fault::DroppedBefore));
    assert_eq!(dropped_after, Some(Fault::DroppedAfter));
    assert_eq!((none, still_none), (None, None));
}
