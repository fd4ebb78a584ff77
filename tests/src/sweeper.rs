//! `token-sweeper` on embedded token tables and an embedded EMR, tokens as clients write them, and events of ends.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::{
    client,
    emr::Clusters,
    schema::tokens::{ACCOUNT_ID, EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, RESOURCE_NAME},
    table,
    token_tables::TokenTables,
    tokens::Tokens,
};
use tidegate_domain::sweep::{Token, TokenKey};
use tidegate_sandbox::{emr::EmbeddedEmr, services::Services};
use token_sweeper::{
    TokenSweeper,
    config::Config,
    decision::EventDecision,
    event::{Event, Message},
    reconcile::{self, Reconciled},
    report::{Handled, SweepReport},
};

use crate::prelude::*;

/// What the scenarios of `token-sweeper` use.
pub mod prelude {
    pub use std::collections::{BTreeMap, BTreeSet};

    pub use aws_sdk_dynamodb::types::AttributeValue;
    pub use tidegate_domain::sweep::Token;
    pub use token_sweeper::{
        decision::{Decision, Failure},
        handler::Answer,
        reconcile::Reconciled,
        report::Handled,
    };

    pub use super::{
        BASE, END, GRACE_OVER, INTERVAL, SweeperScene, batch, changed, decisions, ended, expiring, failures, item,
        messages, token, without,
    };
    pub use crate::prelude::*;
}

/// When the resources end: 2026-01-01T00:00:00Z.
pub const END: i64 = 1_767_225_600_000;

/// When no token can come any more, by the default grace.
pub const GRACE_OVER: i64 = END + 120_000;

/// The milliseconds from one reconcile to the next.
pub const INTERVAL: i64 = reconcile::INTERVAL.as_secs().cast_signed() * 1000;

/// The base of the tables' names.
pub const BASE: &str = "prod";

const RESOURCE: &str = "emr-cluster";
const ACCOUNT: &str = "123456789012";

/// `token-sweeper` on embedded services of its own.
#[derive(Debug)]
pub struct SweeperScene {
    /// The tables, undisturbed.
    pub services: Services,
    /// EMR, which is asked if `RECONCILE_EMR` is set.
    pub emr: EmbeddedEmr,
    /// The function's connection to the tables and to EMR.
    pub http: FaultyHttp,
    pub sweeper: TokenSweeper,
}

impl SweeperScene {
    /// The function with its defaults, undisturbed.
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// The same; its calls meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let (services, emr) = (Services::embedded(None, "tidegate-test-buckets").await?, EmbeddedEmr::start().await?);
        table::create_token_tables(&services.dynamodb, &TokenTables::of(BASE)).await?;
        let http = FaultyHttp::new(rates, seed);
        let sweeper = sweeper(&services, &emr, &http, &[])?;
        Ok(Self { services, emr, http, sweeper })
    }

    /// Another process of the function, with these variables beside the tables' names.
    pub fn another_process(&self, variables: &[(&str, &str)]) -> anyhow::Result<TokenSweeper> {
        sweeper(&self.services, &self.emr, &self.http, variables)
    }

    /// Writes a token as a client would.
    pub async fn put(&self, token: &Token) -> anyhow::Result<()> {
        self.put_item(item(token)).await
    }

    pub async fn put_item(&self, item: HashMap<String, AttributeValue>) -> anyhow::Result<()> {
        let put = self.services.dynamodb.put_item().table_name(TokenTables::of(BASE).non_fungible);
        put.set_item(Some(item)).send().await?;
        Ok(())
    }

    /// Deletes a token as another client would.
    pub async fn delete(&self, token: &Token) -> anyhow::Result<()> {
        let delete = self.services.dynamodb.delete_item().table_name(TokenTables::of(BASE).non_fungible);
        let TokenKey { coordinate, reservation } = &token.key;
        delete.key(RESOURCE_COORDINATE, text(coordinate)).key(RESERVATION_ID, text(reservation)).send().await?;
        Ok(())
    }

    /// The resources that hold tokens, by reservation.
    pub async fn held(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut held = BTreeMap::new();
        let mut start = None;
        loop {
            let scan = self.services.dynamodb.scan().table_name(TokenTables::of(BASE).non_fungible);
            let page = scan.consistent_read(true).set_exclusive_start_key(start).send().await?;
            for item in page.items.unwrap_or_default() {
                let part = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
                held.insert(part(RESERVATION_ID), part(RESOURCE_ID));
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(held);
            }
        }
    }

    pub async fn left(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.held().await?.into_keys().collect())
    }

    /// Invokes the function with a batch of these events, with more time than it needs.
    pub async fn invoke(&self, events: &[Value], now: i64) -> anyhow::Result<Handled> {
        Ok(self.sweeper.handle(&batch(events)?, time(now), in_time()).await)
    }

    /// Invokes the function with an event, with more time than it needs.
    pub async fn invoke_directly(&self, event: Value, now: i64) -> (EventDecision, SweepReport) {
        self.sweeper.handle_event(event, time(now), in_time()).await
    }

    /// Invokes the function for a reconcile, with more time than it needs.
    pub async fn reconcile(&self, now: i64) -> Reconciled {
        self.sweeper.reconcile(time(now), in_time()).await
    }
}

fn sweeper(
    services: &Services,
    emr: &EmbeddedEmr,
    http: &FaultyHttp,
    variables: &[(&str, &str)],
) -> anyhow::Result<TokenSweeper> {
    let variables: HashMap<_, _> = variables.iter().copied().chain([("LIMITER_TABLES_BASE_NAME", BASE)]).collect();
    let config = Config::read(|name| variables.get(name).map(|value| (*value).to_owned()))
        .context("the sweeper's environment")?;
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http.clone()));
    let emr = client::emr(&sdk_config(emr.endpoint(), http.clone()));
    let tokens = Tokens::new(dynamodb, &config.table, &config.index);
    Ok(TokenSweeper::new(config, tokens, Clusters::new(emr)))
}

/// A token that a resource holds until an hour after it has ended.
pub fn token(reservation: &str, resource: &str) -> Token {
    let key = TokenKey { coordinate: format!("{RESOURCE}:{ACCOUNT}"), reservation: reservation.to_owned() };
    Token { key, resource: resource.to_owned(), expires: Some(END / 1000 + 3600) }
}

/// The same with another expiry, in epoch seconds.
pub fn expiring(reservation: &str, resource: &str, expires: i64) -> Token {
    Token { expires: Some(expires), ..token(reservation, resource) }
}

/// A token with all that a client writes.
pub fn item(token: &Token) -> HashMap<String, AttributeValue> {
    let mut item: HashMap<_, _> = [
        (RESOURCE_COORDINATE, token.key.coordinate.as_str()),
        (RESERVATION_ID, &token.key.reservation),
        (RESOURCE_ID, &token.resource),
        (RESOURCE_NAME, RESOURCE),
        (ACCOUNT_ID, ACCOUNT),
    ]
    .map(|(name, value)| (name.to_owned(), text(value)))
    .into();
    item.extend(token.expires.map(|expires| (EXPIRATION_TIME.to_owned(), AttributeValue::N(expires.to_string()))));
    item
}

/// The event of a cluster's end.
pub fn ended(cluster: &str) -> Value {
    json!({
        "version": "0",
        "id": format!("end-of-{cluster}"),
        "detail-type": "EMR Cluster State Change",
        "source": "aws.emr",
        "time": "2026-01-01T00:00:00Z",
        "detail": {"clusterId": cluster, "name": "nightly", "state": "TERMINATED"},
    })
}

/// The same with another value at a pointer like `/detail/state`.
pub fn changed(mut event: Value, pointer: &str, value: Value) -> Value {
    *event.pointer_mut(pointer).expect("a part of the event") = value;
    event
}

/// The same without a key.
pub fn without(mut event: Value, key: &str) -> Value {
    event.as_object_mut().and_then(|event| event.remove(key)).expect("a key of the event");
    event
}

/// Messages of a queue with these events; a text stands for itself. Their ids are `m-0`, `m-1` and so on.
pub fn batch(events: &[Value]) -> anyhow::Result<Vec<Message>> {
    let records = events.iter().enumerate().map(|(number, event)| {
        let body = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
        json!({"messageId": format!("m-{number}"), "eventSource": "aws:sqs", "body": body})
    });
    messages(&json!(records.collect::<Vec<_>>()))
}

/// These records as messages.
pub fn messages(records: &Value) -> anyhow::Result<Vec<Message>> {
    match Event::try_from(json!({"Records": records}))? {
        Event::Batch(messages) => Ok(messages),
        other => anyhow::bail!("{other:?}"),
    }
}

/// The ids of the messages to be delivered again.
pub fn failures(handled: &Handled) -> Vec<&str> {
    let answer = handled.answer.as_ref().expect("an answer");
    answer.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect()
}

/// What was decided on each message.
pub fn decisions(handled: &Handled) -> Vec<&'static str> {
    handled.decided.iter().map(|decided| decided.decision.name()).collect()
}
