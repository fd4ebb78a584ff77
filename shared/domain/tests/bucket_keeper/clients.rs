//! The Python clients of one bucket, as zae-limiter 0.10 and 0.17 write.

use tidegate_domain::{
    bucket::{Limit, Shard},
    state::{LimitState, Terms},
    tokens::Millitokens,
};

use crate::table::{Amounts, Item, Rule, START, World, count, full, limit, shift, time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 0.10 to 0.12: the slow path is always on shard 0, undivided, and leaves out the write units. Shards above 0
    /// are never created. The shards are doubled without bound.
    V10,
    /// 0.13 to 0.17: the slow path is on the shard that was drawn, with divided parameters. A missing shard is
    /// created with a full share. The shards are doubled to 32 at most, and siblings learn it.
    V17,
}

/// How an acquire ended.
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
        let mut fast = wanted.clone();
        fast.insert(limit(Limit::WRITE_UNITS), 1000);
        if self.is_admitted_at_once(world, shard, &fast) {
            let mut item = world.items[&shard].clone();
            for (limit, taken) in &fast {
                shift(&mut item.state, limit, -taken, *taken);
            }
            self.learn(item.state.shards.get());
            world.client_put(shard, Some(item), &fast);
            return Acquired::Fast;
        }
        if let Some(item) = world.items.get(&shard) {
            let stored = item.state.write_units().map_or(0, |units| units.tokens.get());
            let elapsed = world.now + self.skew - item.state.last_refill.get();
            self.learn(item.state.shards.get());
            let doubles = stored < 1000 && (self.version == Version::V10 || stored + elapsed * 1000 < 1000);
            if doubles && let Some(shard) = self.double(world, shard) {
                return self.acquire_slowly(world, shard, wanted);
            }
        }
        let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
        let due = self.skew == 0 && self.must_admit(world, shard, wanted);
        let acquired = self.acquire_slowly(world, shard, wanted);
        if due && acquired == Acquired::Rejected {
            world.faults.push((Rule::Admits, format!("{} ms: {wanted:?} of {shard}", world.now - START)));
        }
        acquired
    }

    /// Whether the fast path's condition holds.
    fn is_admitted_at_once(&self, world: &World, shard: Shard, wanted: &Amounts) -> bool {
        world.items.get(&shard).is_some_and(|Item { state, has_vu }| {
            !state.is_expired(time(world.now + self.skew))
                && (self.version == Version::V10 || !has_vu)
                && wanted.iter().all(|(limit, wanted)| {
                    state.limits.get(limit).is_none_or(|limit_state| limit_state.tokens.get() >= *wanted)
                })
        })
    }

    /// Whether exact buckets admit this; to clients of 0.10, a limit in debt rejects what does not ask for it.
    fn must_admit(&self, world: &World, shard: Shard, wanted: &Amounts) -> bool {
        world.items.get(&shard).is_some_and(|item| {
            item.state.divided().all(|(limit, _)| {
                let wanted = wanted.get(limit).copied();
                let wanted = if self.version == Version::V10 { wanted.or(Some(0)) } else { wanted };
                wanted.is_none_or(|wanted| world.exact.held(shard, limit, world.now) >= Some(wanted))
            })
        })
    }

    fn acquire_slowly(&self, world: &mut World, shard: Shard, wanted: &Amounts) -> Acquired {
        let now = world.now + self.skew;
        let created = || Item { state: full(&world.config, self.shards_to_create(shard), now), has_vu: false };
        let is_new = !world.items.contains_key(&shard);
        let mut item = world.items.get(&shard).cloned().unwrap_or_else(created);
        for (limit, limit_state) in &mut item.state.limits {
            if !is_new {
                self.refill(limit, limit_state, item.state.shards.get(), now - item.state.last_refill.get());
            }
            let gate = if self.version == Version::V10 && !limit.is_write_units() { Some(&0) } else { None };
            if wanted.get(limit).or(gate).is_some_and(|wanted| limit_state.tokens.get() < *wanted) {
                return Acquired::Rejected;
            }
        }
        for (limit, taken) in wanted {
            shift(&mut item.state, limit, -taken, *taken);
        }
        let seen = item.state.last_refill;
        item.state.last_refill = if self.version == Version::V10 { time(now) } else { time(now).max(seen) };
        item.state.expires = world.ttl.map(|ttl| now / 1000 + ttl);
        item.has_vu &= self.version == Version::V10;
        world.client_put(shard, Some(item), wanted);
        Acquired::Slow
    }

    /// The refill of the slow path.
    fn refill(&self, limit: &Limit<'_>, limit_state: &mut LimitState, shards: u32, elapsed: i64) {
        let LimitState { tokens, terms: Terms { capacity, refill, period }, .. } = limit_state;
        let shards = match self.version {
            Version::V10 if limit.is_write_units() => return,
            Version::V17 if !limit.is_write_units() => i64::from(shards),
            _ => 1,
        };
        let accrued = i128::from(elapsed) * i128::from(refill.get() / shards) / i128::from(*period);
        let accrued = i64::try_from(accrued.max(0)).unwrap();
        if accrued > 0 || self.version == Version::V17 {
            *tokens = Millitokens::new((tokens.get() + accrued).min(capacity.get() / shards));
        }
    }

    fn shards_to_create(&self, shard: Shard) -> u32 {
        if self.version == Version::V10 && shard == Shard::ZERO { 1 } else { self.known }
    }

    fn learn(&mut self, shards: u32) {
        self.known = if self.version == Version::V10 { shards } else { self.known.max(shards) };
    }

    /// Doubles the shards, unless another client was faster; the shard of the slow path, if the client doubles at all.
    pub fn double(&mut self, world: &mut World, drawn: Shard) -> Option<Shard> {
        // 0.10 knows no bound; a hundred shards are as good as more.
        let most = if self.version == Version::V10 { 64 } else { 16 };
        let winner = world.items.get(&Shard::ZERO).filter(|_| self.known <= most)?.state.shards.get();
        let seen = self.known;
        let mut raise = |shard: Shard, is_due: fn(u32, u32) -> bool| {
            let Some(mut item) = world.items.get(&shard).cloned() else { return };
            if is_due(item.state.shards.get(), seen) {
                item.state.shards = count(2 * seen);
                world.client_put(shard, Some(item), &Amounts::new());
            }
        };
        raise(Shard::ZERO, |shards, seen| shards == seen);
        if self.version == Version::V10 {
            self.known = if winner == seen { 2 * seen } else { winner };
            return Some(Shard::ZERO);
        }
        if winner != seen {
            self.learn(winner);
            return None;
        }
        (1..seen).for_each(|shard| raise(Shard::new(shard), |shards, seen| shards < 2 * seen));
        self.known = 2 * seen;
        Some(Shard::new(drawn.get() + seen))
    }

    /// Corrects what was taken of a limit of a shard, after the work is done.
    pub fn adjust(&self, world: &mut World, shard: Shard, limit: &Limit<'static>, given: i64) {
        let shard = if self.version == Version::V10 { Shard::ZERO } else { shard };
        let Some(mut item) = world.items.get(&shard).cloned() else { return };
        let Some(limit_state) = item.state.limits.get(limit) else { return };
        let ceiling = item.state.share(limit, limit_state).capacity.get();
        item.has_vu |= self.version == Version::V17 && given > 0 && limit_state.tokens.get() + given > ceiling;
        shift(&mut item.state, limit, given, -given);
        world.client_put(shard, Some(item), &[(limit.clone(), -given)].into());
    }
}

/// A client's change of a limit's terms.
pub fn set_limits(world: &mut World, scope: Scope, limit: &Limit<'static>, terms: Terms) {
    world.config.insert(limit.clone(), terms);
    for (shard, mut item) in world.items.clone() {
        let Some(limit_state) = item.state.limits.get_mut(limit) else { continue };
        if shard == Shard::ZERO || !matches!(scope, Scope::Zero) {
            limit_state.terms = terms;
            item.has_vu |= matches!(scope, Scope::Marked);
            world.client_put(shard, Some(item), &Amounts::new());
        }
    }
}
