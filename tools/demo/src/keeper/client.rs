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

use super::phases::{Phase, Terms};
use tidegate_sandbox::item::{self, Item, Limit, number, read, text};

const LIMIT: &str = "rpm";
/// What a speculative write takes of the reserved limit, in millitokens.
const WRITE: i64 = 1_000;
/// What the reserved limit holds, and gets back each second.
const WRITE_UNITS: i64 = 1_000_000;
/// Clients do not double the shards beyond this.
const MAX_SHARDS: u32 = 32;
/// How many other shards a client tries when a limit of its own is short.
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

/// A bucket item, as a client sees it at a moment.
struct Seen {
    shards: u32,
    last_refill: i64,
    limit: Limit,
    write_units: Limit,
    /// The tokens and write units after a refill by the elapsed time.
    refilled: i64,
    refilled_units: i64,
}

impl Seen {
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
        let seen = match self.speculate(shard, now).await? {
            Speculation::Admitted => return Ok(Acquired::First),
            Speculation::Missing => return self.acquire_slowly(shard, now).await,
            Speculation::Short(seen) => seen,
        };
        let fits = seen.refilled >= self.amount;
        if seen.write_units.tokens < WRITE && fits {
            if seen.refilled_units < WRITE && seen.shards < MAX_SHARDS {
                self.double(seen.shards).await?;
                let new = self.rng.random_range(seen.shards..self.shards.max(seen.shards + 1));
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
        let [tokens, consumed] = fields(LIMIT);
        let [units, used] = fields(LimitName::WRITE_UNITS);
        let update = self
            .update(shard)
            .update_expression(format!("ADD {tokens} :minus, {consumed} :amount, {units} :minus_write, {used} :write"))
            .condition_expression(format!(
                "attribute_exists({}) AND {tokens} >= :amount AND {units} >= :write",
                schema::PK
            ))
            .expression_attribute_values(":minus", number(-self.amount))
            .expression_attribute_values(":amount", number(self.amount))
            .expression_attribute_values(":minus_write", number(-WRITE))
            .expression_attribute_values(":write", number(WRITE));
        Ok(match send(update).await? {
            Ok(item) => {
                self.learn(&item)?;
                Speculation::Admitted
            }
            Err(Some(item)) => {
                self.learn(&item)?;
                Speculation::Short(Seen::new(&item, now)?)
            }
            Err(None) => Speculation::Missing,
        })
    }

    /// Reads a shard, and writes what has accrued on it together with what is taken; creates it if it is missing.
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
        let Seen { last_refill, limit, write_units, refilled, refilled_units, .. } = Seen::new(&item, now)?;
        if refilled < self.amount {
            return Ok(Acquired::Rejected);
        }
        let [tokens, consumed] = fields(LIMIT);
        let [units, _] = fields(LimitName::WRITE_UNITS);
        let rf = bucket::LAST_REFILL;
        let update = self
            .update(shard)
            .update_expression(format!("SET {rf} = :now ADD {tokens} :change, {consumed} :amount, {units} :units"))
            .condition_expression(format!("{rf} = :seen AND {tokens} BETWEEN :least AND :read"))
            .expression_attribute_values(":now", number(now.get().max(last_refill)))
            .expression_attribute_values(":seen", number(last_refill))
            .expression_attribute_values(":change", number(refilled - limit.tokens - self.amount))
            .expression_attribute_values(":amount", number(self.amount))
            .expression_attribute_values(":units", number(refilled_units - write_units.tokens))
            .expression_attribute_values(":least", number(limit.tokens - (refilled - self.amount)))
            .expression_attribute_values(":read", number(limit.tokens));
        ensure!(send(update).await?.is_ok(), "a slow path lost a race");
        Ok(Acquired::Later)
    }

    /// Doubles the shards, unless somebody else has done so, and writes the new number to those that exist.
    async fn double(&mut self, seen: u32) -> anyhow::Result<()> {
        let count = bucket::SHARD_COUNT;
        let raise = |shard, condition: &str| {
            self.update(shard)
                .update_expression(format!("SET {count} = :new"))
                .condition_expression(format!("{count} {condition}"))
                .expression_attribute_values(":new", number(seen * 2))
        };
        let doubled = send(raise(0, "= :seen").expression_attribute_values(":seen", number(seen))).await?;
        if let Err(Some(item)) = doubled {
            return self.learn(&item);
        }
        for shard in 1..seen {
            // A shard that is missing, or that has the new number, stays as it is.
            drop(send(raise(shard, "< :new")).await?);
        }
        self.shards = self.shards.max(seen * 2);
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
        let put = self.dynamodb.put_item().table_name(&self.table).set_item(Some(item));
        let put = put.condition_expression(format!("attribute_not_exists({})", schema::PK));
        put.send().await.context("a client could not create a shard")?;
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
        let key = item::key(&self.bucket.at(Shard::new(shard)));
        self.dynamodb.update_item().table_name(&self.table).set_key(Some(key))
    }
}

/// The attributes of a limit's tokens and of what was consumed of it.
fn fields(limit: &str) -> [String; 2] {
    [bucket::TOKENS, bucket::CONSUMED].map(|field| bucket::attribute(limit, field))
}

/// How a speculative write ended.
enum Speculation {
    Admitted,
    Short(Seen),
    Missing,
}

/// Sends an update: the item after it or, if its condition failed, the item before it, if there is one.
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

/// The whole tokens of a bucket's shards that exist, and the number of shards that shard 0 has.
pub(crate) async fn held(
    dynamodb: &Client,
    table: &str,
    bucket: &BucketKey<'_>,
) -> anyhow::Result<(BTreeMap<u32, i64>, u32)> {
    let (mut held, mut shards) = (BTreeMap::new(), 1);
    let mut shard = 0;
    while shard < shards {
        let get = dynamodb.get_item().table_name(table).set_key(Some(item::key(&bucket.at(Shard::new(shard)))));
        if let Some(item) = get.consistent_read(true).send().await?.item {
            if shard == 0 {
                shards = u32::try_from(read(&item, bucket::SHARD_COUNT)?)?;
            }
            held.insert(shard, Limit::read(LIMIT, &item)?.tokens / 1000);
        }
        shard += 1;
    }
    Ok((held, shards))
}
