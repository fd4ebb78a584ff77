//! The limits and the items of a bucket, for all models of its writers.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    bucket::{Limit, Shard},
    state::{BucketState, LimitState, ShardCount, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

pub type State = BucketState<'static>;
pub type States = BTreeMap<Shard, State>;
/// Millitokens by limit.
pub type Amounts = BTreeMap<Limit<'static>, i64>;

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

pub const fn terms(capacity: i64, refill: i64, period: i64) -> Terms {
    Terms { capacity: Millitokens::new(capacity), refill: Millitokens::new(refill), period }
}

/// A number from 1 to below `2^bits`, of any magnitude.
pub fn any_magnitude(bits: u32) -> impl Strategy<Value = i64> {
    (0..bits).prop_flat_map(|bits| (1_i64 << bits)..(2_i64 << bits))
}

/// The terms of one to three limits: of any size, or such as fill up within a minute.
///
/// Clients round the divided refill down to whole millitokens. Multiples of 128 divide evenly, so an exact bucket has
/// the clients' rate on every shard.
pub fn any_terms() -> impl Strategy<Value = Vec<Terms>> {
    let period = prop_oneof![3 => any_magnitude(26), 2 => Just(1000), 2 => Just(60_000)];
    let one = (any_magnitude(24), any_magnitude(16), period, 500..60_000_i64, prop::bool::weighted(0.7));
    let one = one.prop_map(|(capacity, refill, period, fills_in, is_quick)| {
        let refill = refill * 128;
        terms(if is_quick { (refill * fills_in / period).max(1) } else { capacity }, refill, period)
    });
    prop::collection::vec(one, 1..=LIMITS.len())
}

/// A bucket item with the first limits and the reserved one, that holds its share of each.
pub fn full(of: &[Terms], shards: u32, at: i64) -> State {
    let shards = count(shards);
    let names = LIMITS.iter().zip(of.iter().copied()).chain([(&Limit::WRITE_UNITS, terms(1_000_000, 1_000_000, 1000))]);
    let limits = names.map(|(name, terms)| {
        let tokens = terms.share(&limit(name), shards).capacity;
        (limit(name), LimitState { tokens, consumed: Millitokens::default(), terms })
    });
    BucketState { last_refill: time(at), shards, expires: None, bytes: 500, limits: limits.collect() }
}

/// Adds tokens to a limit, and to what was consumed of it.
pub fn shift(state: &mut State, limit: &Limit<'static>, tokens: i64, consumed: i64) {
    let Some(state) = state.limits.get_mut(limit) else { return };
    state.tokens = Millitokens::new(state.tokens.get() + tokens);
    state.consumed = Millitokens::new(state.consumed.get() + consumed);
}
