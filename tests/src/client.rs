//! The client crate on an embedded table, and buckets as it leaves them.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate::{AcquireBuilder, Limiter, LimiterBuilder, ManualClock};
use tidegate_aws::{
    buckets::{Buckets, Consistency, Shards},
    client,
    namespaces::Namespaces,
    schema::{self, config},
};
use tidegate_domain::bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard};
use tidegate_sandbox::{
    item::{self, Item},
    services::Services,
};

use crate::prelude::*;

/// What the scenarios of the client crate use.
pub mod prelude {
    pub use std::collections::BTreeMap;

    pub use tidegate::{AcquireError, DecidedBy, Limiter, ManualClock, OnUnavailable};

    pub use super::{ClientScene, ENTITY, PER_MINUTE, RESOURCE, START};
    pub use crate::prelude::*;
}

/// 2026-01-01T00:00:00Z.
pub const START: i64 = 1_767_225_600_000;
pub const ENTITY: &str = "key-1";
pub const RESOURCE: &str = "gpt-4";
/// 600 requests and 60,000 tokens a minute: ten and a thousand a second.
pub const PER_MINUTE: &[(&str, [i64; 3])] = &[("requests", [600, 600, 60]), ("tokens", [60_000, 60_000, 60])];

/// A limiter on an embedded table, with a clock that stands still.
#[derive(Debug)]
pub struct ClientScene {
    /// The table, undisturbed.
    pub services: Services,
    /// The limiter's connection to the table.
    pub http: FaultyHttp,
    pub limiter: Limiter,
    pub clock: ManualClock,
    pub namespace: Namespace<'static>,
}

impl ClientScene {
    /// A limiter whose resource has the limits of [`PER_MINUTE`].
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// The same; its calls meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        let namespaces = Namespaces::new(services.dynamodb.clone(), &services.table);
        let namespace = namespaces.register("default", time(START)).await?;
        let http = FaultyHttp::new(rates, seed);
        let clock = ManualClock::new(START);
        let limiter = builder(&services, &http, &clock).build().await?;
        let scene = Self { services, http, limiter, clock, namespace };
        scene.configure(PER_MINUTE).await?;
        scene.http.calls();
        Ok(scene)
    }

    /// Another process's limiter on the same table, with the same clock.
    pub async fn another(&self, http: &FaultyHttp) -> anyhow::Result<Limiter> {
        Ok(builder(&self.services, http, &self.clock).build().await?)
    }

    /// Configures the limits of [`RESOURCE`]: capacity and refill in tokens, the period in seconds.
    pub async fn configure(&self, limits: &[(&str, [i64; 3])]) -> anyhow::Result<()> {
        let resource = Resource::new(RESOURCE)?;
        let mut configuration = Item::from([
            (schema::PK.to_owned(), text(schema::resource_pk(&self.namespace, &resource))),
            (schema::SK.to_owned(), text(config::CONFIG)),
        ]);
        for (limit, values) in limits {
            let fields = [config::CAPACITY, config::REFILL_AMOUNT, config::REFILL_PERIOD];
            for (field, value) in fields.into_iter().zip(values) {
                configuration.insert(config::attribute(limit, field), number(*value));
            }
        }
        let put = self.services.dynamodb.put_item().table_name(&self.services.table);
        put.set_item(Some(configuration)).send().await?;
        Ok(())
    }

    /// An acquire of one request and some tokens.
    pub fn acquire(&self, tokens: u64) -> AcquireBuilder {
        self.limiter.acquire(ENTITY, RESOURCE).take("requests", 1).take("tokens", tokens)
    }

    pub fn key(&self, shard: u32) -> BucketKey<'static> {
        BucketKey {
            namespace: self.namespace.clone(),
            entity: Entity::new(ENTITY).expect("an entity"),
            resource: Resource::new(RESOURCE).expect("a resource"),
            shard: Shard::new(shard),
        }
    }

    /// Changes attributes of a shard, as another client does.
    pub async fn change(&self, shard: u32, change: impl FnOnce(&mut Item)) -> anyhow::Result<()> {
        let mut item = self.item(shard).await?.context("no such shard")?;
        change(&mut item);
        let put = self.services.dynamodb.put_item().table_name(&self.services.table);
        put.set_item(Some(item)).send().await?;
        Ok(())
    }

    pub async fn item(&self, shard: u32) -> anyhow::Result<Option<Item>> {
        let get = self.services.dynamodb.get_item().table_name(&self.services.table).consistent_read(true);
        Ok(get.set_key(Some(item::key(&self.key(shard)))).send().await?.item)
    }

    /// All shards of the bucket.
    pub async fn shards(&self, count: u32) -> anyhow::Result<Shards> {
        let buckets = Buckets::new(self.services.dynamodb.clone(), &self.services.table);
        Ok(buckets.read(&self.key(0), 0..count, Consistency::Strong).await?)
    }

    /// What all shards hold of a limit, and what was consumed of it, in millitokens.
    pub async fn totals(&self, limit: &'static str, count: u32) -> anyhow::Result<(i64, i64)> {
        let (shards, limit) = (self.shards(count).await?, Limit::new(limit)?);
        let limits: Vec<_> = shards.states.values().filter_map(|state| state.limits.get(&limit)).collect();
        Ok((limits.iter().map(|of| of.tokens.get()).sum(), limits.iter().map(|of| of.consumed.get()).sum()))
    }

    /// The calls of the limiter since the last request for them.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.http.calls()
    }
}

/// The calls by operation.
pub fn calls<const N: usize>(expect: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expect.into_iter().map(|(operation, calls)| (operation.to_owned(), calls)).collect()
}

/// A flag of an item.
pub fn flag() -> AttributeValue {
    AttributeValue::Bool(true)
}

fn builder(services: &Services, http: &FaultyHttp, clock: &ManualClock) -> LimiterBuilder {
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http.clone()));
    Limiter::builder(dynamodb, &services.table).clock(clock.clone())
}
