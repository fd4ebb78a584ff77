//! Pressure: whether the writes to a bucket's shards exceed what their partitions can take, and whether more shards would
//! help.
//!
//! A partition of a table takes 1,000 write units a second. Every bucket item has a reserved limit for them.
//! AWS: [partition throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).

use crate::{
    activity::{Activity, Demand},
    refill::MAX_AGE,
    split,
    state::{BucketState, ShardCount},
    time::EpochMillis,
    tokens::Millitokens,
};

/// When a bucket's shards are doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most shards to which a bucket is doubled.
    pub max_shards: ShardCount,
    /// The bearable part of a partition's write units for one shard, in percent.
    pub percent: u8,
}

/// The write load of shard 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// The partition can take it.
    Bearable,
    /// Too high. The bucket may be doubled to this many shards.
    High(ShardCount),
    /// Too high, but the bucket already has the most shards.
    AtLimit,
    /// Too high, but a share of the doubled bucket would be smaller than an acquire in the batch, which no shard could then
    /// admit.
    Indivisible,
}

/// Low write units count as pressure only if the busiest second shows at least 1/`SAMPLE` of the bearable write units. A
/// client's refill that leaves them out makes them run low, too.
const SAMPLE: i64 = 2;

/// Before the next doubling, the newest shards must each have had at least 1/`SPREAD` of shard 0's writes, on average.
const SPREAD: i128 = 4;

/// The maximum time between two checks, in milliseconds. An older check says nothing about the current writes.
const MAX_CHECK_AGE: i64 = 60_000;

/// The least consumption of write units on shard 0 between two checks, in millitokens: a fifth of what a partition takes in
/// a second.
const MIN_WRITTEN: i128 = 200_000;

/// The size of a write unit, in bytes.
///
/// AWS: [write capacity](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html).
const WRITE_UNIT_BYTES: u32 = 1024;

/// Measures the writes of shard 0 in a batch, at the moment `now`.
///
/// The pressure is the number of write units in the busiest second. A batch that contains no whole second shows too few of
/// them. For such a batch, a low reserved limit counts, with everything that accrues by the end of the batch's last
/// second. A batch of old records shows no pressure.
#[must_use]
pub fn measure(activity: &Activity<'_>, state: &BucketState<'_>, now: EpochMillis, policy: &Policy) -> Pressure {
    let units = activity.demand.iter().find_map(|(limit, demand)| limit.is_write_units().then_some(demand));
    let (Some(demand), Some(write_units)) = (units, state.write_units()) else { return Pressure::Bearable };
    let a_second = write_units.terms.capacity.get();
    let bearable = part(a_second, policy.percent);
    let units_per_write = i64::from(state.bytes.div_ceil(WRITE_UNIT_BYTES).max(1));
    let written = demand.a_second().get().saturating_mul(units_per_write);
    let used = a_second.saturating_sub(left(activity.created, state, write_units.tokens).get());
    let is_low = written >= bearable / SAMPLE && used.saturating_mul(units_per_write) > bearable;
    // The busiest second may be older than the last record.
    let is_old = [activity.created, demand.busiest_at()].iter().any(|time| now.since(*time) > MAX_AGE);
    if bearable <= 0 || is_old || (written < bearable && !is_low) {
        return Pressure::Bearable;
    }
    match state.shards.doubled() {
        Some(doubled) if doubled > policy.max_shards || !split::is_supported(doubled) => Pressure::AtLimit,
        Some(doubled) if !holds_acquires(activity, state, doubled) => Pressure::Indivisible,
        Some(doubled) => Pressure::High(doubled),
        None => Pressure::AtLimit,
    }
}

/// Whether a share of so many shards would cover the largest acquire in the batch.
fn holds_acquires(activity: &Activity<'_>, state: &BucketState<'_>, shards: ShardCount) -> bool {
    state.divided().all(|(limit, limit_state)| {
        let largest = activity.demand.get(limit).map_or_else(Millitokens::default, Demand::largest);
        limit_state.terms.share(limit, shards).capacity >= largest
    })
}

fn part(whole: i64, percent: u8) -> i64 {
    let part = i128::from(whole) * i128::from(percent) / 100;
    i64::try_from(part).unwrap_or(i64::MAX)
}

/// The write units that the shard has at the end of the second of `created`.
fn left(created: EpochMillis, state: &BucketState<'_>, stored: Millitokens) -> Millitokens {
    let Some((limit, write_units)) = state.limits.iter().find(|(limit, _)| limit.is_write_units()) else {
        return stored;
    };
    let share = state.share(limit, write_units);
    let elapsed = u128::try_from(created.get() / 1000 * 1000 + 999 - state.last_refill.get()).unwrap_or(0);
    let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
    Millitokens::new(stored.get().saturating_add(accrued))
}

/// The consumption of write units by shard 0 and by the newest shards, at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadCheck {
    /// The moment.
    pub at: EpochMillis,
    /// The consumption of shard 0.
    pub zero: Millitokens,
    /// The consumption of the newer half of the shards together.
    pub newest: Millitokens,
}

/// Whether writes spread over the shards of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The newest shards have their part of the writes.
    Even,
    /// The newest shards have too few writes. Old clients write the parents of a cascade on shard 0 only, so more shards
    /// would only shrink their limits.
    Uneven,
    /// There were too few writes since the earlier check.
    TooSoon,
    /// The earlier check is too old, or is one of an earlier bucket with the same name.
    Unknown,
}

impl SpreadCheck {
    /// Creates a check from shard 0 and the newer half of the shards.
    #[must_use]
    pub fn new<'s, 'a: 's>(
        at: EpochMillis,
        zero: &BucketState<'_>,
        newest: impl IntoIterator<Item = &'s BucketState<'a>>,
    ) -> Self {
        let newest = newest.into_iter().map(|state| written(state).get()).fold(0, i64::saturating_add);
        Self { at, zero: written(zero), newest: Millitokens::new(newest) }
    }

    /// Judges the writes since an earlier check, in a bucket of so many shards.
    #[must_use]
    pub fn spread_since(&self, earlier: &Self, shards: ShardCount) -> Spread {
        let difference = |now: Millitokens, then: Millitokens| i128::from(now.get()) - i128::from(then.get());
        let (zero, newest) = (difference(self.zero, earlier.zero), difference(self.newest, earlier.newest));
        let age = self.at.get() - earlier.at.get();
        if !(0..=MAX_CHECK_AGE).contains(&age) || zero < 0 || newest < 0 {
            return Spread::Unknown;
        }
        if zero < MIN_WRITTEN {
            return Spread::TooSoon;
        }
        let count = i128::from(shards.get() / 2);
        if newest * SPREAD >= zero * count { Spread::Even } else { Spread::Uneven }
    }
}

/// The consumption of write units.
fn written(state: &BucketState<'_>) -> Millitokens {
    state.write_units().map_or(Millitokens::default(), |write_units| write_units.consumed)
}
