//! A throttle and its client, on an embedded table.

use aws_sdk_dynamodb::{
    Client, Config,
    config::{
        retry::{RetryPartition, TokenBucket},
        timeout::TimeoutConfig,
    },
    operation::{get_item::builders::GetItemFluentBuilder, put_item::builders::PutItemFluentBuilder},
};
use tidegate::{
    ManualClock,
    fleet::{Throttle, ThrottleUsage},
};
use tidegate_aws::schema;
use tidegate_sandbox::{gateway::Gateway, item::Item, services::Services};
use tokio::{task, time::timeout_at};

use crate::{client::START, prelude::*};

/// What the scenarios of the throttle use.
pub mod prelude {
    pub use aws_sdk_dynamodb::Client;
    pub use tidegate::{
        ManualClock,
        fleet::{Admission, Cost, Throttle, Throttled},
    };

    pub use super::{Account, ThrottleScene, item, until};
    pub use crate::prelude::*;
}

/// A throttle whose clock stands still, and a client that keeps its limit.
#[derive(Debug)]
pub struct ThrottleScene {
    pub services: Services,
    /// Between the client and the table. It counts what calls consume.
    pub gateway: Gateway,
    /// The client's connection to the gateway.
    pub http: FaultyHttp,
    pub clock: ManualClock,
    pub throttle: Throttle,
    pub client: Client,
}

impl ThrottleScene {
    pub async fn new(read: f64, write: f64) -> anyhow::Result<Self> {
        Self::with_faults(read, write, FaultRates::default()).await
    }

    /// The same; calls meet faults at these rates.
    pub async fn with_faults(read: f64, write: f64, rates: FaultRates) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-throttle").await?;
        let gateway = Gateway::start(&services.endpoint).await?;
        let http = FaultyHttp::new(rates, 1);
        let clock = ManualClock::new(START);
        let throttle = Throttle::fixed(read, write)?.clock(clock.clone());
        let client = throttle.client(patient_config(&gateway, &http));
        Ok(Self { services, gateway, http, clock, throttle, client })
    }

    /// The configuration of a client of this scene.
    pub fn config(&self) -> Config {
        patient_config(&self.gateway, &self.http)
    }

    /// A write of an item of so many bytes or more.
    pub fn put(&self, key: &str, bytes: usize) -> PutItemFluentBuilder {
        self.client.put_item().table_name(&self.services.table).set_item(Some(item(key, bytes)))
    }

    pub fn get(&self, key: &str) -> GetItemFluentBuilder {
        self.client.get_item().table_name(&self.services.table).set_key(Some(item(key, 0)))
    }

    pub fn usage(&self) -> Account {
        self.throttle.usage().into()
    }

    /// Waits until so many callers wait for reads and writes.
    pub async fn waiting(&self, callers: usize) -> anyhow::Result<()> {
        until(|| self.usage().waiting == callers).await
    }
}

/// What a throttle has counted, of reads and of writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    pub read: f64,
    pub written: f64,
    /// How many callers wait.
    pub waiting: usize,
    /// How many callers had to wait.
    pub delayed: u64,
}

impl From<ThrottleUsage> for Account {
    fn from(ThrottleUsage { reads, writes, .. }: ThrottleUsage) -> Self {
        Self {
            read: reads.consumed,
            written: writes.consumed,
            waiting: reads.waiting + writes.waiting,
            delayed: reads.delayed + writes.delayed,
        }
    }
}

/// An item of so many bytes or a few more.
pub fn item(key: &str, bytes: usize) -> Item {
    let mut item = Item::from([schema::PK, schema::SK].map(|name| (name.to_owned(), text(key))));
    if bytes > 0 {
        item.insert("data".to_owned(), text("x".repeat(bytes)));
    }
    item
}

/// Lets other tasks run until a condition holds.
pub async fn until(condition: impl Fn() -> bool) -> anyhow::Result<()> {
    let holds = async {
        // Callers that were woken up run first.
        task::yield_now().await;
        while !condition() {
            task::yield_now().await;
        }
    };
    timeout_at(in_time(), holds).await.context("the condition does not hold")
}

/// The SDK has no timeouts, and no quota of retries.
fn patient_config(gateway: &Gateway, http: &FaultyHttp) -> Config {
    aws_sdk_dynamodb::config::Builder::from(&sdk_config(&gateway.endpoint(), http.clone()))
        .timeout_config(TimeoutConfig::disabled())
        .retry_partition(RetryPartition::custom("patient").token_bucket(TokenBucket::unlimited()).build())
        .build()
}
