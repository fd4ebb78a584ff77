//! The Python clients of one bucket, as zae-limiter 0.10 and 0.17 write.

use tidegate_domain::{
    bucket::{Limit, Shard},
    state::{LimitState, Terms},
    tokens::Millitokens,
};

use crate::table::{Amounts, Item, LIMITS, Rule, START, World, count, full, limit, shift, time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 0.10 to 0.12: the slow path is always on shard 0, undivided, and leaves out the write units. Shards above 0
    /// are never created. The shards are doubled without bound.
    V10,
    /// 0.13 to 0.17: the slow path is on the shard that was drawn, with divided parameters. A missing shard is
    /// created with a full share. The shards are doubled to 32 at most, and siblings learn it.
    V17,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    Fast,
    Slow,
    Rejected,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub version: Version,
    /// How far its clock is ahead, in milliseconds.
    pub skew: i64,
    /// The cached number of shards.
    pub known: u32,
}

/// Which items new terms are written to.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// Shard 0: until 0.12.
    Zero,
    /// All shards: 0.13.
    All,
    /// All shards, marked with `vu = 0`: from 0.14 on.
    Marked,
}

impl Client {
    pub fn new(version: Version, skew: i64) -> Self {
        Self { version, skew, known: 1 }
    }

    /// An acquire on the shard that this number draws. Limits with no amount are not asked for.
    pub fn acquire(&mut self, world: &mut World, draw: u32, wanted: &Amounts) -> Acquired {
        let shard = Shard::new(draw % self.known);
        if let Some(Item { state, has_vu }) = world.items.get(&shard).cloned() {
            self.learn(state.shards.get());
            let units = state.write_units().map_or(0, |units| units.tokens.get());
            let has = |(limit, wanted): (_, &i64)| state.limits.get(limit).is_none_or(|of| of.tokens.get() >= *wanted);
            if units >= 1000
                && wanted.iter().all(has)
                && (self.version == Version::V10 || !has_vu)
                && !state.is_expired(time(world.now + self.skew))
            {
                let mut taken = wanted.clone();
                taken.insert(limit(Limit::WRITE_UNITS), 1000);
                take(world, shard, Item { state, has_vu }, &taken);
                return Acquired::Fast;
            }
            let accrued = (world.now + self.skew - state.last_refill.get()) * 1000;
            if units < 1000
                && (self.version == Version::V10 || units + accrued < 1000)
                && let Some(shard) = self.double(world, shard)
            {
                return self.acquire_slowly(world, shard, wanted);
            }
        }
        let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
        let is_due = self.skew == 0 && self.must_admit(world, shard, wanted);
        let acquired = self.acquire_slowly(world, shard, wanted);
        if is_due && acquired == Acquired::Rejected {
            world.faults.push((Rule::Admits, format!("{} ms: {wanted:?} of {shard}", world.now - START)));
        }
        acquired
    }

    /// The least that a slow path asks of a limit: in 0.10, a limit in debt rejects even requests that take nothing from it.
    fn least(&self, limit: &Limit<'static>, wanted: &Amounts) -> Option<i64> {
        let is_gate = self.version == Version::V10 && !limit.is_write_units();
        wanted.get(limit).copied().or(is_gate.then_some(0))
    }

    /// Whether exact buckets admit this.
    fn must_admit(&self, world: &World, shard: Shard, wanted: &Amounts) -> bool {
        let covers = |limit| {
            let least = self.least(limit, wanted);
            least.is_none_or(|least| world.exact.held(shard, limit, world.now) >= Some(least))
        };
        world.items.get(&shard).is_some_and(|item| item.state.limits.keys().all(covers))
    }

    fn acquire_slowly(&self, world: &mut World, shard: Shard, wanted: &Amounts) -> Acquired {
        let now = world.now + self.skew;
        let mut item = world.items.get(&shard).cloned().unwrap_or_else(|| {
            let shards = if self.version == Version::V10 { 1 } else { self.known };
            full(&world.config, shards, now).into()
        });
        let Item { state, has_vu } = &mut item;
        let elapsed = now - state.last_refill.get();
        for (limit, of) in &mut state.limits {
            self.refill(limit, of, state.shards.get(), elapsed);
            if self.least(limit, wanted).is_some_and(|least| of.tokens.get() < least) {
                return Acquired::Rejected;
            }
        }
        let earliest = if self.version == Version::V10 { time(now) } else { state.last_refill };
        state.last_refill = time(now).max(earliest);
        state.expires = world.ttl.map(|ttl| now / 1000 + ttl);
        *has_vu &= self.version == Version::V10;
        take(world, shard, item, wanted);
        Acquired::Slow
    }

    /// The refill of the slow path.
    fn refill(&self, limit: &Limit<'_>, of: &mut LimitState, shards: u32, elapsed: i64) {
        let shards = match self.version {
            Version::V10 if limit.is_write_units() => return,
            Version::V17 if !limit.is_write_units() => i64::from(shards),
            _ => 1,
        };
        let Terms { capacity, refill, period } = of.terms;
        let accrued = i128::from(elapsed.max(0)) * i128::from(refill.get() / shards) / i128::from(period);
        if accrued > 0 || self.version == Version::V17 {
            let refilled = of.tokens.get() + i64::try_from(accrued).unwrap();
            of.tokens = Millitokens::new(refilled.min(capacity.get() / shards));
        }
    }

    fn learn(&mut self, shards: u32) {
        self.known = if self.version == Version::V10 { shards } else { self.known.max(shards) };
    }

    /// Doubles the shards, unless another client was faster; the shard of the slow path, if the client doubles at all.
    pub fn double(&mut self, world: &mut World, drawn: Shard) -> Option<Shard> {
        // 0.10 knows no bound; a hundred shards are as good as more.
        let most = if self.version == Version::V10 { 64 } else { 16 };
        let seen = self.known;
        let mut zero = world.items.get(&Shard::ZERO).filter(|_| seen <= most)?.clone();
        let winner = zero.state.shards.get();
        self.learn(if winner == seen { 2 * seen } else { winner });
        if winner == seen {
            zero.state.shards = count(2 * seen);
            world.client_put(Shard::ZERO, Some(zero), &Amounts::new());
        }
        if self.version == Version::V10 {
            return Some(Shard::ZERO);
        }
        for (shard, mut item) in world.items.clone() {
            if winner == seen && item.state.shards < count(2 * seen) {
                item.state.shards = count(2 * seen);
                world.client_put(shard, Some(item), &Amounts::new());
            }
        }
        (winner == seen).then(|| Shard::new(drawn.get() + seen))
    }

    /// Corrects what was taken of a limit of a shard, after the work is done.
    pub fn adjust(&self, world: &mut World, shard: Shard, limit: &Limit<'static>, given: i64) {
        let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
        let Some(mut item) = world.items.get(&shard).cloned() else { return };
        let Some(of) = item.state.limits.get(limit) else { return };
        let overflows = given > 0 && of.tokens.get() + given > item.state.share(limit, of).capacity.get();
        item.has_vu |= self.version == Version::V17 && overflows;
        take(world, shard, item, &[(limit.clone(), -given)].into());
    }
}

/// Writes an item from which so much is taken.
fn take(world: &mut World, shard: Shard, mut item: Item, taken: &Amounts) {
    for (limit, taken) in taken {
        shift(&mut item.state, limit, -taken, *taken);
    }
    world.client_put(shard, Some(item), taken);
}

/// Takes everything that a shard stores of the divided limits.
pub fn drain(world: &mut World, shard: Shard) {
    let Some(item) = world.items.get(&shard).cloned() else { return };
    let stored = item.state.divided().map(|(limit, of)| (limit.clone(), of.tokens.get().max(0))).collect();
    take(world, shard, item, &stored);
}

/// A client's change of the terms of one of the first limits.
pub fn set_limits(world: &mut World, scope: Scope, at: usize, terms: Terms) {
    let Some(config) = world.config.get_mut(at) else { return };
    *config = terms;
    for (shard, mut item) in world.items.clone() {
        if shard == Shard::ZERO || !matches!(scope, Scope::Zero) {
            item.state.limits.get_mut(&limit(LIMITS[at])).unwrap().terms = terms;
            item.has_vu |= matches!(scope, Scope::Marked);
            world.client_put(shard, Some(item), &Amounts::new());
        }
    }
}
