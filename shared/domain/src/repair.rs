//! Repair: what a shard must be told, because nothing else tells it. Clients write new limits to shard 0
//! only, and renew the expiry of no shard that they do not draw from.

use std::collections::BTreeMap;

use crate::{
    bucket::Limit,
    state::{BucketState, LimitState, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

/// What to write to a shard so that it agrees with shard 0: never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alignment<'a> {
    /// Limits whose terms have changed.
    pub terms: BTreeMap<Limit<'a>, Terms>,
    /// Limits that the shard has not had, with the tokens that it begins with: its share.
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

/// What a shard lacks of what shard 0 says; `None` if it agrees.
///
/// An expiry is never brought forward, since a client may have renewed the shard itself, and is put off only when
/// less than half of the time that shard 0 has left is left to the shard: clients put off shard 0's again and
/// again. Limits that shard 0
/// does not have are left: clients take none of their tokens any more.
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

/// The shard after an alignment.
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
