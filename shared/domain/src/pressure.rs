//! Pressure: whether a bucket's shards are written faster than their partitions can take, and whether more
//! shards would help.
//!
//! A partition of a table takes 1,000 write units a second, for which every bucket item has a reserved limit.
//! AWS: [partition
//! throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).

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
    /// The most shards that a bucket is given.
    pub max_shards: ShardCount,
    /// The part of a partition's write units that one shard may take, in percent.
    pub percent: u8,
}

/// How hard shard 0 is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Its partition can take it.
    Bearable,
    /// Too hard; the bucket may have this many shards.
    High(ShardCount),
    /// Too hard, but the bucket has as many shards as it may have.
    AtLimit,
    /// Too hard, but a share of the doubled bucket would be smaller than an acquire that the batch shows: no shard
    /// could ever admit it.
    Indivisible,
}

/// A second must show at least 1/`SAMPLE` of the bearable write units before write units that have run low are
/// attributed to writes. A client's refill that leaves them out makes them run low too.
const SAMPLE: i64 = 2;

/// The newest shards must each have had at least 1/`SPREAD` of shard 0's writes, on average, before there are more of
/// them.
const SPREAD: i128 = 4;

/// Two checks this far apart, in milliseconds, say nothing about how the bucket is written now.
const MAX_CHECK_AGE: i64 = 60_000;

/// The least that shard 0 must have consumed of the reserved limit between two checks, in millitokens: a fifth of
/// what a partition takes in a second.
const MIN_WRITTEN: i128 = 200_000;

/// The size of a write unit, in bytes.
///
/// AWS: [write
/// capacity](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html).
const WRITE_UNIT_BYTES: u32 = 1024;

/// Measures the writes of shard 0 in a batch, at the moment `now`.
///
/// The pressure is the number of write units in the busiest second. A batch too short to contain a whole second
/// shows too few of them. Then it counts that the reserved limit has run low, although it is credited with all
/// that could have accrued by the end of the batch's last second. A batch of old records says nothing about now.
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

/// Whether a share of so many shards would cover the largest acquire that a batch shows.
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

/// How much of the reserved limit shard 0 and the newest shards had consumed at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadCheck {
    /// When.
    pub at: EpochMillis,
    /// What shard 0 had consumed.
    pub zero: Millitokens,
    /// What the newer half of the shards had consumed together.
    pub newest: Millitokens,
}

/// Whether writes spread over the shards of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The newest shards had their part of the writes.
    Even,
    /// They had not. The parents of a cascade are written on shard 0 by old clients; for them, more shards
    /// only shrink the limits.
    Uneven,
    /// Too little was written since the earlier check.
    TooSoon,
    /// The earlier check is too old, or of an earlier bucket of the same name.
    Unknown,
}

impl SpreadCheck {
    /// Takes a check from what shard 0 and the newer half of the shards consumed.
    #[must_use]
    pub fn new<'s, 'a: 's>(
        at: EpochMillis,
        zero: &BucketState<'_>,
        newest: impl IntoIterator<Item = &'s BucketState<'a>>,
    ) -> Self {
        let newest = newest.into_iter().map(|state| written(state).get()).fold(0, i64::saturating_add);
        Self { at, zero: written(zero), newest: Millitokens::new(newest) }
    }

    /// Judges by what was written since an earlier check, in a bucket of so many shards.
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

/// What a state has consumed of the reserved limit.
fn written(state: &BucketState<'_>) -> Millitokens {
    state.write_units().map_or(Millitokens::default(), |write_units| write_units.consumed)
}
