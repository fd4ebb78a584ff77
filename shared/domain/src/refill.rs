//! Refill: what has accrued is put into a bucket item's tokens, where speculative writes can see it.
//!
//! One write credits **every** limit of the item, because all share one time of the last refill: a limit
//! that is left out would forfeit what it accrued. The write is right on the condition that the item
//! was not refilled, split or reconfigured since it was seen, and that nobody else credited it; then it
//! can come late, twice or beside another without a token from nowhere.

use std::collections::BTreeMap;

use crate::{
    activity::Demand,
    bucket::Limit,
    state::{BucketState, Share, lcm},
    time::EpochMillis,
    tokens::Millitokens,
};

/// When a refill is worth its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// For how long the stored tokens must last, in milliseconds: until the keeper can act again.
    pub horizon: u32,
    /// The least credit that is worth a write.
    pub min_credit: Millitokens,
    /// The least time between two refills of an item, in milliseconds, whoever made the first.
    pub min_interval: u32,
}

/// What to do about an item's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Write this.
    Refill(Refill<'a>),
    /// The stored tokens last, or there is too little to credit: a write would save none.
    Enough,
    /// Somebody refilled the item just now.
    TooSoon,
    /// The item has expired; its clients will renew it.
    Expired,
}

/// One write of a refill: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refill<'a> {
    /// The new time of the last refill: later than the one seen, and not in the future.
    pub until: EpochMillis,
    /// What to add, above zero.
    pub credits: BTreeMap<Limit<'a>, Millitokens>,
    /// Limits that hold more than their share, and the share: what they are to hold if it still is more.
    pub trims: BTreeMap<Limit<'a>, Millitokens>,
}

/// Decides on a shard for which a batch shows this demand.
#[must_use]
pub fn decide<'a>(
    state: &BucketState<'a>,
    demand: &BTreeMap<Limit<'a>, Demand>,
    now: EpochMillis,
    policy: &Policy,
) -> Decision<'a> {
    let is_saving = |refill: &Refill<'a>| {
        demand.iter().any(|(limit, demand)| {
            let Some(limit_state) = state.limits.get(limit) else { return false };
            let lasts = demand.within(policy.horizon) <= limit_state.tokens;
            !lasts && refill.credits.get(limit).is_some_and(|credit| *credit >= policy.min_credit.max(demand.mean()))
        })
    };
    consider(state, now, policy, is_saving)
}

/// Decides on a shard that nobody may have written to for long: it is refilled from below half of its
/// share, and else filled up as soon as that is possible and more than a sixteenth.
#[must_use]
pub fn decide_idle<'a>(state: &BucketState<'a>, now: EpochMillis, policy: &Policy) -> Decision<'a> {
    let is_saving = |refill: &Refill<'a>| {
        refill.credits.iter().any(|(limit, credit)| {
            let Some(limit_state) = state.limits.get(limit) else { return false };
            let (stored, capacity) = (limit_state.tokens.get(), state.share(limit, limit_state).capacity.get());
            let is_drained = stored < capacity / 2 && *credit >= policy.min_credit;
            is_drained || (stored + credit.get() >= capacity && credit.get() > capacity / 16)
        })
    };
    consider(state, now, policy, is_saving)
}

fn consider<'a>(
    state: &BucketState<'a>,
    now: EpochMillis,
    policy: &Policy,
    is_saving: impl Fn(&Refill<'a>) -> bool,
) -> Decision<'a> {
    if state.is_expired(now) {
        return Decision::Expired;
    }
    if now.get() - state.last_refill.get() < i64::from(policy.min_interval) {
        return Decision::TooSoon;
    }
    match accrue(state, now) {
        Some(refill) if !refill.trims.is_empty() || is_saving(&refill) => Decision::Refill(refill),
        Some(_) | None => Decision::Enough,
    }
}

/// Everything that has accrued by `now`, as far as it can be credited without loss; `None` if that is
/// nothing, or if a limit would lose all that it accrued.
#[must_use]
pub fn accrue<'a>(state: &BucketState<'a>, now: EpochMillis) -> Option<Refill<'a>> {
    let elapsed = u128::try_from(now.get() - state.last_refill.get()).ok()?;
    let elapsed = whole(state, elapsed)?;
    let until = EpochMillis::new(state.last_refill.get() + i64::try_from(elapsed).ok()?).ok()?;
    let (mut credits, mut trims) = (BTreeMap::new(), BTreeMap::new());
    for (limit, limit_state) in &state.limits {
        let share = state.share(limit, limit_state);
        let room = i128::from(share.capacity.get()) - i128::from(limit_state.tokens.get());
        let accrued = i128::try_from(share.accrued(elapsed)).unwrap_or(i128::MAX);
        if room < 0 {
            trims.insert(limit.clone(), share.capacity);
        } else if room.min(accrued) > 0 {
            // Debt apart, a credit is no greater than a capacity.
            let credit = i64::try_from(room.min(accrued)).unwrap_or(i64::MAX);
            credits.insert(limit.clone(), Millitokens::new(credit));
        }
    }
    (until > state.last_refill && !(credits.is_empty() && trims.is_empty())).then_some(Refill { until, credits, trims })
}

/// The part of `elapsed` in which whole millitokens accrue, so that rounding takes nothing from a limit.
///
/// A limit that is full afterwards has nothing to lose. Of the others, all accrue whole millitokens at
/// the multiples of a common grain; where that is longer than `elapsed`, the slowest limit's own time
/// decides, and the faster ones lose less than a millitoken.
fn whole(state: &BucketState<'_>, elapsed: u128) -> Option<u128> {
    let open: Vec<Share> = state
        .limits
        .iter()
        .map(|(limit, limit_state)| (state.share(limit, limit_state), limit_state.tokens))
        .filter(|(share, tokens)| {
            let accrued = i128::try_from(share.accrued(elapsed)).unwrap_or(i128::MAX);
            accrued < i128::from(share.capacity.get()) - i128::from(tokens.get())
        })
        .map(|(share, _)| share)
        .collect();
    let grain = open.iter().fold(1, |grain, share| lcm(grain, share.grain()));
    if grain <= elapsed {
        return Some(elapsed - elapsed % grain);
    }
    let slowest = open.iter().min_by_key(|share| share.accrued(elapsed))?;
    let accrued = slowest.accrued(elapsed);
    (accrued > 0).then(|| slowest.time_for(accrued))
}
