//! The clients of one bucket, as zae-limiter from 0.13 to 0.17: a speculative write on a shard drawn at random, a slow
//! path on that shard if the write fails, and new shards when its write units run out.
//!
//! An acquire ends before the next one begins. Clients therefore never race each other. This
//! favours the run without the keeper, and a run with the same seed gives the same figures.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::{
    Client,
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::{KeysAndAttributes, ReturnValue, ReturnValuesOnConditionCheckFailure},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_aws::schema::{self, bucket, config};
use tidegate_domain::{
    bucket::{BucketKey, Limit as LimitName, Resource, Shard},
    time::EpochMillis,
};
use tidegate_sandbox::item::{self, Item, Limit, number, read, text};

use super::phases::Phase;
use crate::exact_bucket::Terms;

const LIMIT: &str = "rpm";
/// The write units that a speculative write takes, in millitokens.
const WRITE: i64 = 1_000;
/// The write units that a shard has, and gets back each second, in millitokens.
const WRITE_UNITS: i64 = 1_000_000;
/// Clients do not double the shards beyond this.
const MAX_SHARDS: u32 = 32;
/// How many other shards a client tries when a limit is short.
const OTHER_SHARDS: u32 = 2;

/// The clients of a bucket, which share one cache.
#[derive(Debug)]
pub(crate) struct Clients {
    dynamodb: Client,
    table: String,
    bucket: BucketKey<'static>,
    terms: Terms,
    /// What an acquire takes, in millitokens.
    amount: i64,
    /// The cached number of shards, which only grows.
    shards: u32,
    rng: StdRng,
    pub(crate) slow_paths: u64,
    /// Shards above 0 that the clients created with a full share.
    pub(crate) created: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The first write admitted it.
    First,
    /// Another shard or the slow path admitted it.
    Later,
    /// Nothing admitted it.
    Rejected,
}

/// A bucket item, as a client reads it at a given time.
struct BucketView {
    shards: u32,
    last_refill: i64,
    limit: Limit,
    write_units: Limit,
    /// The tokens and write units after a refill by the elapsed time.
    refilled: i64,
    refilled_units: i64,
}

impl BucketView {
    fn new(item: &Item, now: EpochMillis) -> anyhow::Result<Self> {
        let shards = u32::try_from(read(item, bucket::SHARD_COUNT)?)?;
        let last_refill = read(item, bucket::LAST_REFILL)?;
        let (limit, write_units) = (Limit::read(LIMIT, item)?, Limit::read(LimitName::WRITE_UNITS, item)?);
        let elapsed = (now.get() - last_refill).max(0);
        let refilled = limit.after(elapsed, shards);
        Ok(Self { shards, last_refill, limit, write_units, refilled, refilled_units: write_units.after(elapsed, 1) })
    }
}

impl Clients {
    /// The clients of a phase's bucket.
    pub(crate) fn new(dynamodb: Client, table: &str, bucket: BucketKey<'static>, phase: &Phase, seed: u64) -> Self {
        let Phase { terms, tokens, .. } = *phase;
        let rng = StdRng::seed_from_u64(seed);
        let table = table.to_owned();
        Self { dynamodb, table, bucket, terms, amount: tokens * 1000, shards: 1, rng, slow_paths: 0, created: 0 }
    }

    /// Acquires tokens from a shard drawn at random.
    pub(crate) async fn acquire(&mut self, now: EpochMillis) -> anyhow::Result<Acquired> {
        let shard = self.rng.random_range(0..self.shards);
        self.acquire_from(shard, now).await
    }

    /// Acquires tokens from this shard first.
    pub(crate) async fn acquire_from(&mut self, shard: u32, now: EpochMillis) -> anyhow::Result<Acquired> {
        let view = match self.speculate(shard, now).await? {
            Speculation::Admitted => return Ok(Acquired::First),
            Speculation::Missing => return self.acquire_slowly(shard, now).await,
            Speculation::Short(view) => view,
        };
        let fits = view.refilled >= self.amount;
        if view.write_units.tokens < WRITE && fits {
            if view.refilled_units < WRITE && view.shards < MAX_SHARDS {
                self.double(view.shards).await?;
                let new = self.rng.random_range(view.shards..self.shards.max(view.shards + 1));
                return self.acquire_slowly(new, now).await;
            }
        } else if self.shards > 1 {
            for hop in 1..=OTHER_SHARDS.min(self.shards - 1) {
                let other = (shard + hop) % self.shards;
                match self.speculate(other, now).await? {
                    Speculation::Admitted => return Ok(Acquired::Later),
                    Speculation::Missing => return self.acquire_slowly(other, now).await,
                    Speculation::Short(_) => {}
                }
            }
        }
        if fits { self.acquire_slowly(shard, now).await } else { Ok(Acquired::Rejected) }
    }

    async fn speculate(&mut self, shard: u32, now: EpochMillis) -> anyhow::Result<Speculation> {
        let taken = [(LIMIT, self.amount), (LimitName::WRITE_UNITS, WRITE)];
        let enough = taken.map(|(limit, _)| item::has_enough(limit)).join(" AND ");
        let update =
            item::take(self.update(shard), &taken).condition_expression(format!("{} AND {enough}", item::exists()));
        Ok(match send(update).await? {
            Ok(item) => {
                self.learn(&item)?;
                Speculation::Admitted
            }
            Err(Some(item)) => {
                self.learn(&item)?;
                Speculation::Short(BucketView::new(&item, now)?)
            }
            Err(None) => Speculation::Missing,
        })
    }

    /// Reads a shard and writes the accrued tokens minus the amount, or creates the shard if it is missing.
    async fn acquire_slowly(&mut self, shard: u32, now: EpochMillis) -> anyhow::Result<Acquired> {
        self.slow_paths += 1;
        let Some(item) = self.read_slowly(shard).await? else {
            let left = self.terms.capacity * 1000 / i64::from(self.shards) - self.amount;
            if left < 0 {
                return Ok(Acquired::Rejected);
            }
            self.create(shard, self.shards, left, now).await?;
            return Ok(Acquired::Later);
        };
        self.learn(&item)?;
        let BucketView { last_refill, limit, write_units, refilled, refilled_units, .. } = BucketView::new(&item, now)?;
        if refilled < self.amount {
            return Ok(Acquired::Rejected);
        }
        let [tokens, consumed] = [bucket::TOKENS, bucket::CONSUMED].map(|field| bucket::attribute(LIMIT, field));
        let units = bucket::attribute(LimitName::WRITE_UNITS, bucket::TOKENS);
        let rf = bucket::LAST_REFILL;
        let update = self
            .update(shard)
            .update_expression(format!("SET {rf} = :now ADD {tokens} :change, {consumed} :amount, {units} :units"))
            .condition_expression(format!("{rf} = :old AND {tokens} BETWEEN :least AND :read"))
            .expression_attribute_values(":now", number(now.get().max(last_refill)))
            .expression_attribute_values(":old", number(last_refill))
            .expression_attribute_values(":change", number(refilled - limit.tokens - self.amount))
            .expression_attribute_values(":amount", number(self.amount))
            .expression_attribute_values(":units", number(refilled_units - write_units.tokens))
            .expression_attribute_values(":least", number(limit.tokens - (refilled - self.amount)))
            .expression_attribute_values(":read", number(limit.tokens));
        ensure!(send(update).await?.is_ok(), "a slow path lost a race");
        Ok(Acquired::Later)
    }

    /// Doubles the shards unless shard 0 has a new number already, and writes the number to all shards that exist.
    async fn double(&mut self, shards: u32) -> anyhow::Result<()> {
        let count = bucket::SHARD_COUNT;
        let raise = |shard, condition: &str| {
            self.update(shard)
                .update_expression(format!("SET {count} = :new"))
                .condition_expression(format!("{count} {condition}"))
                .expression_attribute_values(":new", number(shards * 2))
        };
        let doubled = send(raise(0, "= :old").expression_attribute_values(":old", number(shards))).await?;
        if let Err(Some(item)) = doubled {
            return self.learn(&item);
        }
        for shard in 1..shards {
            // A shard that is missing, or that has the new number, stays as it is.
            drop(send(raise(shard, "< :new")).await?);
        }
        self.shards = self.shards.max(shards * 2);
        Ok(())
    }

    /// Creates a missing shard that holds these millitokens.
    pub(crate) async fn create(&mut self, shard: u32, shards: u32, left: i64, now: EpochMillis) -> anyhow::Result<()> {
        let mut item = item::bucket(&self.bucket.at(Shard::new(shard)), now, shards);
        let Terms { capacity, refill, period } = self.terms;
        let (capacity, refill) = (capacity * 1000, refill * 1000);
        let consumed = capacity / i64::from(shards) - left;
        Limit { tokens: left, consumed, capacity, refill, period }.put(LIMIT, &mut item);
        Limit { tokens: WRITE_UNITS, consumed: 0, capacity: WRITE_UNITS, refill: WRITE_UNITS, period: 1_000 }
            .put(LimitName::WRITE_UNITS, &mut item);
        ensure!(item::put_new(&self.dynamodb, &self.table, item).await?, "a client could not create a shard");
        self.created += u64::from(shard > 0);
        Ok(())
    }

    /// Reads a shard, its entity, and the configuration of the entity and the resource: eventually consistent.
    async fn read_slowly(&self, shard: u32) -> anyhow::Result<Option<Item>> {
        let BucketKey { namespace, entity, resource, .. } = &self.bucket;
        let entity = schema::entity_pk(namespace, entity);
        let keys = [
            (entity.clone(), "#META".to_owned()),
            (entity.clone(), schema::entity_config_sk(resource)),
            (entity, schema::entity_config_sk(&Resource::new("_default_")?)),
            (schema::resource_pk(namespace, resource), config::CONFIG.to_owned()),
            (schema::bucket_pk(&self.bucket.at(Shard::new(shard))), bucket::STATE.to_owned()),
        ];
        let keys = keys.map(|(pk, sk)| Item::from([(schema::PK.into(), text(pk)), (schema::SK.into(), text(sk))]));
        let keys = KeysAndAttributes::builder().set_keys(Some(keys.into())).build()?;
        let read = self.dynamodb.batch_get_item().request_items(&self.table, keys).send().await;
        let mut read = read.context("a client could not read a shard")?.responses.unwrap_or_default();
        // The table holds buckets only.
        Ok(read.remove(&self.table).and_then(|mut items| items.pop()))
    }

    /// Learns the number of shards from an item.
    fn learn(&mut self, item: &Item) -> anyhow::Result<()> {
        self.shards = self.shards.max(u32::try_from(read(item, bucket::SHARD_COUNT)?)?);
        Ok(())
    }

    fn update(&self, shard: u32) -> UpdateItemFluentBuilder {
        item::update(&self.dynamodb, &self.table, &self.bucket.at(Shard::new(shard)))
    }
}

/// How a speculative write ended.
enum Speculation {
    Admitted,
    Short(BucketView),
    Missing,
}

/// Sends an update. Returns the new item or, if the condition failed, the existing one.
async fn send(update: UpdateItemFluentBuilder) -> anyhow::Result<Result<Item, Option<Item>>> {
    let update = update
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
    match update.send().await {
        Ok(output) => Ok(Ok(output.attributes.unwrap_or_default())),
        Err(error) => match error.into_service_error() {
            UpdateItemError::ConditionalCheckFailedException(failed) => Ok(Err(failed.item)),
            error => Err(error).context("a client could not write a shard"),
        },
    }
}

/// Reads the whole tokens of the shards that exist, and the number of shards from shard 0.
pub(crate) async fn stored_tokens(
    dynamodb: &Client,
    table: &str,
    bucket: &BucketKey<'_>,
) -> anyhow::Result<(BTreeMap<u32, i64>, u32)> {
    let (mut tokens, mut shards) = (BTreeMap::new(), 1);
    let mut shard = 0;
    while shard < shards {
        let get = dynamodb.get_item().table_name(table).set_key(Some(item::key(&bucket.at(Shard::new(shard)))));
        if let Some(item) = get.consistent_read(true).send().await?.item {
            if shard == 0 {
                shards = u32::try_from(read(&item, bucket::SHARD_COUNT)?)?;
            }
            tokens.insert(shard, Limit::read(LIMIT, &item)?.tokens / 1000);
        }
        shard += 1;
    }
    Ok((tokens, shards))
}
