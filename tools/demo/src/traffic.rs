//! Clients of buckets: they create, adjust, refill and remove buckets and take tokens, with the writes of the real clients.
//! The totals of what they are granted are what the snapshots must show.

use anyhow::{Context as _, bail};
use aws_sdk_dynamodb::{
    Client,
    error::SdkError,
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::{AttributeValue, ReturnValue},
};
use futures::{StreamExt, stream};
use rand::{RngExt as _, SeedableRng, rngs::StdRng};
use tidegate_aws::schema::{self, bucket};
use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Limit, Namespace, Resource, Shard},
    time::EpochMillis,
    window::Window,
};
use tidegate_sandbox::{
    item::{self, number, read},
    usage_totals::{SnapshotName, UsageTotals},
};

const NAMESPACE: &str = "TQ5vSMvQTm4";
const RESOURCES: [&str; 3] = ["api", "bedrock/claude", "batch"];
/// The resource whose `tpm` is soft and starts empty, so that every acquire overdraws it.
const SOFT: &str = "batch";
const LIMITS: [&str; 2] = ["rpm", "tpm"];
/// More than any run takes, in millitokens, so that buckets never run dry.
const CAPACITY: i64 = 1_000_000_000_000;
/// The write units that a bucket has, and gets back each second, in millitokens.
const WRITE_UNITS: i64 = 1_000_000;
/// The write units that every write takes, in millitokens.
const WRITE: i64 = 1_000;
/// Attempts per acquire. Lost races are rare, so this many failures mean that the bucket is empty.
const TRIES: usize = 8;
/// How many clients write at the same time.
const CLIENTS: usize = 32;

/// The clients of one table.
#[derive(Debug)]
pub(crate) struct Traffic {
    client: Client,
    table: String,
    entities: u32,
    shards: u32,
    rng: StdRng,
    granted: UsageTotals,
    poisoned: usize,
}

/// What a client does next.
#[derive(Clone, Debug)]
enum Act {
    /// Takes whole tokens by a speculative write. Creates the bucket if it is missing.
    Acquire { bucket: Bucket, millitokens: [i64; 2] },
    /// Corrects an earlier acquire on shard 0, up or down, by fractions of tokens.
    Adjust { bucket: Bucket, millitokens: [i64; 2] },
    /// Refills shard 0 on the slow path, without consumption.
    Refill { bucket: Bucket },
    /// Deletes the bucket item, as TTL would.
    Remove { bucket: Bucket },
    /// A writer with a bug leaves a fractional counter in its own bucket.
    Poison { number: usize },
}

#[derive(Clone, Debug)]
struct Bucket {
    entity: u32,
    resource: &'static str,
    shard: u32,
}

/// The counters before and after a write, by limit, in millitokens.
struct Grant {
    bucket: Bucket,
    before: [i64; 2],
    after: [i64; 2],
    overdrawn: bool,
}

impl Traffic {
    /// Clients of `entities` tenants, on buckets of `shards` shards each. The same `seed` gives the same acts.
    pub(crate) fn new(client: Client, table: &str, entities: u32, shards: u32, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        Self { client, table: table.to_owned(), entities, shards, rng, granted: UsageTotals::default(), poisoned: 0 }
    }

    /// What was granted so far, by snapshot.
    pub(crate) fn granted(&self) -> &UsageTotals {
        &self.granted
    }

    /// How many poison records were written so far.
    pub(crate) fn poisoned(&self) -> usize {
        self.poisoned
    }

    /// Lets the clients act `acts` times at the simulated time `now`. A share of `poison` of the acts writes a poison
    /// record. Calls `acted` after each.
    pub(crate) async fn act(
        &mut self,
        now: EpochMillis,
        acts: usize,
        poison: f64,
        acted: impl Fn(),
    ) -> anyhow::Result<()> {
        let acts: Vec<Act> = (0..acts).map(|_| self.next(poison)).collect();
        let this = &*self;
        let mut grants = stream::iter(acts).map(async |act| this.perform(act, now).await).buffer_unordered(CLIENTS);
        let mut granted = Vec::new();
        while let Some(grant) = grants.next().await {
            granted.extend(grant?);
            acted();
        }
        drop(grants);
        for grant in granted {
            self.count(&grant, now);
        }
        Ok(())
    }

    fn next(&mut self, poison: f64) -> Act {
        if self.rng.random_bool(poison) {
            self.poisoned += 1;
            return Act::Poison { number: self.poisoned };
        }
        let mut bucket = Bucket {
            entity: self.rng.random_range(0..self.entities),
            resource: RESOURCES[self.rng.random_range(0..RESOURCES.len())],
            shard: 0,
        };
        match self.rng.random_range(0..1000) {
            0..80 => {
                let mut part = || self.rng.random_range(-1_500..3_000);
                Act::Adjust { millitokens: [part(), part()], bucket }
            }
            80..110 => Act::Refill { bucket },
            110..115 => Act::Remove { bucket },
            _ => {
                bucket.shard = self.rng.random_range(0..self.shards);
                Act::Acquire { bucket, millitokens: [1000, self.rng.random_range(1..2000) * 1000] }
            }
        }
    }

    async fn perform(&self, act: Act, now: EpochMillis) -> anyhow::Result<Option<Grant>> {
        match act {
            Act::Acquire { bucket, millitokens } => self.acquire(bucket, millitokens, now).await.map(Some),
            Act::Adjust { bucket, millitokens } => {
                let update = self.update(&bucket)?;
                self.take(update, &bucket, millitokens).await
            }
            Act::Refill { bucket } => self.refill(&bucket, now).await.map(|()| None),
            Act::Remove { bucket } => self.remove(&bucket).await.map(|()| None),
            Act::Poison { number } => self.poison(number).await.map(|()| None),
        }
    }

    async fn acquire(&self, bucket: Bucket, millitokens: [i64; 2], now: EpochMillis) -> anyhow::Result<Grant> {
        for _ in 0..TRIES {
            if let Some(grant) = self.draw(&bucket, millitokens, now).await? {
                return Ok(grant);
            }
            // Only shard 0 is created by an acquire; the others are clones that have consumed nothing.
            let first = if bucket.shard == 0 { millitokens } else { [0, 0] };
            if self.create(&bucket, first, now).await? && bucket.shard == 0 {
                return Ok(Grant { overdrawn: bucket.is_soft(), bucket, before: [0, 0], after: first });
            }
        }
        bail!("the bucket {bucket:?} exists and refused {millitokens:?} millitokens {TRIES} times: it is out of tokens")
    }

    /// The speculative write. Returns `None` if the bucket is missing, has expired or has too few tokens.
    async fn draw(&self, bucket: &Bucket, millitokens: [i64; 2], now: EpochMillis) -> anyhow::Result<Option<Grant>> {
        let [rpm, tpm] = LIMITS;
        let mut conditions = vec![item::exists(), "(attribute_not_exists(#ttl) OR #ttl > :now)".to_owned()];
        conditions.extend([rpm, Limit::WRITE_UNITS].map(item::has_enough));
        if !bucket.is_soft() {
            conditions.push(item::has_enough(tpm));
        }
        let update = self
            .update(bucket)?
            .condition_expression(conditions.join(" AND "))
            .expression_attribute_names("#ttl", schema::TTL)
            .expression_attribute_values(":now", number(now.get() / 1000));
        self.take(update, bucket, millitokens).await
    }

    /// Takes tokens by an update. Returns `None` if its condition fails.
    async fn take(
        &self,
        update: UpdateItemFluentBuilder,
        bucket: &Bucket,
        millitokens: [i64; 2],
    ) -> anyhow::Result<Option<Grant>> {
        let taken = [(LIMITS[0], millitokens[0]), (LIMITS[1], millitokens[1]), (Limit::WRITE_UNITS, WRITE)];
        match item::take(update, &taken).return_values(ReturnValue::AllNew).send().await {
            Ok(output) => {
                let item = output.attributes.context("UpdateItem returned no attributes")?;
                let consumed = |limit| read(&item, &bucket::attribute(limit, bucket::CONSUMED));
                let after = [consumed(LIMITS[0])?, consumed(LIMITS[1])?];
                let before = [after[0] - millitokens[0], after[1] - millitokens[1]];
                let soft = item.contains_key(&bucket::attribute(LIMITS[1], bucket::SOFT));
                let debt = read(&item, &bucket::attribute(LIMITS[1], bucket::TOKENS))? < 0;
                let overdrawn = soft && debt && millitokens[1] > 0;
                Ok(Some(Grant { bucket: bucket.clone(), before, after, overdrawn }))
            }
            Err(error) => ignore_condition(error).map(|()| None),
        }
    }

    /// Creates the bucket item unless it exists. Returns whether it did not exist.
    async fn create(&self, bucket: &Bucket, consumed: [i64; 2], now: EpochMillis) -> anyhow::Result<bool> {
        let mut item = item::bucket(&bucket.key()?, now, self.shards);
        for (limit, consumed) in LIMITS.into_iter().zip(consumed).chain([(Limit::WRITE_UNITS, WRITE)]) {
            let soft = bucket.is_soft() && limit == LIMITS[1];
            // Write units get the same stock, more than their capacity, because they are not refilled here.
            let stock = if soft { 0 } else { CAPACITY };
            let (capacity, period) =
                if limit == Limit::WRITE_UNITS { (WRITE_UNITS, 1_000) } else { (CAPACITY, 60_000) };
            item::Limit { tokens: stock - consumed, consumed, capacity, refill: capacity, period }
                .put(limit, &mut item);
            if soft {
                // Clients renew it when it expires; it does not matter here whether it has.
                item.insert(bucket::attribute(limit, bucket::SOFT), number(now.get() + 60_000));
            }
        }
        item::put_new(&self.client, &self.table, item).await
    }

    async fn refill(&self, bucket: &Bucket, now: EpochMillis) -> anyhow::Result<()> {
        let tokens = bucket::attribute(LIMITS[0], bucket::TOKENS);
        let refill = self
            .update(bucket)?
            .update_expression(format!("SET {} = :now ADD {tokens} :refill", bucket::LAST_REFILL))
            .expression_attribute_values(":now", number(now.get()))
            .expression_attribute_values(":refill", number(1000));
        refill.send().await.map(drop).or_else(ignore_condition)
    }

    async fn remove(&self, bucket: &Bucket) -> anyhow::Result<()> {
        let delete = self.client.delete_item().table_name(&self.table).set_key(Some(item::key(&bucket.key()?)));
        delete.send().await.context("a bucket could not be removed")?;
        Ok(())
    }

    async fn poison(&self, number: usize) -> anyhow::Result<()> {
        let mut item = item::key(&key(format!("poison-{number}"), RESOURCES[0], 0)?);
        item.insert(bucket::attribute(LIMITS[0], bucket::CONSUMED), AttributeValue::N("1000.5".to_owned()));
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        put.send().await.context("poison could not be written")?;
        Ok(())
    }

    fn update(&self, bucket: &Bucket) -> anyhow::Result<UpdateItemFluentBuilder> {
        let update = item::update(&self.client, &self.table, &bucket.key()?);
        Ok(update.condition_expression(item::exists()))
    }

    fn count(&mut self, grant: &Grant, now: EpochMillis) {
        if grant.before == grant.after {
            return;
        }
        for window in Window::ALL {
            let snapshot = SnapshotName {
                entity: grant.bucket.entity(),
                resource: grant.bucket.resource.to_owned(),
                window: window.to_string(),
                start: window.containing(now).to_string(),
            };
            self.granted.add_event(&snapshot);
            for (limit, (before, after)) in LIMITS.into_iter().zip(grant.before.into_iter().zip(grant.after)) {
                let tokens = after.div_euclid(1000) - before.div_euclid(1000);
                self.granted.add_tokens(&snapshot, limit, tokens.into());
            }
            if grant.overdrawn {
                self.granted.add_tokens(&snapshot, &format!("{}{}", LIMITS[1], schema::snapshot::OVERDRAWN), 1);
            }
        }
    }
}

impl Bucket {
    fn entity(&self) -> String {
        format!("tenant-{}", self.entity)
    }

    fn is_soft(&self) -> bool {
        self.resource == SOFT
    }

    fn key(&self) -> Result<BucketKey<'static>, InvalidName> {
        key(self.entity(), self.resource, self.shard)
    }
}

fn key(entity: String, resource: &'static str, shard: u32) -> Result<BucketKey<'static>, InvalidName> {
    Ok(BucketKey {
        namespace: Namespace::new(NAMESPACE)?,
        entity: Entity::new(entity)?,
        resource: Resource::new(resource)?,
        shard: Shard::new(shard),
    })
}

/// Ignores a failed condition.
fn ignore_condition(error: SdkError<UpdateItemError>) -> anyhow::Result<()> {
    match error.into_service_error() {
        UpdateItemError::ConditionalCheckFailedException(_) => Ok(()),
        error => Err(error).context("a client could not write a bucket"),
    }
}
