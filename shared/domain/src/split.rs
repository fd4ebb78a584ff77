//! Splits: how the shards that a bucket lacks come into being without a token from nowhere.
//!
//! With twice as many shards, shard `k` of `n` splits into `k` and `k + n`: the new one takes half of the
//! tokens and, because it takes over the time of the last refill, half of what accrues from then on. Each
//! split is one transaction on its own two items. Shard counts grow level by level on the way, so at any
//! point, after a crash or in a replay, the shares of the shards that exist add up to no more than the
//! whole limit, and [`next`] tells from the items alone what is missing.

use std::collections::BTreeMap;

use crate::{
    bucket::{Limit, Shard},
    state::{BucketState, LimitState, ShardCount},
    tokens::Millitokens,
};

/// The most shards that a bucket may have: what is beyond was doubled by a defect, and to create them all
/// would be worse.
pub const MOST_SHARDS: u32 = 1024;

/// What to do next towards a bucket's shards being as many as shard 0 says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A shard is created with half of what another has.
    Split(Split<'a>),
    /// A shard that exists learns that the bucket has this many shards: what it splits into exists too.
    Raise {
        /// The shard.
        shard: Shard,
        /// Its new count of shards.
        shards: ShardCount,
    },
}

/// One split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The shard that gives.
    pub donor: Shard,
    /// The shard that is created.
    pub target: Shard,
    /// How many shards both know of then: as many as there are on their level, as a rule.
    pub shards: ShardCount,
    /// What the donor gives, by limit: half of its tokens, or of its debt.
    pub gifts: BTreeMap<Limit<'a>, Millitokens>,
    /// What the created shard holds: the gifts, all write units, and a share of what the donor lacks.
    pub tokens: BTreeMap<Limit<'a>, Millitokens>,
}

/// Whether the shards of a bucket are ours to create: their number has doubled from one, and not too often.
#[must_use]
pub const fn is_tree(shards: ShardCount) -> bool {
    shards.get().is_power_of_two() && shards.get() <= MOST_SHARDS
}

/// The next step for a bucket, of whose shards these are there; `None` when nothing is missing. Shard 0
/// tells how many there must be.
#[must_use]
pub fn next<'a>(shards: &BTreeMap<Shard, BucketState<'a>>) -> Option<Step<'a>> {
    let zero = shards.get(&Shard::ZERO)?;
    let mut level = ShardCount::ONE;
    while level < zero.shards {
        let half = level;
        level = half.doubled()?;
        for donor in (0..half.get()).map(Shard::new) {
            let target = Shard::new(donor.get() + half.get());
            let Some(donor_state) = shards.get(&donor) else { continue };
            match shards.get(&target) {
                None => {
                    let count = count_of(shards, zero, (donor, donor_state), target, level);
                    return Some(Step::Split(split(zero, donor_state, donor, target, count)));
                }
                Some(target_state) => {
                    let lags = |state: &BucketState<'_>| state.shards < level;
                    let lagging = [(donor, donor_state), (target, target_state)];
                    if let Some((shard, _)) = lagging.into_iter().find(|(_, state)| lags(state)) {
                        return Some(Step::Raise { shard, shards: level });
                    }
                }
            }
        }
    }
    None
}

/// How many shards a split tells its two of: as many as there are on its level, so that what is to be given
/// away later is not taken for too much before. Where a shard was removed of which others have split off,
/// that would be a share that they have too.
fn count_of(
    shards: &BTreeMap<Shard, BucketState<'_>>,
    zero: &BucketState<'_>,
    (donor, donor_state): (Shard, &BucketState<'_>),
    target: Shard,
    level: ShardCount,
) -> ShardCount {
    if shards.keys().any(|shard| shard.get() % level.get() == target.get()) {
        zero.shards
    } else if donor == Shard::ZERO {
        level
    } else {
        level.max(donor_state.shards)
    }
}

fn split<'a>(
    zero: &BucketState<'a>,
    donor: &BucketState<'a>,
    from: Shard,
    target: Shard,
    shards: ShardCount,
) -> Split<'a> {
    let (mut gifts, mut tokens) = (BTreeMap::new(), BTreeMap::new());
    for (limit, LimitState { terms, .. }) in &zero.limits {
        let own = match donor.limits.get(limit) {
            Some(LimitState { tokens, .. }) if !limit.is_write_units() => {
                let gift = Millitokens::new(tokens.get() / 2);
                gifts.insert(limit.clone(), gift);
                gift
            }
            // The reserved limit, or one that the donor has not been told of yet.
            _ => terms.share(limit, shards).capacity,
        };
        tokens.insert(limit.clone(), own);
    }
    gifts.retain(|_, gift| gift.get() != 0);
    Split { donor: from, target, shards, gifts, tokens }
}

/// The shards after a step.
pub fn apply<'a>(step: &Step<'a>, shards: &mut BTreeMap<Shard, BucketState<'a>>) {
    match step {
        Step::Raise { shard, shards: count } => {
            if let Some(state) = shards.get_mut(shard) {
                state.shards = *count;
            }
        }
        Step::Split(split) => {
            let Some(zero) = shards.get(&Shard::ZERO).cloned() else { return };
            let Some(donor) = shards.get_mut(&split.donor) else { return };
            if split.donor != Shard::ZERO {
                donor.shards = split.shards;
            }
            for (limit, gift) in &split.gifts {
                if let Some(state) = donor.limits.get_mut(limit) {
                    state.tokens = Millitokens::new(state.tokens.get() - gift.get());
                }
            }
            let mut target = BucketState { last_refill: donor.last_refill, shards: split.shards, ..zero };
            for (limit, state) in &mut target.limits {
                state.tokens = split.tokens.get(limit).copied().unwrap_or_default();
                state.consumed = Millitokens::default();
            }
            shards.insert(split.target, target);
        }
    }
}
