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
    level::Level,
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

impl<'a> Refill<'a> {
    /// The item after the write, if nobody else writes to it.
    #[must_use]
    pub fn applied_to(&self, mut state: BucketState<'a>) -> BucketState<'a> {
        state.last_refill = self.until;
        for (limit, limit_state) in &mut state.limits {
            let credit = self.credits.get(limit).copied().unwrap_or_default();
            let tokens = Millitokens::new(limit_state.tokens.get().saturating_add(credit.get()));
            limit_state.tokens = self.trims.get(limit).copied().unwrap_or(tokens);
        }
        state
    }
}

/// Decides on a shard for which a batch shows this demand.
#[must_use]
pub fn decide<'a>(
    level: &Level<'a>,
    demand: &BTreeMap<Limit<'a>, Demand>,
    now: EpochMillis,
    policy: &Policy,
) -> Decision<'a> {
    let is_saving = |refill: &Refill<'a>| {
        demand.iter().any(|(limit, demand)| {
            let Some(limit_state) = level.seen().limits.get(limit) else { return false };
            // What is only carried over from an earlier batch asks for nothing now.
            let is_short = demand.a_second().get() > 0 && demand.within(policy.horizon) > limit_state.tokens;
            let admits_more = |credit: &Millitokens| {
                let (stored, mean) = (limit_state.tokens.get(), demand.mean().get());
                credit.get() >= mean || (stored < mean && stored.saturating_add(credit.get()) >= mean)
            };
            is_short
                && refill.credits.get(limit).is_some_and(|credit| *credit >= policy.min_credit && admits_more(credit))
        })
    };
    consider(level, now, policy, is_saving)
}

/// Decides on a shard that nobody may have written to for long: it is refilled from below half of its
/// share, and else filled up as soon as that is possible and more than a sixteenth.
#[must_use]
pub fn decide_idle<'a>(level: &Level<'a>, now: EpochMillis, policy: &Policy) -> Decision<'a> {
    let state = level.seen();
    let is_saving = |refill: &Refill<'a>| {
        refill.credits.iter().any(|(limit, credit)| {
            let Some(limit_state) = state.limits.get(limit) else { return false };
            let (stored, capacity) = (limit_state.tokens.get(), state.share(limit, limit_state).capacity.get());
            let is_drained = stored < capacity / 2 && *credit >= policy.min_credit;
            is_drained || (stored + credit.get() >= capacity && credit.get() > capacity / 16)
        })
    };
    consider(level, now, policy, is_saving)
}

fn consider<'a>(
    level: &Level<'a>,
    now: EpochMillis,
    policy: &Policy,
    is_saving: impl Fn(&Refill<'a>) -> bool,
) -> Decision<'a> {
    let state = level.seen();
    if state.is_expired(now) {
        return Decision::Expired;
    }
    if now.get() - state.last_refill.get() < i64::from(policy.min_interval) {
        return Decision::TooSoon;
    }
    match accrue(level, now) {
        Some(refill) if !refill.trims.is_empty() || is_saving(&refill) => Decision::Refill(refill),
        Some(_) | None => Decision::Enough,
    }
}

/// Everything that has accrued by `now`, as far as it can be credited without loss; `None` if that is nothing.
fn accrue<'a>(level: &Level<'a>, now: EpochMillis) -> Option<Refill<'a>> {
    let until = last_whole(level, now)?;
    let state = level.seen();
    let (mut credits, mut trims) = (BTreeMap::new(), BTreeMap::new());
    for (limit, limit_state) in &state.limits {
        let share = state.share(limit, limit_state);
        let room = i128::from(share.capacity.get()) - i128::from(limit_state.tokens.get());
        let credit = pending(level, limit, &share, until).min(room);
        if room < 0 {
            trims.insert(limit.clone(), share.capacity);
        } else if credit > 0 {
            // Debt apart, a credit is no greater than a capacity.
            credits.insert(limit.clone(), Millitokens::new(i64::try_from(credit).unwrap_or(i64::MAX)));
        }
    }
    (!credits.is_empty() || !trims.is_empty()).then_some(Refill { until, credits, trims })
}

/// The last moment after the last refill, and not after `now`, by which whole millitokens have accrued,
/// so that rounding takes nothing from a limit, whoever goes on from there.
///
/// A limit that is full afterwards has nothing to lose, and one that does not count from the last refill no
/// more than its level keeps. All others accrue whole millitokens at the multiples of a common grain; where that
/// is longer than the time that has passed, the slowest of those that have accrued anything decides by its
/// own time, and the fractions of the others are left to the level.
fn last_whole(level: &Level<'_>, now: EpochMillis) -> Option<EpochMillis> {
    let state = level.seen();
    let elapsed = u128::try_from(now.get() - state.last_refill.get()).ok()?;
    let open: Vec<Share> = state
        .limits
        .iter()
        .map(|(limit, limit_state)| (limit, limit_state.tokens, state.share(limit, limit_state)))
        .filter(|(limit, tokens, share)| {
            let room = i128::from(share.capacity.get()) - i128::from(tokens.get());
            level.counts_from_refill(limit) && pending(level, limit, share, now) < room
        })
        .map(|(_, _, share)| share)
        .collect();
    let grain = open.iter().fold(1, |grain, share| lcm(grain, share.grain()));
    let elapsed = if grain <= elapsed {
        elapsed - elapsed % grain
    } else {
        let accruing = open.iter().filter(|share| share.accrued(elapsed) > 0);
        let slowest = accruing.min_by_key(|share| share.accrued(elapsed));
        slowest.map_or(elapsed, |share| share.time_for(share.accrued(elapsed)))
    };
    let until = EpochMillis::new(state.last_refill.get() + i64::try_from(elapsed).ok()?).ok()?;
    (until > state.last_refill).then_some(until)
}

fn pending(level: &Level<'_>, limit: &Limit<'_>, share: &Share, until: EpochMillis) -> i128 {
    i128::try_from(level.pending(limit, share, until)).unwrap_or(i128::MAX)
}
