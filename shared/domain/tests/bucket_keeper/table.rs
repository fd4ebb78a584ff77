//! The table with the items of one bucket, its stream, and exact token buckets to compare the items with.

use std::collections::BTreeMap;

use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Entity, Limit, Namespace, Resource, Shard},
    sequence::{SequenceNumber, StreamLabel},
    state::{BucketImage, LimitState, Terms, Unfamiliar},
};

pub use crate::items::*;

pub type Change = BucketChange<'static, BucketImage<'static>>;

/// Amounts of the first limits.
pub fn amounts(millitokens: &[i64]) -> Amounts {
    LIMITS.iter().zip(millitokens).map(|(name, amount)| (limit(name), *amount)).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub state: State,
    /// Whether clients have marked it with `vu = 0`.
    pub has_vu: bool,
}

impl From<State> for Item {
    fn from(state: State) -> Self {
        Self { state, has_vu: false }
    }
}

/// The rules that a history can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A write of the keeper raises no `V`, and lifts no tokens above a share.
    NeverRaises,
    /// An exact bucket holds no more than `min(share, V)`.
    CoversExact,
    /// What an exact bucket admits is admitted.
    Admits,
    /// Splits and moves change no sum of tokens.
    Conserves,
}

/// The table, and what is tested about it.
#[derive(Debug)]
pub struct World {
    pub now: i64,
    pub items: BTreeMap<Shard, Item>,
    pub stream: Vec<Change>,
    /// What is configured for the first limits.
    pub config: Vec<Terms>,
    /// How long an item lives after a slow path, in seconds.
    pub ttl: Option<i64>,
    pub exact: Exact,
    pub faults: Vec<(Rule, String)>,
    /// How many records have been delivered.
    delivered: usize,
}

impl World {
    /// A bucket of so many full shards.
    pub fn new(terms: &[Terms], shards: u32) -> Self {
        let (config, exact) = (terms.to_vec(), Exact::default());
        let (items, stream, faults) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut world = Self { now: START, items, stream, config, ttl: None, exact, faults, delivered: 0 };
        for shard in 0..shards {
            world.client_put(Shard::new(shard), Some(full(terms, shards, START).into()), &Amounts::new());
        }
        world
    }

    pub fn zero(&self) -> &State {
        self.state(Shard::ZERO)
    }

    pub fn state(&self, shard: Shard) -> &State {
        &self.items[&shard].state
    }

    /// The plain items; `None` if clients have marked one of them.
    pub fn states(&self) -> Option<States> {
        self.items.iter().map(|(shard, item)| (!item.has_vu).then(|| (*shard, item.state.clone()))).collect()
    }

    /// The next records, after some that have been delivered before.
    pub fn deliver(&mut self, records: usize, again: usize) -> Vec<Change> {
        let from = self.delivered.saturating_sub(again);
        self.delivered = self.delivered.saturating_add(records).min(self.stream.len());
        self.stream[from..self.delivered].to_vec()
    }

    /// A client's write, which takes these amounts.
    pub fn client_put(&mut self, shard: Shard, item: Option<Item>, taken: &Amounts) {
        for (limit, taken) in taken {
            self.exact.take(shard, limit, *taken, self.now);
        }
        self.exact.settle(shard, item.as_ref().map(|item| &item.state), self.now);
        self.put(shard, item);
    }

    /// Writes an item, and its record if the write changes anything.
    pub fn put(&mut self, shard: Shard, new: Option<Item>) {
        let old = match &new {
            Some(new) => self.items.insert(shard, new.clone()),
            None => self.items.remove(&shard),
        };
        if old == new {
            return;
        }
        self.stream.push(BucketChange {
            bucket: BucketKey {
                namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
                entity: Entity::new("user-1").unwrap(),
                resource: Resource::new("api").unwrap(),
                shard,
            },
            stream: StreamLabel::parse("2026-01-01T00:00:00.000").unwrap(),
            sequence: SequenceNumber::parse(&format!("1{:024}", self.stream.len())).unwrap(),
            created: time(self.now / 1000 * 1000),
            // The keeper goes by the images.
            kind: ChangeKind::Updated,
            old: image(old),
            new: image(new),
        });
    }
}

fn image(item: Option<Item>) -> BucketImage<'static> {
    match item {
        None => BucketImage::Absent,
        Some(Item { has_vu: true, .. }) => BucketImage::Unfamiliar(Unfamiliar::AwaitsClient),
        Some(Item { state, .. }) => BucketImage::Plain(state),
    }
}

/// A token bucket without rounding, with a shard's divided parameters.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In millitokens divided by `period`, so that what accrues is a whole number.
    level: i128,
    capacity: i128,
    /// What accrues in a millisecond.
    rate: i128,
    period: i128,
    at: i64,
}

/// Exact token buckets, one for each shard and limit.
#[derive(Clone, Debug, Default)]
pub struct Exact(BTreeMap<(Shard, Limit<'static>), Bucket>);

impl Bucket {
    /// A bucket that holds `min(share, V)` of an item.
    fn of(state: &State, limit: &Limit<'_>, now: i64) -> Self {
        let LimitState { tokens, terms, .. } = state.limits[limit];
        let shards = if limit.is_write_units() { 1 } else { i64::from(state.shards.get()) };
        let period = i128::from(terms.period);
        let capacity = i128::from(terms.capacity.get() / shards) * period;
        let rate = i128::from(terms.refill.get() / shards);
        let value = i128::from(tokens.get()) * period + rate * i128::from(now - state.last_refill.get());
        Self { level: capacity.min(value), capacity, rate, period, at: now }
    }

    fn accrue(&mut self, now: i64) {
        self.level = self.capacity.min(self.level + self.rate * i128::from(now - self.at));
        self.at = now;
    }

    fn add(&mut self, millitokens: i64) {
        self.level = self.capacity.min(self.level + i128::from(millitokens) * self.period);
    }
}

impl Exact {
    /// Takes tokens, or gives them back.
    pub fn take(&mut self, shard: Shard, limit: &Limit<'static>, millitokens: i64, now: i64) {
        if let Some(bucket) = self.0.get_mut(&(shard, limit.clone())) {
            bucket.accrue(now);
            bucket.add(-millitokens);
        }
    }

    /// The whole millitokens that a bucket holds.
    pub fn held(&self, shard: Shard, limit: &Limit<'static>, now: i64) -> Option<i64> {
        let mut bucket = *self.0.get(&(shard, limit.clone()))?;
        bucket.accrue(now);
        i64::try_from(bucket.level.div_euclid(bucket.period)).ok()
    }

    /// Adopts the parameters of a client's write, and forfeits what the write forfeited.
    pub fn settle(&mut self, shard: Shard, state: Option<&State>, now: i64) {
        let old: BTreeMap<_, _> = self.0.extract_if(.., |(of, _), _| *of == shard).collect();
        for limit in state.iter().flat_map(|state| state.limits.keys()) {
            let mut bucket = Bucket::of(state.unwrap(), limit, now);
            let key = (shard, limit.clone());
            if let Some(mut old) = old.get(&key).copied() {
                old.accrue(now);
                bucket.level = bucket.level.min((old.level * bucket.period).div_euclid(old.period));
            }
            self.0.insert(key, bucket);
        }
    }

    /// Limits for which the bucket holds more than `min(share, V)` of an item, and how many millitokens more, rounded up.
    pub fn excess(&self, shard: Shard, state: &State, now: i64) -> Vec<(Limit<'static>, i128)> {
        let excess = state.limits.keys().filter_map(|limit| {
            let mut bucket = *self.0.get(&(shard, limit.clone()))?;
            bucket.accrue(now);
            let more = bucket.level - Bucket::of(state, limit, now).level;
            (more > 0).then(|| (limit.clone(), (more - 1) / bucket.period + 1))
        });
        excess.collect()
    }

    /// Splits the buckets of a donor into equal parts, rounded as the tokens of the items are. `after` are the donor
    /// and the new shards.
    pub fn split(&mut self, (donor, before): (Shard, &State), after: &BTreeMap<Shard, State>, now: i64) {
        let parts = i128::try_from(after.len()).unwrap();
        for (shard, state) in after.iter().filter(|(shard, _)| **shard != donor) {
            self.settle(*shard, Some(state), now);
        }
        for (limit, old) in before.divided() {
            let Some(mut whole) = self.0.get(&(donor, limit.clone())).copied() else { continue };
            whole.accrue(now);
            for (shard, state) in after {
                let Some(new) = state.limits.get(limit) else { continue };
                let held = Bucket::of(state, limit, now);
                let rounding = i128::from(new.tokens.get()) * parts - i128::from(old.tokens.get());
                let level = (whole.level * held.period).div_euclid(whole.period) + rounding * held.period;
                let level = held.capacity.min(level.div_euclid(parts));
                // Clients changed the terms, have a clock ahead, or created a shard themselves that the donor had a
                // part for.
                let is_clients = new.terms != old.terms
                    || state.last_refill.get() > now
                    || i128::from(before.shards.get()) * parts < i128::from(state.shards.get());
                let level = if is_clients { level.min(held.level) } else { level };
                self.0.insert((*shard, limit.clone()), Bucket { level, ..held });
            }
        }
    }
}
