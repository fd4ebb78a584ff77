//! The client crate on an embedded table, and buckets as it leaves them.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::{config::timeout::TimeoutConfig, types::AttributeValue};
use tidegate::{AcquireBuilder, Limiter, LimiterBuilder, ManualClock};
use tidegate_aws::{
    buckets::{Buckets, Consistency, Shards},
    client,
    namespaces::Namespaces,
    schema::{self, bucket, config},
};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard},
    split,
    state::ShardCount,
};
use tidegate_sandbox::{
    item::{self, Item},
    services::Services,
};

use crate::prelude::*;

/// What the scenarios of the client crate use.
pub mod prelude {
    pub use std::collections::BTreeMap;

    pub use tidegate::{AcquireError, DecidedBy, Limiter, LimiterBuilder, ManualClock, OnUnavailable};

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
        self.another_with(http, |builder| builder).await
    }

    /// The same, with other settings.
    pub async fn another_with(
        &self,
        http: &FaultyHttp,
        settings: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> anyhow::Result<Limiter> {
        Ok(settings(builder(&self.services, http, &self.clock)).build().await?)
    }

    /// Another process's limiter whose SDK waits a tenth of a second for an answer.
    pub async fn impatient(&self, http: &FaultyHttp) -> anyhow::Result<Limiter> {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(100)).build();
        let config = sdk_config(&self.services.endpoint, http.clone()).into_builder().timeout_config(timeouts).build();
        let limiter = Limiter::builder(client::dynamodb(&config), &self.services.table);
        Ok(limiter.clock(self.clock.clone()).build().await?)
    }

    /// Configures the limits of [`RESOURCE`]: capacity and refill in tokens, the period in seconds.
    pub async fn configure(&self, limits: &[(&str, [i64; 3])]) -> anyhow::Result<()> {
        let pk = schema::resource_pk(&self.namespace, &Resource::new(RESOURCE)?);
        self.put_limits(pk, config::CONFIG.to_owned(), limits).await
    }

    /// Configures the limits of one entity on [`RESOURCE`].
    pub async fn configure_entity(&self, entity: &str, limits: &[(&str, [i64; 3])]) -> anyhow::Result<()> {
        let pk = schema::entity_pk(&self.namespace, &Entity::new(entity)?);
        self.put_limits(pk, schema::entity_config_sk(&Resource::new(RESOURCE)?), limits).await
    }

    async fn put_limits(&self, pk: String, sk: String, limits: &[(&str, [i64; 3])]) -> anyhow::Result<()> {
        let mut configuration = Item::from([(schema::PK.to_owned(), text(pk)), (schema::SK.to_owned(), text(sk))]);
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

    /// Gives an entity a parent to which its consumption cascades.
    pub async fn set_parent(&self, entity: &str, parent: &str) -> anyhow::Result<()> {
        let meta = [
            (schema::PK, text(schema::entity_pk(&self.namespace, &Entity::new(entity)?))),
            (schema::SK, text(schema::entity::META)),
            (bucket::CASCADE, flag()),
            (bucket::PARENT_ID, text(parent)),
        ];
        let meta = meta.map(|(name, value)| (name.to_owned(), value)).into();
        let put = self.services.dynamodb.put_item().table_name(&self.services.table);
        put.set_item(Some(meta)).send().await?;
        Ok(())
    }

    /// An acquire of one request and some tokens.
    pub fn acquire(&self, tokens: u64) -> AcquireBuilder {
        self.limiter.acquire(ENTITY, RESOURCE).take("requests", 1).take("tokens", tokens)
    }

    pub fn key(&self, shard: u32) -> BucketKey<'static> {
        self.key_of(ENTITY, shard)
    }

    fn key_of(&self, entity: &'static str, shard: u32) -> BucketKey<'static> {
        BucketKey {
            namespace: self.namespace.clone(),
            entity: Entity::new(entity).expect("an entity"),
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

    /// Deletes a shard, as TTL does.
    pub async fn delete(&self, shard: u32) -> anyhow::Result<()> {
        let delete = self.services.dynamodb.delete_item().table_name(&self.services.table);
        delete.set_key(Some(item::key(&self.key(shard)))).send().await?;
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
        self.totals_of(ENTITY, limit, count).await
    }

    /// The same, of another entity.
    pub async fn totals_of(&self, entity: &'static str, limit: &'static str, count: u32) -> anyhow::Result<(i64, i64)> {
        let buckets = Buckets::new(self.services.dynamodb.clone(), &self.services.table);
        let shards = buckets.read(&self.key_of(entity, 0), 0..count, Consistency::Strong).await?;
        let limit = Limit::new(limit)?;
        let limits: Vec<_> = shards.states.values().filter_map(|state| state.limits.get(&limit)).collect();
        Ok((limits.iter().map(|of| of.tokens.get()).sum(), limits.iter().map(|of| of.consumed.get()).sum()))
    }

    /// An attribute of a shard.
    pub async fn attribute(&self, shard: u32, name: &str) -> anyhow::Result<Option<AttributeValue>> {
        Ok(self.item(shard).await?.context("no such shard")?.remove(name))
    }

    /// Splits the bucket into so many shards, as clients do when its partition is too hot.
    pub async fn spread(&self, shards: u32) -> anyhow::Result<()> {
        let buckets = Buckets::new(self.services.dynamodb.clone(), &self.services.table);
        let read = buckets.read(&self.key(0), 0..1, Consistency::Strong).await?;
        let plan =
            split::plan(&read.states, ShardCount::new(shards).context("no shards")?).context("nothing to split")?;
        buckets.increase_shards(&self.key(0), &read, &plan).await?;
        Ok(())
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
