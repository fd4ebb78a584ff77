//! The items of one bucket, and everything that writes to them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Entity, Limit, Namespace, Resource, Shard},
    refill::Refill,
    repair::{self, Alignment},
    sequence::SequenceNumber,
    split::{self, Split, Step},
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

pub type State = BucketState<'static>;
pub type Change = BucketChange<'static, BucketImage<'static>>;

/// The limits of a bucket beside the reserved one.
pub const LIMITS: [&str; 3] = ["rpd", "rpm", "tpm"];

/// An ordinary moment: not at the start of a second.
pub const START: i64 = 1_767_217_000_371;

pub fn limit(name: &'static str) -> Limit<'static> {
    Limit::new(name).unwrap()
}

pub fn count(shards: u32) -> ShardCount {
    ShardCount::new(shards).unwrap()
}

pub fn time(millis: i64) -> EpochMillis {
    EpochMillis::new(millis).unwrap()
}

pub fn terms(capacity: i64, refill: i64, period: i64) -> Terms {
    Terms { capacity: Millitokens::new(capacity), refill: Millitokens::new(refill), period }
}

pub fn key(shard: Shard) -> BucketKey<'static> {
    BucketKey {
        namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
        entity: Entity::new("user-1").unwrap(),
        resource: Resource::new("api").unwrap(),
        shard,
    }
}

/// A number from 1 to below `2^bits`, of any magnitude.
pub fn ugly(bits: u32) -> impl Strategy<Value = i64> {
    (0..bits).prop_flat_map(|bits| (1_i64 << bits)..(2_i64 << bits))
}

/// The terms of one to three limits: capacities of any size, and such as refill within seconds.
pub fn ugly_terms() -> impl Strategy<Value = Vec<Terms>> {
    let period = prop_oneof![3 => ugly(26), 1 => Just(1000), 1 => Just(60_000)];
    let one = (ugly(24), ugly(23), period, 100..20_000_i64, any::<bool>());
    let one = one.prop_map(|(capacity, refill, period, fills_in, is_quick)| {
        let quick = (refill * fills_in / period).max(1);
        terms(if is_quick { quick } else { capacity }, refill, period)
    });
    prop::collection::vec(one, 1..=LIMITS.len())
}

/// The reserved limit, as clients create it.
pub fn write_units() -> Terms {
    terms(1_000_000, 1_000_000, 1000)
}

/// A bucket item that is full at `START`.
pub fn full(terms: &[Terms], shards: u32) -> State {
    let limits = LIMITS.iter().zip(terms).map(|(name, terms)| (limit(name), *terms));
    let shards = count(shards);
    let limits = limits.chain([(limit("wcu"), write_units())]).map(|(limit, terms)| {
        let tokens = terms.share(&limit, shards).capacity;
        (limit, LimitState { tokens, consumed: Millitokens::default(), terms })
    });
    BucketState { last_refill: time(START), shards, expires: None, valid_until: None, limits: limits.collect() }
}

/// One token bucket of the whole, exact: it holds `level / period` millitokens.
#[derive(Clone, Debug)]
struct Whole {
    terms: Terms,
    level: i128,
    at: i64,
}

impl Whole {
    fn full(terms: Terms, at: i64) -> Self {
        Self { terms, level: i128::from(terms.capacity.get()) * i128::from(terms.period), at }
    }

    fn take(&mut self, taken: i64, now: i64) -> bool {
        let Terms { capacity, refill, period } = self.terms;
        let most = i128::from(capacity.get()) * i128::from(period);
        self.level = most.min(self.level + i128::from(refill.get()) * i128::from(now - self.at));
        self.level -= i128::from(taken) * i128::from(period);
        self.at = now;
        self.level >= 0
    }
}

/// A write of the keeper's, with what its condition compares.
#[derive(Clone, Debug)]
pub enum Write {
    Refill { shard: Shard, seen: State, refill: Refill<'static> },
    Double { seen: ShardCount },
    Split { donor: State, split: Split<'static> },
    Raise { shard: Shard, shards: ShardCount },
    Align { shard: Shard, alignment: Alignment<'static> },
}

/// The table with the items of one bucket, and its stream.
pub struct World {
    pub now: i64,
    pub items: BTreeMap<Shard, State>,
    pub stream: Vec<Change>,
    /// What was admitted beyond the limit.
    pub excess: Vec<String>,
    /// What was credited above the share.
    pub overfilled: Vec<String>,
    /// How much of the stream has been read.
    read: usize,
    whole: BTreeMap<Limit<'static>, Whole>,
}

impl World {
    /// A bucket that is full, as a client has just created it.
    pub fn new(terms: &[Terms]) -> Self {
        let zero = full(terms, 1);
        let divided = zero.divided().map(|(limit, state)| (limit.clone(), Whole::full(state.terms, START)));
        let whole = divided.collect();
        let mut world = Self {
            now: START,
            items: BTreeMap::new(),
            stream: Vec::new(),
            excess: Vec::new(),
            overfilled: Vec::new(),
            read: 0,
            whole,
        };
        world.put(Shard::ZERO, Some(zero));
        world
    }

    pub fn zero(&self) -> &State {
        &self.items[&Shard::ZERO]
    }

    /// What the shards hold of the limits, and what clients took: splits change none of it.
    pub fn sums(&self) -> BTreeMap<Limit<'static>, i64> {
        let mut sums = BTreeMap::new();
        for (limit, state) in self.items.values().flat_map(State::divided) {
            *sums.entry(limit.clone()).or_default() += state.tokens.get() + state.consumed.get();
        }
        sums
    }

    /// The next records, and before them some that have been read.
    pub fn read(&mut self, records: usize, again: usize) -> Vec<Change> {
        let from = self.read.saturating_sub(again);
        self.read = self.read.saturating_add(records).min(self.stream.len());
        self.stream[from..self.read].to_vec()
    }

    /// Writes an item, and the record of the write if it changes anything.
    pub fn put(&mut self, shard: Shard, new: Option<State>) {
        let old = match &new {
            Some(new) => self.items.insert(shard, new.clone()),
            None => self.items.remove(&shard),
        };
        let kind = match (&old, &new) {
            _ if old == new => return,
            (None, _) => ChangeKind::Created,
            (Some(_), Some(_)) => ChangeKind::Updated,
            (Some(_), None) => ChangeKind::Removed,
        };
        let image = |state: Option<State>| state.map_or(BucketImage::Absent, BucketImage::Plain);
        self.stream.push(BucketChange {
            bucket: key(shard),
            sequence: SequenceNumber::parse(&format!("1{:024}", self.stream.len())).unwrap(),
            created: time(self.now / 1000 * 1000),
            kind,
            old: image(old),
            new: image(new),
        });
    }

    /// A client's speculative acquire of so many millitokens, by limit.
    pub fn acquire(&mut self, shard: Shard, taken: &[i64]) -> bool {
        let Some(mut state) = self.items.get(&shard).cloned() else { return false };
        if state.is_expired(time(self.now)) {
            return false;
        }
        for (limit, taken) in amounts(taken) {
            let Some(limit_state) = state.limits.get_mut(&limit) else { continue };
            if limit_state.tokens.get() < taken {
                return false;
            }
            shift(limit_state, -taken, taken);
        }
        for (limit, taken) in amounts(taken) {
            if self.whole.get_mut(&limit).is_some_and(|whole| !whole.take(taken, self.now)) {
                self.excess.push(format!("{} ms: {limit} beyond the limit", self.now - START));
            }
        }
        self.put(shard, Some(state));
        true
    }

    /// A client's slow path, which refills shard 0 or creates it; `divides` tells whether it knows shares.
    pub fn acquire_slowly(&mut self, taken: &[i64], terms: &[Terms], divides: bool) {
        let mut state = self.items.get(&Shard::ZERO).cloned().unwrap_or_else(|| full(terms, 1));
        let elapsed = u128::try_from(self.now - state.last_refill.get()).unwrap();
        let shards = if divides { state.shards } else { ShardCount::ONE };
        state.last_refill = time(self.now);
        for (limit, limit_state) in &mut state.limits {
            let share = limit_state.terms.share(limit, shards);
            let room = (share.capacity.get() - limit_state.tokens.get()).max(0);
            let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
            shift(limit_state, room.min(accrued), 0);
        }
        for (limit, taken) in amounts(taken) {
            let Some(limit_state) = state.limits.get_mut(&limit) else { continue };
            if limit_state.tokens.get() < taken {
                return;
            }
            shift(limit_state, -taken, taken);
        }
        self.put(Shard::ZERO, Some(state));
    }

    /// A client's settlement of what it really used, on shard 0.
    pub fn adjust(&mut self, limit: &Limit<'static>, tokens: i64) {
        let mut state = self.zero().clone();
        let Some(limit_state) = state.limits.get_mut(limit) else { return };
        shift(limit_state, tokens, -tokens);
        self.put(Shard::ZERO, Some(state));
    }

    /// A client's new terms for a limit, on shard 0, marked as a change.
    pub fn configure(&mut self, limit: &Limit<'static>, terms: Terms) {
        let mut state = self.zero().clone();
        let Some(limit_state) = state.limits.get_mut(limit) else { return };
        limit_state.terms = terms;
        state.valid_until = Some(0);
        self.put(Shard::ZERO, Some(state));
    }

    /// The keeper's write, if its condition holds; a client's bump is a doubling.
    pub fn apply(&mut self, write: &Write) -> bool {
        match write {
            Write::Refill { shard, seen, refill } => self.refill(*shard, seen, refill),
            Write::Double { seen } => {
                let mut zero = self.zero().clone();
                let is_seen = zero.shards == *seen;
                zero.shards = seen.doubled().unwrap();
                is_seen.then(|| self.put(Shard::ZERO, Some(zero))).is_some()
            }
            Write::Split { donor, split } => self.split(donor, split),
            Write::Raise { shard, shards } => {
                let Some(mut state) = self.items.get(shard).cloned() else { return false };
                let is_less = state.shards < *shards;
                state.shards = *shards;
                is_less.then(|| self.put(*shard, Some(state))).is_some()
            }
            Write::Align { shard, alignment } => {
                let Some(mut state) = self.items.get(shard).cloned() else { return false };
                let is_new = alignment.added.keys().all(|limit| !state.limits.contains_key(limit));
                repair::apply(alignment, &mut state);
                is_new.then(|| self.put(*shard, Some(state))).is_some()
            }
        }
    }

    fn refill(&mut self, shard: Shard, seen: &State, refill: &Refill<'static>) -> bool {
        let Some(mut state) = self.items.get(&shard).cloned() else { return false };
        let mut holds = is_as_seen(&state, seen);
        state.last_refill = refill.until;
        for (limit, credit) in &refill.credits {
            let was = &seen.limits[limit];
            let shards = state.shards;
            let Some(now) = state.limits.get_mut(limit) else { return false };
            holds &= now.terms.capacity == was.terms.capacity && now.tokens <= was.tokens;
            shift(now, credit.get(), 0);
            if holds && now.tokens > now.terms.share(limit, shards).capacity {
                self.overfilled.push(format!("{} ms: {limit} credited above its share", self.now - START));
            }
        }
        for (limit, share) in &refill.trims {
            let Some(now) = state.limits.get_mut(limit) else { return false };
            holds &= now.terms.capacity == seen.limits[limit].terms.capacity && now.tokens > *share;
            now.tokens = *share;
        }
        holds.then(|| self.put(shard, Some(state))).is_some()
    }

    fn split(&mut self, seen: &State, split: &Split<'static>) -> bool {
        let Some(donor) = self.items.get(&split.donor) else { return false };
        let gives = split.gifts.iter().all(|(limit, gift)| gift.get() <= 0 || donor.limits[limit].tokens >= *gift);
        if !is_as_seen(donor, seen) || !gives || self.items.contains_key(&split.target) {
            return false;
        }
        let mut after = self.items.clone();
        split::apply(&Step::Split(split.clone()), &mut after);
        for shard in [split.donor, split.target] {
            let state = after.remove(&shard);
            self.put(shard, state);
        }
        true
    }
}

fn amounts(taken: &[i64]) -> impl Iterator<Item = (Limit<'static>, i64)> {
    LIMITS.iter().zip(taken).map(|(name, taken)| (limit(name), *taken)).chain([(limit("wcu"), 1000)])
}

fn shift(state: &mut LimitState, tokens: i64, consumed: i64) {
    state.tokens = Millitokens::new(state.tokens.get() + tokens);
    state.consumed = Millitokens::new(state.consumed.get() + consumed);
}

fn is_as_seen(state: &State, seen: &State) -> bool {
    state.last_refill == seen.last_refill && state.shards == seen.shards && state.valid_until == seen.valid_until
}
