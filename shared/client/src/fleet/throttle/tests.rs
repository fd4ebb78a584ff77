//! What other crates cannot see: the steps of a limit, and first estimates.

use std::{pin::pin, task::Poll, time::Duration};

use aws_sdk_dynamodb::{
    config::{ConfigBag, Layer, timeout::TimeoutConfig},
    operation::{
        batch_get_item::BatchGetItemInput, execute_statement::ExecuteStatementInput, list_tables::ListTablesInput,
        query::QueryInput, transact_write_items::TransactWriteItemsInput,
    },
    types::{AttributeValue, Delete, KeysAndAttributes, TransactWriteItem},
};
use aws_smithy_runtime_api::client::interceptors::context::Input;
use futures::poll;
use tidegate_domain::{
    rates::{Rate, Rates},
    throttle::{
        CapacityKind::{self, Read, Write},
        Units,
        limit::{Limit, RateSteps},
    },
};

use super::{Cost, Throttle, interceptor, operations};
use crate::{ManualClock, clock::Clock};

fn rates(units: u64) -> Rates {
    let rate = Rate::from_millionths(units * Rate::UNIT);
    Rates { read: rate, write: rate }
}

/// A throttle of at most 1,000 units a second that starts with ten, and its clock.
fn leased() -> (Throttle, ManualClock) {
    let clock = ManualClock::new(0);
    let limit = Limit { steps: RateSteps::constant(rates(10)), ..Limit::constant(rates(1_000)) };
    (Throttle::new(limit, Clock::Manual(clock.clone())), clock)
}

async fn spend(throttle: &Throttle, units: f64) {
    let cost = Cost::read(units).expect("a cost");
    throttle.admit(cost).await.settle(units).expect("a cost");
}

#[tokio::test]
async fn callers_that_wait_see_new_steps() {
    let (throttle, clock) = leased();
    spend(&throttle, 11.0).await;
    let mut next = pin!(spend(&throttle, 1.0));
    assert!(poll!(&mut next).is_pending());
    // At ten units a second, a second and a tenth would have to pass.
    throttle.set_steps(RateSteps::constant(rates(1_000)));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(10));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(1));
    assert_eq!(poll!(&mut next), Poll::Ready(()));
}

#[tokio::test]
async fn a_lease_ends_without_its_worker() {
    let (throttle, clock) = leased();
    let end = Duration::from_secs(15);
    throttle.set_steps(RateSteps::constant(rates(1_000)).then(end, rates(10)).then(3 * end, Rates::default()));
    clock.advance(end);
    spend(&throttle, 1.0).await;
    let mut next = pin!(spend(&throttle, 1.0));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(99));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(1));
    assert_eq!(poll!(&mut next), Poll::Ready(()));
    clock.advance(2 * end);
    let mut last = pin!(spend(&throttle, 1.0));
    assert!(poll!(&mut last).is_pending());
    clock.advance(end);
    assert!(poll!(&mut last).is_pending());
    assert_eq!(throttle.usage().reads.waiting, 1);
}

#[track_caller]
fn check(input: impl std::fmt::Debug + Send + Sync + 'static, kind: CapacityKind, entries: u32, first: u64) {
    let call = operations::call(&mut Input::erase(input)).expect("a call that consumes capacity");
    let first = Units::from_millionths(first * Units::ONE);
    assert_eq!((call.kind, call.entries, call.first), (kind, entries, first));
}

#[test]
fn the_first_call_is_expected_to_cost_much() {
    check(QueryInput::builder().table_name("t").build().unwrap(), Read, 1, 128);
    check(QueryInput::builder().table_name("t").consistent_read(true).build().unwrap(), Read, 1, 256);
    let key = || [("id".to_owned(), AttributeValue::S("a".to_owned()))].into();
    let keys = KeysAndAttributes::builder().keys(key()).keys(key()).build().unwrap();
    let batch = BatchGetItemInput::builder().request_items("a", keys.clone()).request_items("b", keys).build();
    check(batch.unwrap(), Read, 4, 1);
    let delete = Delete::builder().table_name("t").set_key(Some(key())).build().unwrap();
    let item = TransactWriteItem::builder().delete(delete).build();
    check(TransactWriteItemsInput::builder().transact_items(item).build().unwrap(), Write, 1, 2);
    assert_eq!(operations::call(&mut Input::erase(ListTablesInput::builder().build().unwrap())), None);
}

#[test]
fn the_verb_of_a_statement_decides() {
    let check = |statement, kind, first| {
        check(ExecuteStatementInput::builder().statement(statement).build().unwrap(), kind, 1, first);
    };
    check("SELECT * FROM t", Read, 128);
    check("\n select*from t", Read, 128);
    check("EXISTS(SELECT * FROM t)", Read, 128);
    for statement in ["INSERT INTO t", "UPDATE t", "DELETE FROM t", "SELECTED", ""] {
        check(statement, Write, 1);
    }
}

#[test]
fn calls_alike_share_an_estimate() {
    let key = |table, is_consistent| {
        let query = QueryInput::builder().table_name(table).consistent_read(is_consistent).build().unwrap();
        operations::call(&mut Input::erase(query)).unwrap().key
    };
    assert_eq!(key("a", true), key("a", true));
    assert_ne!(key("a", true), key("b", true));
    assert_ne!(key("a", true), key("a", false));
}

#[test]
fn limits_are_checked() {
    let error = Throttle::fixed(f64::INFINITY, 1.0).unwrap_err();
    assert_eq!(error.to_string(), "invalid read limit inf: expected 0 to 10000000 capacity units a second");
    let error = Throttle::slow_start((1.0, 1e8), (5.0, 1.0), Duration::from_secs(1)).unwrap_err();
    let expect = "invalid slow start's write limit 100000000: expected 0 to 10000000 capacity units a second";
    assert_eq!(error.to_string(), expect);
    let error = Cost::write(-0.5).unwrap_err();
    assert_eq!(error.to_string(), "invalid write cost -0.5: expected 0 to 10000000 capacity units");
}

#[test]
fn a_call_waits_for_half_of_a_timeout() {
    let config = |attempt: Option<u64>| {
        let timeouts = TimeoutConfig::builder();
        let timeouts = attempt
            .iter()
            .fold(timeouts, |timeouts, seconds| timeouts.operation_attempt_timeout(Duration::from_secs(*seconds)));
        let mut layer = Layer::new("test");
        layer.store_put(timeouts.build());
        ConfigBag::of_layers(vec![layer])
    };
    let check =
        |config: &ConfigBag, seconds| assert_eq!(interceptor::longest_wait(config), Duration::from_secs(seconds));
    check(&ConfigBag::base(), 5);
    check(&config(None), 5);
    check(&config(Some(300)), 5);
    check(&config(Some(8)), 4);
}

#[tokio::test]
async fn a_slow_start_begins_with_the_throttle() {
    let clock = ManualClock::new(3_600_000);
    let throttle = Throttle::slow_start((10.0, 10.0), (100.0, 100.0), Duration::from_secs(9)).unwrap();
    let throttle = throttle.clock(clock.clone());
    spend(&throttle, 1.0).await;
    let mut next = pin!(spend(&throttle, 20.0));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(100));
    assert_eq!(poll!(&mut next), Poll::Ready(()));
    // 10 units accrue in the first second, and 20 in the second one.
    let mut next = pin!(spend(&throttle, 1.0));
    clock.advance(Duration::from_millis(1_449));
    assert!(poll!(&mut next).is_pending());
    clock.advance(Duration::from_millis(1));
    assert_eq!(poll!(&mut next), Poll::Ready(()));
}

#[test]
fn only_the_type_of_an_error_counts() {
    let check = |body: &str, expect| assert_eq!(interceptor::error_type(body.as_bytes()), expect, "{body}");
    check(
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"m"}"#,
        Some("ThrottlingException"),
    );
    check(r#"{"message": "m", "__type": "AccessDeniedException"}"#, Some("AccessDeniedException"));
    // An item that a failed condition returns.
    check(
        r##"{"Item":{"__type":{"S":"#ThrottlingException"},"t":{"S":"\"__type\":\"x#ThrottlingException\""}}}"##,
        None,
    );
    check("", None);
}
