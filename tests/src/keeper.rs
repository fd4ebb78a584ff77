//! `bucket-keeper` between an embedded table and an embedded queue, and buckets as clients write them.

use std::{collections::BTreeMap, sync::Arc};

use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use bucket_keeper::{BucketKeeper, handler::Handled, repair::Repaired};
use futures::{TryStreamExt as _, stream};
use tidegate_aws::{
    buckets::{Consistency, Shards},
    image::image_of,
    registry::Entry,
    schema::{self, bucket},
    stream::StreamEvent,
};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard},
    pressure::SpreadCheck,
    state::{BucketState, LimitState, ShardCount, Terms},
    tokens::Millitokens,
};
use tidegate_sandbox::{
    functions::bucket_keeper,
    item::{self, Item},
    mapping::StreamRecord,
    services::Services,
    stream::StreamReader,
};

use crate::prelude::*;

/// What the scenarios of `bucket-keeper` use.
pub mod prelude {
    pub use std::collections::{BTreeMap, BTreeSet};

    pub use bucket_keeper::{handler::Handled, report::KeeperReport};
    pub use tidegate_aws::{registry::Entry, stream::StreamEvent};
    pub use tidegate_domain::{
        bucket::{BucketKey, Shard},
        state::BucketState,
        tokens::Millitokens,
    };
    pub use tidegate_sandbox::{item::Item, mapping::StreamRecord};

    pub use super::{
        KeeperScene, START, a_minute, add, count, full, insert, item, key, limit, limit_of, set_tokens, shard, spread,
        take, tokens,
    };
    pub use crate::prelude::*;
}

/// A quarter of a second after 2025-12-31T23:30:00Z.
pub const START: i64 = 1_767_223_800_250;

/// `bucket-keeper` on embedded services of its own.
#[derive(Debug)]
pub struct KeeperScene {
    /// The table and the queue, undisturbed.
    pub services: Services,
    /// The function's connection to the table.
    pub http: FaultyHttp,
    pub keeper: BucketKeeper,
    reader: StreamReader,
}

impl KeeperScene {
    /// The function with its default policies and a dead-letter queue, undisturbed.
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// The same; its calls of the table meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        let http = FaultyHttp::new(rates, seed);
        let keeper = keeper(&services, &http)?;
        let reader = StreamReader::new(services.streams.clone(), services.stream_arn().await?);
        Ok(Self { services, http, keeper, reader })
    }

    /// Another process of the same function.
    pub fn another_process(&self) -> anyhow::Result<BucketKeeper> {
        keeper(&self.services, &self.http)
    }

    /// Writes a bucket item as a client would.
    pub async fn put(&self, key: &BucketKey<'_>, state: &BucketState<'_>) -> anyhow::Result<()> {
        self.put_item(item(key, state)).await
    }

    pub async fn put_item(&self, item: Item) -> anyhow::Result<()> {
        let put = self.services.dynamodb.put_item().table_name(&self.services.table);
        put.set_item(Some(item)).send().await?;
        Ok(())
    }

    pub async fn put_all(&self, items: impl Iterator<Item = Item>) -> anyhow::Result<()> {
        let put = |item| PutRequest::builder().set_item(Some(item)).build();
        let puts = items.map(|item| Ok(WriteRequest::builder().put_request(put(item)?).build()));
        let puts: Vec<_> = puts.collect::<anyhow::Result<_>>()?;
        let batches = puts.chunks(25).map(|batch| anyhow::Ok(batch.to_vec()));
        let write = async |batch| {
            let Services { dynamodb, table, .. } = &self.services;
            dynamodb.batch_write_item().request_items(table, batch).send().await?;
            Ok(())
        };
        stream::iter(batches).try_for_each_concurrent(8, write).await
    }

    /// Changes a bucket item as a client would. No other write may happen meanwhile.
    pub async fn change(
        &self,
        key: &BucketKey<'_>,
        change: impl FnOnce(&mut BucketState<'static>),
    ) -> anyhow::Result<()> {
        let mut state = self.state(key).await?;
        change(&mut state);
        let change = |changed: &mut Item| {
            changed.remove(schema::TTL);
            changed.extend(item(key, &state));
            Ok(())
        };
        self.change_item(key, change).await
    }

    /// The same, attribute by attribute.
    pub async fn change_item(
        &self,
        key: &BucketKey<'_>,
        change: impl FnOnce(&mut Item) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut item = self.item(key).await?;
        change(&mut item)?;
        self.put_item(item).await
    }

    pub async fn delete(&self, key: &BucketKey<'_>) -> anyhow::Result<()> {
        let delete = self.services.dynamodb.delete_item().table_name(&self.services.table);
        delete.set_key(Some(item::key(key))).send().await?;
        Ok(())
    }

    /// A bucket item with all its attributes. Empty if the item does not exist.
    pub async fn item(&self, key: &BucketKey<'_>) -> anyhow::Result<Item> {
        let get = self.services.dynamodb.get_item().table_name(&self.services.table).consistent_read(true);
        Ok(get.set_key(Some(item::key(key))).send().await?.item.unwrap_or_default())
    }

    /// A bucket item as the function reads it, except for its size.
    pub async fn state(&self, key: &BucketKey<'_>) -> anyhow::Result<BucketState<'static>> {
        let image = image_of(&self.item(key).await?)?;
        let state = image.plain().cloned().with_context(|| format!("{key:?} is {image:?}"))?;
        Ok(BucketState { bytes: 0, ..state })
    }

    /// The shards of a bucket below this number, as the function reads them, except for their sizes.
    pub async fn shards(&self, key: &BucketKey<'_>, below: u32) -> anyhow::Result<Shards> {
        let mut shards = self.keeper.buckets.read(key, 0..below, Consistency::Strong).await?;
        for state in shards.states.values_mut() {
            state.bytes = 0;
        }
        Ok(shards)
    }

    /// The tokens of a limit, in millitokens, shard by shard.
    pub async fn held(&self, key: &BucketKey<'_>, name: &'static str) -> anyhow::Result<Vec<i64>> {
        Ok(self.shards(key, 64).await?.states.values().map(|state| tokens(state, name)).collect())
    }

    /// All items of the table by their keys.
    pub async fn table(&self) -> anyhow::Result<BTreeMap<String, Item>> {
        let mut items = BTreeMap::new();
        let mut start = None;
        loop {
            let scan = self.services.dynamodb.scan().table_name(&self.services.table).set_exclusive_start_key(start);
            let page = scan.send().await?;
            for item in page.items.unwrap_or_default() {
                let part = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
                items.insert(format!("{} {}", part(schema::PK), part(schema::SK)), item);
            }
            start = page.last_evaluated_key;
            if start.is_none() {
                return Ok(items);
            }
        }
    }

    /// The records of all writes since the last request, created at the moment `created`.
    pub async fn records(&mut self, created: i64) -> anyhow::Result<Vec<StreamRecord>> {
        Ok(self.reader.drain(time(created)).await?.into_values().flatten().collect())
    }

    pub async fn event(&mut self, created: i64) -> anyhow::Result<StreamEvent> {
        event(&self.records(created).await?)
    }

    /// The number of writes since the last request for records.
    pub async fn writes(&mut self) -> anyhow::Result<usize> {
        Ok(self.records(START).await?.len())
    }

    /// Invokes the function with a batch, with more time than it needs.
    pub async fn invoke(&self, event: &StreamEvent, now: i64) -> Handled {
        self.keeper.handle(event, time(now), in_time()).await
    }

    /// Invokes the function for a repair, with more time than it needs.
    pub async fn repair(&self, now: i64) -> anyhow::Result<Repaired> {
        let repaired = self.keeper.repair(time(now), in_time()).await;
        let complete = repaired.complete?;
        Ok(Repaired { report: repaired.report, complete: Ok(complete) })
    }

    /// Enters a bucket into the registry, with no check of how its writes spread.
    pub async fn enter(&self, key: &BucketKey<'static>, shards: u32) -> anyhow::Result<()> {
        let entry = Entry { bucket: key.clone(), shards: count(shards), check: None };
        Ok(self.keeper.registry.enter(&entry).await?)
    }
}

fn keeper(services: &Services, http: &FaultyHttp) -> anyhow::Result<BucketKeeper> {
    let function = Arc::into_inner(bucket_keeper(services, http, time(START))?);
    Ok(function.context("another owner of the function")?.keeper)
}

/// A check of how writes spread: when, and what shard 0 and the newest shards had consumed, in millitokens.
pub fn spread(at: i64, zero: i64, newest: i64) -> SpreadCheck {
    SpreadCheck { at: time(at), zero: Millitokens::new(zero), newest: Millitokens::new(newest) }
}

/// Shard 0 of a bucket.
pub fn key(entity: &str) -> BucketKey<'static> {
    BucketKey {
        namespace: Namespace::new("TQ5vSMvQTm4").expect("a namespace"),
        entity: Entity::new(entity.to_owned()).expect("an entity"),
        resource: Resource::new("api").expect("a resource"),
        shard: Shard::ZERO,
    }
}

/// Another shard of the same bucket.
pub fn shard(key: &BucketKey<'static>, number: u32) -> BucketKey<'static> {
    BucketKey { shard: Shard::new(number), ..key.clone() }
}

pub fn limit(name: &'static str) -> Limit<'static> {
    Limit::new(name).expect("a limit")
}

pub fn count(shards: u32) -> ShardCount {
    ShardCount::new(shards).expect("a number of shards")
}

/// A limit of so many tokens at once, and as many a minute.
pub fn a_minute(tokens: i64) -> Terms {
    Terms { capacity: Millitokens::new(tokens * 1_000), refill: Millitokens::new(tokens * 1_000), period: 60_000 }
}

/// A shard of a bucket with limits of 100 requests and 10,000 tokens a minute, full since `START`.
pub fn full(shards: u32) -> BucketState<'static> {
    let write_units = Terms { period: 1_000, ..a_minute(1_000) };
    let terms = [("rpm", a_minute(100)), ("tpm", a_minute(10_000)), (Limit::WRITE_UNITS, write_units)];
    let limits = terms.map(|(name, terms)| {
        let tokens = terms.share(&limit(name), count(shards)).capacity;
        (limit(name), LimitState { tokens, consumed: Millitokens::default(), terms })
    });
    BucketState { last_refill: time(START), shards: count(shards), expires: None, bytes: 0, limits: limits.into() }
}

/// A shard's tokens of a limit, in millitokens.
pub fn tokens(state: &BucketState<'static>, name: &'static str) -> i64 {
    state.limits[&limit(name)].tokens.get()
}

/// Sets the tokens of a limit, in millitokens.
pub fn set_tokens(state: &mut BucketState<'static>, name: &'static str, tokens: i64) {
    limit_of(state, name).tokens = Millitokens::new(tokens);
}

/// Consumes of a limit, as a client does, in millitokens.
pub fn take(state: &mut BucketState<'static>, name: &'static str, taken: i64) {
    let limit = limit_of(state, name);
    limit.tokens = Millitokens::new(limit.tokens.get() - taken);
    limit.consumed = Millitokens::new(limit.consumed.get() + taken);
}

pub fn limit_of<'s>(state: &'s mut BucketState<'static>, name: &'static str) -> &'s mut LimitState {
    state.limits.get_mut(&limit(name)).expect("the limit")
}

/// Inserts an attribute into an item, as an argument of [`KeeperScene::change_item`].
pub fn insert(name: impl Into<String>, value: AttributeValue) -> impl FnOnce(&mut Item) -> anyhow::Result<()> {
    let name = name.into();
    move |item| {
        item.insert(name, value);
        Ok(())
    }
}

/// Adds to a number of an item.
pub fn add(item: &mut Item, name: &str, change: i64) -> anyhow::Result<()> {
    let changed = item::read(item, name)? + change;
    item.insert(name.to_owned(), number(changed));
    Ok(())
}

/// The attribute of a limit's field.
pub fn attribute(limit: &Limit<'_>, field: &str) -> String {
    bucket::attribute(limit.as_str(), field)
}

/// A bucket item with all that a client writes.
pub fn item(key: &BucketKey<'_>, state: &BucketState<'_>) -> Item {
    let mut item = item::bucket(key, state.last_refill, state.shards.get());
    item.extend(state.expires.map(|expires| (schema::TTL.to_owned(), number(expires))));
    for (limit, LimitState { tokens, consumed, terms: Terms { capacity, refill, period } }) in &state.limits {
        let [tokens, consumed, capacity, refill] = [tokens, consumed, capacity, refill].map(|amount| amount.get());
        item::Limit { tokens, consumed, capacity, refill, period: *period }.put(limit.as_str(), &mut item);
    }
    item
}
