//! Clients of one bucket, in one process: speculative acquires on a shard drawn at random, the slow path on
//! shard 0, and doubling when a shard's write units have run out, whatever has accrued.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::{
    Client,
    operation::{
        put_item::PutItemError,
        update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    },
    types::{ReturnValue, ReturnValuesOnConditionCheckFailure},
};
use futures::future;
use rand::{RngExt as _, rngs::StdRng};
use tidegate_aws::schema::{self, bucket};
use tidegate_domain::{
    bucket::{BucketKey, Limit as LimitName, Shard},
    time::EpochMillis,
};

use super::phases::Terms;
use crate::item::{self, Item, Limit, number, read};

const LIMIT: &str = "rpm";
/// What a speculative write takes of the reserved limit, which holds a thousand times as much and gets it back
/// each second.
const WRITE: i64 = 1_000;
const WRITE_UNITS: i64 = 1_000_000;
/// Beyond this, clients do not double.
const MOST_SHARDS: u32 = 32;

/// The clients of a bucket.
#[derive(Debug)]
pub(crate) struct Clients {
    dynamodb: Client,
    table: String,
    bucket: BucketKey<'static>,
    terms: Terms,
    /// What an acquire takes, in millitokens.
    taken: i64,
    /// How many shards they know of.
    shards: AtomicU32,
}

/// How an acquire ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// By the first, speculative write.
    Speculatively,
    /// On the slow path.
    Slowly,
    /// Not at all.
    Rejected,
}

/// What an item holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// In millitokens.
    pub(crate) tokens: i64,
    pub(crate) shards: u32,
}

impl Clients {
    /// Clients that take so many whole tokens at a time.
    pub(crate) fn new(
        dynamodb: Client,
        table: impl Into<String>,
        bucket: BucketKey<'static>,
        terms: Terms,
        tokens: i64,
    ) -> Self {
        Self { dynamodb, table: table.into(), bucket, terms, taken: tokens * 1000, shards: AtomicU32::new(1) }
    }

    /// The shard that the next acquire tries.
    pub(crate) fn draw(&self, rng: &mut StdRng) -> u32 {
        rng.random_range(0..self.shards.load(Ordering::Relaxed))
    }

    /// Acquires tokens, speculatively from this shard.
    pub(crate) async fn acquire(&self, shard: u32, now: EpochMillis) -> anyhow::Result<Acquired> {
        let update = self
            .update(shard)
            .update_expression("ADD #tk :given, #tc :taken, #wcu_tk :wcu_given, #wcu_tc :wcu_taken")
            .condition_expression("attribute_exists(#pk) AND #tk >= :taken AND #wcu_tk >= :wcu_taken AND (attribute_not_exists(#ttl) OR #ttl > :now)")
            .expression_attribute_names("#pk", schema::PK)
            .expression_attribute_names("#tk", bucket::attribute(LIMIT, bucket::TOKENS))
            .expression_attribute_names("#tc", bucket::attribute(LIMIT, bucket::CONSUMED))
            .expression_attribute_names("#wcu_tk", bucket::attribute(LimitName::WRITE_UNITS, bucket::TOKENS))
            .expression_attribute_names("#wcu_tc", bucket::attribute(LimitName::WRITE_UNITS, bucket::CONSUMED))
            .expression_attribute_names("#ttl", schema::TTL)
            .expression_attribute_values(":given", number(-self.taken))
            .expression_attribute_values(":taken", number(self.taken))
            .expression_attribute_values(":wcu_given", number(-WRITE))
            .expression_attribute_values(":wcu_taken", number(WRITE))
            .expression_attribute_values(":now", number(now.get() / 1000))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match send(update).await? {
            Ok(after) => {
                self.learn(&after)?;
                return Ok(Acquired::Speculatively);
            }
            Err(Some(before)) => {
                let shards = self.learn(&before)?;
                if Limit::read(LimitName::WRITE_UNITS, &before)?.with_accrued(&before, now)? < WRITE {
                    self.double(shards).await?;
                }
            }
            Err(None) => {}
        }
        self.acquire_slowly(now).await
    }

    /// Reads shard 0, and writes what has accrued on it together with what is taken.
    async fn acquire_slowly(&self, now: EpochMillis) -> anyhow::Result<Acquired> {
        let Some(item) = self.item(0).await? else {
            let is_created = self.create(0, 1, self.terms.capacity * 1000 - self.taken, now).await?;
            return if is_created { Ok(Acquired::Slowly) } else { self.acquire_without_refill().await };
        };
        self.learn(&item)?;
        let last_refill = read(&item, bucket::LAST_REFILL)?;
        let (limit, write_units) = (Limit::read(LIMIT, &item)?, Limit::read(LimitName::WRITE_UNITS, &item)?);
        let refill = limit.with_accrued(&item, now)? - limit.tokens;
        let refill_of_units = write_units.with_accrued(&item, now)? - write_units.tokens;
        if limit.tokens + refill < self.taken {
            return Ok(Acquired::Rejected);
        }
        let update = self
            .update(0)
            .update_expression("SET #rf = :now ADD #tk :given, #tc :taken, #wcu_tk :wcu_given")
            .condition_expression("#rf = :seen AND #tk >= :least")
            .expression_attribute_names("#rf", bucket::LAST_REFILL)
            .expression_attribute_names("#tk", bucket::attribute(LIMIT, bucket::TOKENS))
            .expression_attribute_names("#tc", bucket::attribute(LIMIT, bucket::CONSUMED))
            .expression_attribute_names("#wcu_tk", bucket::attribute(LimitName::WRITE_UNITS, bucket::TOKENS))
            .expression_attribute_values(":now", number(now.get()))
            .expression_attribute_values(":seen", number(last_refill))
            .expression_attribute_values(":least", number(self.taken - refill))
            .expression_attribute_values(":given", number(refill - self.taken))
            .expression_attribute_values(":taken", number(self.taken))
            .expression_attribute_values(":wcu_given", number(refill_of_units));
        match send(update).await? {
            Ok(_) => Ok(Acquired::Slowly),
            Err(_) => self.acquire_without_refill().await,
        }
    }

    /// After a lost race, somebody else has refilled.
    async fn acquire_without_refill(&self) -> anyhow::Result<Acquired> {
        let update = self
            .update(0)
            .update_expression("ADD #tk :given, #tc :taken")
            .condition_expression("#tk >= :taken")
            .expression_attribute_names("#tk", bucket::attribute(LIMIT, bucket::TOKENS))
            .expression_attribute_names("#tc", bucket::attribute(LIMIT, bucket::CONSUMED))
            .expression_attribute_values(":given", number(-self.taken))
            .expression_attribute_values(":taken", number(self.taken));
        Ok(send(update).await?.map_or(Acquired::Rejected, |_| Acquired::Slowly))
    }

    /// Doubles the shards, unless another client has done so.
    async fn double(&self, shards: u32) -> anyhow::Result<()> {
        if shards >= MOST_SHARDS {
            return Ok(());
        }
        let update = self
            .update(0)
            .update_expression("SET #shards = :doubled")
            .condition_expression("#shards = :seen")
            .expression_attribute_names("#shards", bucket::SHARD_COUNT)
            .expression_attribute_values(":seen", number(shards))
            .expression_attribute_values(":doubled", number(shards * 2));
        if send(update).await?.is_ok() {
            self.shards.fetch_max(shards * 2, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts a shard if there is none: whether there was none.
    pub(crate) async fn create(&self, shard: u32, shards: u32, tokens: i64, now: EpochMillis) -> anyhow::Result<bool> {
        let mut item = item::bucket(&self.bucket.at(Shard::new(shard)), now, shards);
        let Terms { capacity, refill, period } = self.terms;
        let (capacity, refill) = (capacity * 1000, refill * 1000);
        let consumed = if shards == 1 { self.taken } else { 0 };
        Limit { tokens, consumed, capacity, refill, period }.put(LIMIT, &mut item);
        let write_units =
            Limit { tokens: WRITE_UNITS, consumed: 0, capacity: WRITE_UNITS, refill: WRITE_UNITS, period: 1_000 };
        write_units.put(LimitName::WRITE_UNITS, &mut item);
        let put = self.dynamodb.put_item().table_name(&self.table).set_item(Some(item));
        match put.condition_expression(format!("attribute_not_exists({})", schema::PK)).send().await {
            Ok(_) => Ok(true),
            Err(error) => match error.into_service_error() {
                PutItemError::ConditionalCheckFailedException(_) => Ok(false),
                error => Err(error).context("a client could not create a bucket"),
            },
        }
    }

    /// Drains a shard by speculative writes, of which none may fail.
    pub(crate) async fn drain(&self, shard: u32, tokens: i64, now: EpochMillis) -> anyhow::Result<()> {
        for _ in 0..tokens {
            ensure!(self.acquire(shard, now).await? == Acquired::Speculatively, "shard {shard} holds too little");
        }
        Ok(())
    }

    /// What a shard holds, if it is there.
    pub(crate) async fn held(&self, shard: u32) -> anyhow::Result<Option<Held>> {
        let Some(item) = self.item(shard).await? else { return Ok(None) };
        let shards = u32::try_from(read(&item, bucket::SHARD_COUNT)?)?;
        Ok(Some(Held { tokens: Limit::read(LIMIT, &item)?.tokens, shards }))
    }

    /// What the shards hold that are there, of those that shard 0 says there are.
    pub(crate) async fn all_held(&self) -> anyhow::Result<Vec<Held>> {
        let shards = self.held(0).await?.map_or(0, |zero| zero.shards);
        let held = future::try_join_all((0..shards).map(|shard| self.held(shard))).await?;
        Ok(held.into_iter().flatten().collect())
    }

    async fn item(&self, shard: u32) -> anyhow::Result<Option<Item>> {
        let get = self.dynamodb.get_item().table_name(&self.table).consistent_read(true);
        let get = get.set_key(Some(item::key(&self.bucket.at(Shard::new(shard)))));
        Ok(get.send().await.context("a client could not read a bucket")?.item)
    }

    /// Learns of more shards from a response.
    fn learn(&self, item: &Item) -> anyhow::Result<u32> {
        let shards = u32::try_from(read(item, bucket::SHARD_COUNT)?)?;
        self.shards.fetch_max(shards, Ordering::Relaxed);
        Ok(shards)
    }

    fn update(&self, shard: u32) -> UpdateItemFluentBuilder {
        let key = item::key(&self.bucket.at(Shard::new(shard)));
        self.dynamodb.update_item().table_name(&self.table).set_key(Some(key))
    }
}

/// Sends an update: the item after it, or, if its condition does not hold, the one before, if asked for.
async fn send(update: UpdateItemFluentBuilder) -> anyhow::Result<Result<Item, Option<Item>>> {
    match update.send().await {
        Ok(output) => Ok(Ok(output.attributes.unwrap_or_default())),
        Err(error) => match error.into_service_error() {
            UpdateItemError::ConditionalCheckFailedException(failed) => Ok(Err(failed.item)),
            error => Err(error).context("a client could not write a bucket"),
        },
    }
}
