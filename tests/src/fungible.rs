//! Clients of fungible tokens on embedded token tables: ours, and rate-limiter-py.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate::{
    ManualClock, TokenTables,
    fungible::{Fungible, FungibleBuilder, TakeBuilder, TakeError},
};
use tidegate_aws::{
    client,
    schema::tokens::{ACCOUNT_ID, LEFT, LIMIT, REFILLED, RESOURCE_NAME, TOKENS, WINDOW_SEC},
    table,
};
use tidegate_sandbox::{gateway::Gateway, item::Item, peer::Peer, services::Services};

use crate::{client::START, prelude::*, python};

/// What the scenarios of fungible tokens use.
pub mod prelude {
    pub use tidegate::{
        ManualClock, TokenTables,
        fungible::{Fungible, FungibleBuilder, TakeError},
    };
    pub use tidegate_aws::schema::tokens::{LAST_REFILL, LAST_TOKEN, LEFT, OPERATION, REFILLED, SEALED, TOKENS};

    pub use super::{ACCOUNT, FungibleScene, PythonLimiter, RESOURCE, count};
    pub use crate::{
        client::{START, calls},
        prelude::*,
    };
}

pub const RESOURCE: &str = "emr-api";
pub const ACCOUNT: &str = "123456789012";
const BASE: &str = "prod";

/// Our client on embedded tables, with a clock that stands still. The limit is ten tokens a minute, or one in six seconds.
#[derive(Debug)]
pub struct FungibleScene {
    /// The tables, undisturbed.
    pub services: Services,
    /// Counts the calls of all clients.
    pub gateway: Gateway,
    /// The client's connection to the tables.
    pub http: FaultyHttp,
    pub clock: ManualClock,
    pub fungible: Fungible,
}

impl FungibleScene {
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// The calls of the client meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        table::create_token_tables(&services.dynamodb, &TokenTables::of(BASE)).await?;
        let gateway = Gateway::start(&services.endpoint).await?;
        let http = FaultyHttp::new(rates, seed);
        let clock = ManualClock::new(START);
        let fungible = fungible(&gateway, &http, &clock, TokenTables::of(BASE), |builder| builder);
        let scene = Self { services, gateway, http, clock, fungible };
        scene.limit(10, Some(60)).await?;
        Ok(scene)
    }

    /// Another process's client of the same tables, with the same clock.
    pub fn another(&self) -> Fungible {
        self.another_with(|builder| builder)
    }

    /// The same, with other settings.
    pub fn another_with(&self, settings: impl FnOnce(FungibleBuilder) -> FungibleBuilder) -> Fungible {
        self.another_at(TokenTables::of(BASE), settings)
    }

    /// The same, of other tables.
    pub fn another_at(
        &self,
        tables: TokenTables,
        settings: impl FnOnce(FungibleBuilder) -> FungibleBuilder,
    ) -> Fungible {
        fungible(&self.gateway, &FaultyHttp::undisturbed(), &self.clock, tables, settings)
    }

    /// A client that takes the time from the system.
    pub fn in_real_time(&self, settings: impl FnOnce(FungibleBuilder) -> FungibleBuilder) -> Fungible {
        let dynamodb = client::dynamodb(&sdk_config(&self.gateway.endpoint(), FaultyHttp::undisturbed()));
        settings(Fungible::builder(dynamodb, TokenTables::of(BASE))).build()
    }

    /// A take of the client.
    pub fn take(&self, tokens: u64) -> TakeBuilder {
        self.fungible.take(RESOURCE, ACCOUNT, tokens)
    }

    /// Sets the account's limit, and its window in seconds.
    pub async fn limit(&self, tokens: i64, window: Option<i64>) -> anyhow::Result<()> {
        let mut item = key();
        item.insert(LIMIT.to_owned(), number(tokens));
        item.extend(window.map(|seconds| (WINDOW_SEC.to_owned(), number(seconds))));
        self.put(TokenTables::of(BASE).limits, item).await
    }

    /// Writes the row as our clients leave it, with so many tokens, refilled at a time in epoch milliseconds.
    pub async fn put_stored(&self, tokens: i64, refilled: i64) -> anyhow::Result<()> {
        let refilled = refilled * 1_000_000;
        self.put_row(&[(TOKENS, number(tokens)), (LEFT, number(tokens)), (REFILLED, number(refilled))]).await
    }

    /// Writes the row, with these attributes.
    pub async fn put_row(&self, attributes: &[(&str, AttributeValue)]) -> anyhow::Result<()> {
        let mut item = key();
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        self.put(TokenTables::of(BASE).fungible, item).await
    }

    async fn put(&self, table: String, item: Item) -> anyhow::Result<()> {
        self.services.dynamodb.put_item().table_name(table).set_item(Some(item)).send().await?;
        Ok(())
    }

    pub async fn row(&self) -> anyhow::Result<Option<Item>> {
        let get = self.services.dynamodb.get_item().table_name(TokenTables::of(BASE).fungible).consistent_read(true);
        Ok(get.set_key(Some(key())).send().await?.item)
    }

    /// A number of the row; `None` if the row lacks it.
    pub async fn number(&self, attribute: &str) -> anyhow::Result<Option<i64>> {
        let row = self.row().await?.context("there is no row")?;
        let digits = row.get(attribute).and_then(|value| value.as_n().ok());
        Ok(digits.map(|digits| digits.parse()).transpose()?)
    }

    /// The stored tokens.
    pub async fn tokens(&self) -> anyhow::Result<i64> {
        self.number(TOKENS).await?.context("the row has no tokens")
    }
}

/// Takes one token after the other, so many times. Returns how many were granted; the others must be denied.
pub async fn count(fungible: &Fungible, times: usize) -> anyhow::Result<usize> {
    let mut granted = 0;
    for _ in 0..times {
        match fungible.take(RESOURCE, ACCOUNT, 1).await {
            Ok(_) => granted += 1,
            Err(TakeError::Denied(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(granted)
}

/// A client of rate-limiter-py 0.3.0 in a process of its own.
#[derive(Debug)]
pub struct PythonLimiter(Peer);

impl PythonLimiter {
    /// A client of the scene's tables; `None` where Python does not have it.
    pub async fn start(scene: &FungibleScene) -> anyhow::Result<Option<Self>> {
        let Some(python) = python::interpreter("limiter, boto3").await? else { return Ok(None) };
        let mut command = python::script(python, "fungible_client.py", &scene.gateway.endpoint());
        // The library takes the local time of day for that of UTC.
        command.env("LIMITER_TABLES_BASE_NAME", BASE).env("TZ", "UTC");
        Ok(Some(Self(Peer::start(&mut command)?)))
    }

    /// Takes one token after the other, so many times, at the time that a clock shows. Returns how many were granted.
    pub async fn count(&mut self, times: usize, clock: &ManualClock) -> anyhow::Result<usize> {
        self.count_at(times, Some(clock.epoch_millis())).await
    }

    /// The same, in real time.
    pub async fn count_now(&mut self, times: usize) -> anyhow::Result<usize> {
        self.count_at(times, None).await
    }

    async fn count_at(&mut self, times: usize, at: Option<i64>) -> anyhow::Result<usize> {
        self.0.ask(&json!({"resource": RESOURCE, "account": ACCOUNT, "times": times, "at": at})).await
    }
}

fn fungible(
    gateway: &Gateway,
    http: &FaultyHttp,
    clock: &ManualClock,
    tables: TokenTables,
    settings: impl FnOnce(FungibleBuilder) -> FungibleBuilder,
) -> Fungible {
    let dynamodb = client::dynamodb(&sdk_config(&gateway.endpoint(), http.clone()));
    settings(Fungible::builder(dynamodb, tables).clock(clock.clone())).build()
}

fn key() -> Item {
    [(RESOURCE_NAME, text(RESOURCE)), (ACCOUNT_ID, text(ACCOUNT))].map(|(name, key)| (name.to_owned(), key)).into()
}
