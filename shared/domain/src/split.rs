//! Splits: creates the missing shards of a bucket without creating or losing a token.
//!
//! One transaction doubles a bucket of `n` shards, or completes a bucket whose clients have raised its number of shards.
//! Shard `k` splits into `k` and `k + n`: each new shard takes an equal part of the tokens of the shard that it splits from.
//! It takes over that shard's time of the last refill, and so also its part of what accrues from then on. The new
//! number of shards and the new shards become visible together, so no client finds a shard missing and creates it
//! with a full share.

use std::collections::BTreeMap;

use crate::{
    bucket::{Limit, Shard},
    state::{BucketState, LimitState, ShardCount},
    tokens::Millitokens,
};

/// The most shards of a bucket. The doubling to 64 shards writes 64 items, and a transaction takes at most 100.
///
/// AWS: [TransactWriteItems](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html).
pub const MAX_SHARDS: u32 = 64;

/// What one transaction writes so that a bucket has all its shards. It contains at least one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// The new number of shards.
    pub shards: ShardCount,
    /// The shards that split.
    pub splits: Vec<Split<'a>>,
    /// Other shards, which only get the new number of shards.
    pub raises: Vec<Shard>,
}

/// One shard that splits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The shard that gives tokens away.
    pub donor: Shard,
    /// What each new shard gets from the donor, by limit: an equal part of its tokens or of its debt.
    pub gifts: BTreeMap<Limit<'a>, Millitokens>,
    /// The tokens of each new shard: the gifts, all write units, and a share of limits that the donor does not have yet.
    pub tokens: BTreeMap<Limit<'a>, Millitokens>,
    /// The shards that are created.
    pub targets: Vec<Shard>,
}

impl Split<'_> {
    /// Returns the tokens of a limit that the donor gives away.
    #[must_use]
    pub fn given(&self, limit: &Limit<'_>) -> Millitokens {
        let gift = self.gifts.get(limit).copied().unwrap_or_default().get();
        Millitokens::new(gift * i64::try_from(self.targets.len()).unwrap_or_default())
    }
}

/// Returns whether splits lead to this number of shards: a power of two, at most [`MAX_SHARDS`].
#[must_use]
pub const fn is_supported(shards: ShardCount) -> bool {
    shards.get().is_power_of_two() && shards.get() <= MAX_SHARDS
}

/// Plans the transaction that gives a bucket this many shards. `None` if nothing is missing. `states` are the existing
/// shards.
#[must_use]
pub fn plan<'a>(states: &BTreeMap<Shard, BucketState<'a>>, shards: ShardCount) -> Option<Plan<'a>> {
    let zero = states.get(&Shard::ZERO)?;
    let mut targets: BTreeMap<Shard, Vec<Shard>> = BTreeMap::new();
    for target in (1..shards.get()).map(Shard::new).filter(|shard| !states.contains_key(shard)) {
        targets.entry(donor_of(states, target)).or_default().push(target);
    }
    let raises = states
        .iter()
        .filter(|(shard, state)| state.shards < shards && !targets.contains_key(shard))
        .map(|(shard, _)| *shard)
        .collect::<Vec<_>>();
    let splits = targets
        .into_iter()
        .filter_map(|(donor, targets)| Some(split(zero, states.get(&donor)?, donor, targets, shards)))
        .collect::<Vec<_>>();
    (!splits.is_empty() || !raises.is_empty()).then_some(Plan { shards, splits, raises })
}

/// The shard that a missing one splits from: the nearest existing one on the way to shard 0.
fn donor_of(states: &BTreeMap<Shard, BucketState<'_>>, target: Shard) -> Shard {
    let mut donor = target;
    while donor != Shard::ZERO && (donor == target || !states.contains_key(&donor)) {
        donor = Shard::new(donor.get() - (1 << donor.get().ilog2()));
    }
    donor
}

fn split<'a>(
    zero: &BucketState<'a>,
    from: &BucketState<'a>,
    donor: Shard,
    targets: Vec<Shard>,
    shards: ShardCount,
) -> Split<'a> {
    let parts = i64::try_from(targets.len()).unwrap_or(i64::MAX).saturating_add(1);
    let (mut gifts, mut tokens) = (BTreeMap::new(), BTreeMap::new());
    for (limit, LimitState { terms, .. }) in &zero.limits {
        let own = match from.limits.get(limit) {
            Some(LimitState { tokens, .. }) if !limit.is_write_units() => {
                let gift = Millitokens::new(tokens.get() / parts);
                gifts.insert(limit.clone(), gift);
                gift
            }
            _ => terms.share(limit, shards).capacity,
        };
        tokens.insert(limit.clone(), own);
    }
    gifts.retain(|_, gift| gift.get() != 0);
    Split { donor, gifts, tokens, targets }
}

/// Applies the transaction to the shards.
pub fn apply<'a>(plan: &Plan<'a>, states: &mut BTreeMap<Shard, BucketState<'a>>) {
    let Some(zero) = states.get(&Shard::ZERO).cloned() else { return };
    for split in &plan.splits {
        let Some(donor) = states.get_mut(&split.donor) else { continue };
        for (limit, state) in &mut donor.limits {
            state.tokens = Millitokens::new(state.tokens.get() - split.given(limit).get());
        }
        donor.shards = plan.shards;
        let mut target = BucketState { last_refill: donor.last_refill, shards: plan.shards, ..zero.clone() };
        for (limit, state) in &mut target.limits {
            state.tokens = split.tokens.get(limit).copied().unwrap_or_default();
            state.consumed = Millitokens::default();
        }
        states.extend(split.targets.iter().map(|shard| (*shard, target.clone())));
    }
    for shard in &plan.raises {
        if let Some(state) = states.get_mut(shard) {
            state.shards = plan.shards;
        }
    }
}
