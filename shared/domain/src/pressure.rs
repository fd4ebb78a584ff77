//! Pressure: whether a bucket's shards are written faster than their partitions can take, and whether
//! more shards would help.
//!
//! A partition of a table takes 1,000 write units a second, for which every bucket item has a reserved
//! limit. AWS: [partition
//! throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).

use crate::{
    activity::Activity,
    state::{BucketState, ShardCount},
    time::EpochMillis,
    tokens::Millitokens,
};

/// When a bucket's shards are doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The most shards that a bucket is given.
    pub max_shards: ShardCount,
    /// Of the write units of a partition, the part that one shard may take, in percent.
    pub percent: u8,
}

/// How hard shard 0 is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// As hard as its partition takes.
    Bearable,
    /// Too hard, and the bucket may have this many shards.
    High(ShardCount),
    /// Too hard, and the bucket has as many shards as it may have.
    AtLimit,
}

/// Of what is bearable, the part that must be seen in a second, one in this many, before short write units are
/// believed to be due to writes: a client's refill that left them out makes them short too.
const SAMPLE: i64 = 2;

/// The part of shard 0's writes that the newest shards must each have had, one in this many on average,
/// before there are more of them.
const SPREAD: i128 = 4;

/// Measures the writes of shard 0 in a batch.
///
/// The pressure is the number of writes in the busiest second. A batch too short to hold a whole second
/// tells too little of that; then it counts that the reserved limit has run low, although it is credited
/// all that could have accrued by the end of the batch's last second.
#[must_use]
pub fn measure(activity: &Activity<'_>, state: &BucketState<'_>, policy: &Policy) -> Pressure {
    let units = activity.demand.iter().find_map(|(limit, demand)| limit.is_write_units().then_some(demand));
    let (Some(demand), Some(write_units)) = (units, state.write_units()) else { return Pressure::Bearable };
    let a_second = write_units.terms.capacity.get();
    let bearable = part(a_second, policy.percent);
    let is_low = || {
        demand.a_second().get() >= bearable / SAMPLE
            && left(activity.seen, state, write_units.tokens).get() < a_second - bearable
    };
    if bearable <= 0 || (demand.a_second().get() < bearable && !is_low()) {
        return Pressure::Bearable;
    }
    match state.shards.doubled() {
        Some(doubled) if doubled <= policy.max_shards => Pressure::High(doubled),
        _ => Pressure::AtLimit,
    }
}

fn part(whole: i64, percent: u8) -> i64 {
    let part = i128::from(whole) * i128::from(percent) / 100;
    i64::try_from(part).unwrap_or(i64::MAX)
}

/// The write units that the shard has at the end of the second in which it was `seen`.
fn left(seen: EpochMillis, state: &BucketState<'_>, stored: Millitokens) -> Millitokens {
    let Some((limit, write_units)) = state.limits.iter().find(|(limit, _)| limit.is_write_units()) else {
        return stored;
    };
    let share = state.share(limit, write_units);
    let elapsed = u128::try_from(seen.get() / 1000 * 1000 + 999 - state.last_refill.get()).unwrap_or(0);
    let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
    Millitokens::new(stored.get().saturating_add(accrued).min(share.capacity.get()))
}

/// Whether writes spread over the shards: the newest ones, which began with nothing consumed when the
/// bucket was last doubled, must have had their part of what shard 0 has had since. The parents of a
/// cascade are always written on shard 0; for them, more shards only shrink the limits.
///
/// `zero_then` and `zero_now` are what shard 0 had consumed of the reserved limit at that doubling and
/// has now.
#[must_use]
pub fn spreads<'a, 'b: 'a>(
    newest: impl IntoIterator<Item = &'a BucketState<'b>>,
    zero_then: Millitokens,
    zero_now: Millitokens,
) -> bool {
    let consumed: Vec<i128> = newest
        .into_iter()
        .filter_map(BucketState::write_units)
        .map(|write_units| write_units.consumed.get().into())
        .collect();
    let (sum, count) = (consumed.iter().sum::<i128>(), i128::try_from(consumed.len()).unwrap_or(i128::MAX));
    let zero = i128::from(zero_now.get()) - i128::from(zero_then.get());
    sum > 0 && sum * SPREAD >= zero * count
}

/// What a state has consumed of the reserved limit.
#[must_use]
pub fn written(state: &BucketState<'_>) -> Millitokens {
    state.write_units().map_or(Millitokens::default(), |write_units| write_units.consumed)
}
