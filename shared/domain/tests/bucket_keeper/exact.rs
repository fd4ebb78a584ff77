//! Exact token buckets, one a shard and limit: what property 2 compares the items with.

use std::collections::BTreeMap;

use tidegate_domain::{
    bucket::{Limit, Shard},
    state::LimitState,
};

use crate::table::State;

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

    /// Follows a client's write of an item: to new parameters, and down to what the client's write lost.
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

    /// Limits of which a bucket holds more than `min(share, V)` of an item, and how many millitokens more, rounded up.
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
