//! Repair: aligns shards with shard 0, and moves tokens between them.
//!
//! Old clients write new limits to shard 0 only. No client renews the expiry of a shard that it does not draw from, and no
//! client moves tokens between shards.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    bucket::{Limit, Shard},
    refill::{self, Refill},
    state::{BucketState, LimitState, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

/// What to write to a shard so that it agrees with shard 0. It contains at least one change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alignment<'a> {
    /// The new terms of limits.
    pub terms: BTreeMap<Limit<'a>, Terms>,
    /// Limits that the shard does not have yet, with its initial tokens: its share.
    pub added: BTreeMap<Limit<'a>, (Terms, Millitokens)>,
    /// The new expiry, if it changes.
    pub expiry: Option<Expiry>,
}

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At this time, in epoch **seconds**.
    At(i64),
    /// Never.
    Never,
}

/// Compares a shard with shard 0. `None` if they agree.
///
/// The expiry never moves forward, because a client may have renewed the shard itself. It moves back only if the shard has
/// less than half of shard 0's time left, because clients renew shard 0 with every slow path. Limits that shard 0 does not
/// have stay: clients no longer take tokens of them.
#[must_use]
pub fn align<'a>(zero: &BucketState<'a>, shard: &BucketState<'a>, now: EpochMillis) -> Option<Alignment<'a>> {
    let mut alignment = Alignment::default();
    for (limit, LimitState { terms, .. }) in &zero.limits {
        match shard.limits.get(limit) {
            Some(state) if state.terms == *terms => {}
            Some(_) => {
                alignment.terms.insert(limit.clone(), *terms);
            }
            None => {
                let tokens = terms.share(limit, shard.shards).capacity;
                alignment.added.insert(limit.clone(), (*terms, tokens));
            }
        }
    }
    let left = |expires: i64| i128::from(expires) - i128::from(now.get() / 1000);
    alignment.expiry = match (zero.expires, shard.expires) {
        (Some(zero), Some(shard)) if zero > shard && left(shard) * 2 < left(zero) => Some(Expiry::At(zero)),
        (None, Some(_)) => Some(Expiry::Never),
        _ => None,
    };
    (alignment != Alignment::default()).then_some(alignment)
}

/// Applies an alignment to a shard.
pub fn apply<'a>(alignment: &Alignment<'a>, shard: &mut BucketState<'a>) {
    for (limit, terms) in &alignment.terms {
        if let Some(state) = shard.limits.get_mut(limit) {
            state.terms = *terms;
        }
    }
    for (limit, (terms, tokens)) in &alignment.added {
        let state = LimitState { tokens: *tokens, consumed: Millitokens::default(), terms: *terms };
        shard.limits.insert(limit.clone(), state);
    }
    match alignment.expiry {
        Some(Expiry::At(expires)) => shard.expires = Some(expires),
        Some(Expiry::Never) => shard.expires = None,
        None => {}
    }
}

/// Tokens that move from one shard of a bucket to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<'a> {
    /// The limit.
    pub limit: Limit<'a>,
    /// The shard that has tokens to spare.
    pub from: Shard,
    /// The refill of the giving shard, as a part of the move, if what has accrued there does not fit. The rest is
    /// forfeited. Without the refill, it would fit after the move, and the move would create tokens.
    pub settled: Option<Refill<'a>>,
    /// What has accrued after the time of that refill and does not fit either. It leaves the shard and is forfeited.
    pub forfeited: Millitokens,
    /// The dry shard.
    pub to: Shard,
    /// The tokens that move. Positive.
    pub tokens: Millitokens,
}

/// A shard is dry if it holds less than 1/`DRY` of its share, including what has accrued.
const DRY: i64 = 16;

/// A shard can spare tokens if it holds at least 1/`SPARE` of its share.
const SPARE: i64 = 2;

/// Pairs the dry shards of a bucket with shards that can spare tokens, from a read that began at `at`. After the moves, both
/// shards of a pair hold about the same. A shard takes part in at most one move.
///
/// While a move from a full shard is on its way, that shard accrues tokens that it would have lost without the move. So
/// both shards together may admit more afterwards: the shard's refill rate times the duration of the write.
#[must_use]
pub fn rebalance<'a>(states: &BTreeMap<Shard, BucketState<'a>>, at: EpochMillis) -> Vec<Move<'a>> {
    let Some(zero) = states.get(&Shard::ZERO) else { return Vec::new() };
    let (mut moves, mut used) = (Vec::new(), BTreeSet::new());
    for (limit, _) in zero.divided() {
        let (mut takers, mut givers) = (Vec::new(), Vec::new());
        for (shard, state) in states.iter().filter(|(shard, _)| !used.contains(*shard)) {
            let Some(limit_state) = state.limits.get(limit) else { continue };
            let share = state.share(limit, limit_state);
            let (stored, capacity) = (limit_state.tokens.get(), share.capacity.get());
            let accrued = share.accrued(at.since(state.last_refill).as_millis());
            let available = stored.saturating_add(i64::try_from(accrued).unwrap_or(i64::MAX));
            if available < capacity / DRY {
                takers.push((available, capacity, *shard));
            } else if stored >= capacity / SPARE && available <= capacity {
                givers.push((stored, *shard, None, 0));
            } else if stored >= capacity / SPARE
                && let Some(settled) = refill::settle(state, at).filter(|settled| settled.trims.is_empty())
            {
                let stored = stored + settled.credits.get(limit).copied().unwrap_or_default().get();
                let later = share.accrued(at.since(settled.until).as_millis());
                let later = i64::try_from(later).unwrap_or(i64::MAX);
                let forfeited = stored.saturating_add(later).saturating_sub(capacity).max(0);
                givers.push((stored - forfeited, *shard, Some(settled), forfeited));
            }
        }
        takers.sort_by_key(|(available, ..)| *available);
        givers.sort_by_key(|(stored, ..)| std::cmp::Reverse(*stored));
        for ((available, capacity, to), (stored, from, settled, forfeited)) in takers.into_iter().zip(givers) {
            // The giving shard never gives more than it stores, however large the debt of the other one is.
            let tokens = ((stored - available) / 2).min(stored).min(capacity - available);
            if tokens > 0 {
                used.extend([from, to]);
                let (forfeited, tokens) = (Millitokens::new(forfeited), Millitokens::new(tokens));
                moves.push(Move { limit: limit.clone(), from, settled, forfeited, to, tokens });
            }
        }
    }
    moves
}
