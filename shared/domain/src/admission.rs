//! Admission: what a shard of a bucket grants at a moment, and the one write that takes it.
//!
//! At the moment `now`, a shard can grant `V = min(share, tokens + rate * (now - last refill))` of a limit. A request is
//! granted exactly when `V` covers all its amounts. This is the clients' own rule, so a request is granted here when their
//! slow path would grant it.
//!
//! A [`Take`] is the write that takes granted amounts. It refills and takes at once, and depends on the image that it was
//! computed from. It lowers `V` by what it takes, and by nothing else:
//!
//! - A limit that is not full keeps everything that it has accrued. The time of the last refill moves only to a moment
//!   by which whole millitokens have accrued ([`refill`]); what has accrued since then is taken on account,
//!   so the stored tokens may fall below zero.
//! - A limit that is full forfeits what has accrued beyond its share, as it does when the clients refill it. If the time of
//!   the last refill does not move, only limits that are taken from do so.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tidegate_domain::{
//!     admission::{self, Amounts, Outcome, Remedy},
//!     bucket::Limit,
//!     state::{BucketState, LimitState, ShardCount, Terms},
//!     time::EpochMillis,
//!     tokens::Millitokens,
//! };
//!
//! let tokens = |count: i64| Millitokens::new(count * 1000);
//! let limit = |capacity, refill, period, held| LimitState {
//!     tokens: tokens(held),
//!     consumed: tokens(0),
//!     terms: Terms { capacity: tokens(capacity), refill: tokens(refill), period },
//! };
//! let rpm = Limit::new("rpm")?;
//! let bucket = BucketState {
//!     last_refill: EpochMillis::new(1_767_225_600_000)?,
//!     shards: ShardCount::ONE,
//!     expires: None,
//!     bytes: 400,
//!     limits: [
//!         (rpm.clone(), limit(60, 60, 60_000, 2)),
//!         (Limit::new(Limit::WRITE_UNITS)?, limit(1000, 1000, 1000, 1000)),
//!     ]
//!     .into(),
//! };
//! let three = Amounts::from([(rpm.clone(), tokens(3))]);
//!
//! // Two tokens are stored, and half a second has refilled half a token.
//! let now = bucket.last_refill.after(Duration::from_millis(500));
//! let decision = admission::decide(&bucket, std::slice::from_ref(&three), now);
//! let Outcome::Denied(shortages) = &decision.outcomes[0] else { panic!("three are more than 2.5") };
//! assert_eq!(shortages[0].remedy, Remedy::Wait(Duration::from_millis(500)));
//!
//! let now = now.after(Duration::from_millis(500));
//! let decision = admission::decide(&bucket, &[three], now);
//! assert_eq!(decision.outcomes[0], Outcome::Granted);
//! let after = decision.take.expect("something is taken").applied_to(bucket);
//! assert_eq!(after.limits[&rpm].tokens, tokens(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{cmp::Ordering, collections::BTreeMap, time::Duration};

use crate::{
    bucket::{Limit, Shard},
    refill,
    state::{BucketState, LimitState, Share},
    time::EpochMillis,
    tokens::Millitokens,
};

/// What a request asks for: millitokens by limit, none below zero.
pub type Amounts<'a> = BTreeMap<Limit<'a>, Millitokens>;

/// What a client's write takes of the reserved limit, in millitokens: one write unit.
pub const WRITE_UNIT: Millitokens = Millitokens::new(1000);

/// A longer wait counts as never: about 35 years, in milliseconds.
const LONGEST_WAIT: u64 = 1 << 40;

/// What a shard grants of some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// What becomes of each request, in the order of the requests.
    pub outcomes: Vec<Outcome<'a>>,
    /// The write that takes all granted amounts; `None` if no request is granted.
    pub take: Option<Take<'a>>,
}

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The shard holds everything that the request asks for.
    Granted,
    /// The shard lacks tokens of these limits; never empty.
    Denied(Vec<Shortage<'a>>),
    /// The bucket does not have this limit.
    Missing(Limit<'a>),
}

/// A limit that is short: a request asks for more than the shard holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage<'a> {
    /// The limit.
    pub limit: Limit<'a>,
    /// What the request asks for.
    pub requested: Millitokens,
    /// What the shard can grant; below zero in debt.
    pub available: Millitokens,
    /// What the whole bucket can hold.
    pub capacity: Millitokens,
    /// What helps.
    pub remedy: Remedy,
}

/// What a caller can do about a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Wait for so long. Then the shard can grant the request if no other caller takes tokens meanwhile.
    Wait(Duration),
    /// Take the amount from several shards: it is more than one shard can hold, but not more than the bucket can.
    SeveralShards,
    /// Nothing: the amount is more than the whole bucket can hold.
    Never,
}

/// One write that refills a shard and takes from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take<'a> {
    /// The new time of the last refill: not before the one seen, and not after the moment of the decision.
    pub until: EpochMillis,
    /// What changes, for each limit of the shard.
    pub changes: BTreeMap<Limit<'a>, Change>,
}

/// How a [`Take`] changes one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The refill; below zero if a full limit forfeits what it has accrued.
    pub credit: Millitokens,
    /// What is taken.
    pub taken: Millitokens,
    /// The write depends on at least so many stored tokens, if it takes or forfeits any. Then `V` covers what is taken, and
    /// nothing is forfeited that others have taken.
    pub at_least: Millitokens,
}

impl<'a> Take<'a> {
    /// Returns the item after the write, if no other client writes to it.
    #[must_use]
    pub fn applied_to(&self, mut state: BucketState<'a>) -> BucketState<'a> {
        state.last_refill = self.until;
        for (limit, of) in &mut state.limits {
            let Some(Change { credit, taken, .. }) = self.changes.get(limit) else { continue };
            of.tokens = Millitokens::new(of.tokens.get().saturating_add(credit.get()).saturating_sub(taken.get()));
            of.consumed = Millitokens::new(of.consumed.get().saturating_add(taken.get()));
        }
        state
    }
}

/// Returns what a shard can grant of a limit at a moment, in millitokens: `V`.
#[must_use]
pub fn available(state: &BucketState<'_>, limit: &Limit<'_>, of: &LimitState, now: EpochMillis) -> Millitokens {
    let share = state.share(limit, of);
    let elapsed = now.since(state.last_refill).as_millis();
    let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
    Millitokens::new(of.tokens.get().saturating_add(accrued).min(share.capacity.get()))
}

/// Returns what all shards of a bucket together can grant of a limit at a moment, in millitokens.
#[must_use]
pub fn available_in_all(states: &BTreeMap<Shard, BucketState<'_>>, limit: &Limit<'_>, now: EpochMillis) -> Millitokens {
    let of = |state: &BucketState<'_>| Some(available(state, limit, state.limits.get(limit.as_str())?, now).get());
    Millitokens::new(states.values().filter_map(of).fold(0, i64::saturating_add))
}

/// Decides on requests in the order of their arrival, as if each were made after the one before it. They are taken
/// by one write, so they take one write unit together.
#[must_use]
pub fn decide<'a>(state: &BucketState<'a>, requests: &[Amounts<'a>], now: EpochMillis) -> Decision<'a> {
    let mut left: BTreeMap<_, _> =
        state.limits.iter().map(|(limit, of)| (limit, available(state, limit, of, now).get())).collect();
    let mut taken = Amounts::new();
    let outcomes: Vec<_> = requests
        .iter()
        .map(|amounts| {
            let outcome = outcome_of(state, amounts, |limit, _| left.get(limit).copied().unwrap_or_default(), now);
            if outcome == Outcome::Granted {
                for (limit, amount) in amounts {
                    let sum = taken.entry(limit.clone()).or_default();
                    *sum = Millitokens::new(sum.get().saturating_add(amount.get()));
                    left.entry(limit).and_modify(|left| *left -= amount.get());
                }
            }
            outcome
        })
        .collect();
    let take = outcomes.contains(&Outcome::Granted).then(|| take(state, taken, now));
    Decision { outcomes, take }
}

/// Decides on one request alone, without the write that takes it.
#[must_use]
pub fn outcome<'a>(state: &BucketState<'a>, amounts: &Amounts<'a>, now: EpochMillis) -> Outcome<'a> {
    outcome_of(state, amounts, |limit, of| available(state, limit, of, now).get(), now)
}

/// What becomes of one request, if so much is left of each limit.
fn outcome_of<'a>(
    state: &BucketState<'a>,
    amounts: &Amounts<'a>,
    left: impl Fn(&Limit<'a>, &LimitState) -> i64,
    now: EpochMillis,
) -> Outcome<'a> {
    if let Some(missing) = amounts.keys().find(|limit| !state.limits.contains_key(*limit)) {
        return Outcome::Missing(missing.clone());
    }
    let units = state.limits.get_key_value(Limit::WRITE_UNITS);
    let asked = amounts.iter().filter_map(|(limit, amount)| Some((limit, *amount, state.limits.get(limit)?)));
    let shortages: Vec<_> = asked
        .chain(units.map(|(limit, of)| (limit, WRITE_UNIT, of)))
        .filter_map(|(limit, requested, of)| {
            let left = left(limit, of);
            // A limit in debt does not reject what asks for none of it.
            (requested.get() > left.max(0)).then(|| Shortage {
                limit: limit.clone(),
                requested,
                available: Millitokens::new(left),
                capacity: of.terms.capacity,
                remedy: remedy(state, limit, of, requested, left, now),
            })
        })
        .collect();
    if shortages.is_empty() { Outcome::Granted } else { Outcome::Denied(shortages) }
}

/// What helps if only `left` of a limit is left.
fn remedy(
    state: &BucketState<'_>,
    limit: &Limit<'_>,
    of: &LimitState,
    requested: Millitokens,
    left: i64,
    now: EpochMillis,
) -> Remedy {
    let share = state.share(limit, of);
    if requested > of.terms.capacity {
        return Remedy::Never;
    }
    if requested > share.capacity {
        return Remedy::SeveralShards;
    }
    // What requests before this one took is missing, too. A clock behind the last refill waits for it first.
    let taken = available(state, limit, of, now).get().saturating_sub(left);
    let elapsed = now.since(state.last_refill);
    let ahead = state.last_refill.since(now);
    let full = i128::from(share.capacity.get()) <= i128::from(of.tokens.get()) + accrued(&share, elapsed.as_millis());
    // A full limit begins to accrue now.
    let (missing, since) = if full {
        (i128::from(requested.get()) - i128::from(left), Duration::ZERO)
    } else {
        (i128::from(requested.get()) + i128::from(taken) - i128::from(of.tokens.get()), elapsed)
    };
    let needed = share.time_for(u128::try_from(missing).unwrap_or_default());
    let needed = Duration::from_millis(u64::try_from(needed).unwrap_or(u64::MAX));
    Remedy::Wait(needed.saturating_sub(since).saturating_add(ahead).max(Duration::from_millis(1)))
}

/// The write that takes amounts which `V` covers.
fn take<'a>(state: &BucketState<'a>, mut taken: Amounts<'a>, now: EpochMillis) -> Take<'a> {
    let until = refill::last_whole(state, now).unwrap_or(state.last_refill);
    let elapsed = now.since(state.last_refill).as_millis();
    let (credited, rest) = (until.since(state.last_refill).as_millis(), now.since(until).as_millis());
    let changes = state.limits.iter().map(|(limit, of)| {
        let share = state.share(limit, of);
        let taken = if limit.is_write_units() { WRITE_UNIT } else { taken.remove(limit).unwrap_or_default() };
        let room = i128::from(share.capacity.get()) - i128::from(of.tokens.get());
        // The share is full at `now`, not at `until`: after the write, the rest of the time still accrues.
        let is_full = accrued(&share, elapsed) >= room;
        let credit = if !is_full {
            accrued(&share, credited)
        } else if credited == 0 && taken.get() == 0 {
            // Writes that leave the last refill where it is can follow from the same image. Each would forfeit the same.
            room.min(0)
        } else {
            room - accrued_up(&share, rest)
        };
        let at_least = if credit < 0 && !limit.is_write_units() {
            // Tokens that others have taken since are not forfeited, too.
            of.tokens.get()
        } else {
            let held = available(state, limit, of, now).get();
            of.tokens.get().saturating_sub(held).saturating_add(taken.get())
        };
        let change = Change { credit: Millitokens::new(clamp(credit)), taken, at_least: Millitokens::new(at_least) };
        (limit.clone(), change)
    });
    Take { until, changes: changes.collect() }
}

/// The part of its tokens that a shard keeps back from a request that is divided: an eighth.
const KEPT_BACK: i64 = 8;

/// Divides a request among the shards of a bucket, so that each shard can grant its part: for amounts larger than one
/// shard can hold. Returns `None` if all shards together hold less.
///
/// Each shard takes part with as much as it can grant, the fullest first, so that as few as possible are written.
#[must_use]
pub fn divide<'a>(
    states: &BTreeMap<Shard, BucketState<'a>>,
    amounts: &Amounts<'a>,
    now: EpochMillis,
) -> Option<BTreeMap<Shard, Amounts<'a>>> {
    let mut parts: BTreeMap<Shard, Amounts<'a>> = BTreeMap::new();
    let can_write = |state: &BucketState<'_>| {
        let units = state.limits.get_key_value(Limit::WRITE_UNITS);
        units.is_some_and(|(limit, of)| available(state, limit, of, now) >= WRITE_UNIT)
    };
    let writable: Vec<_> = states.iter().filter(|(_, state)| can_write(state)).collect();
    for (limit, amount) in amounts {
        let mut missing = amount.get();
        let mut offers: Vec<_> = writable
            .iter()
            .filter_map(|(shard, state)| Some((**shard, available(state, limit, state.limits.get(limit)?, now).get())))
            .collect();
        offers.sort_unstable_by(|(shard, offer), (other, more)| match more.cmp(offer) {
            Ordering::Equal => shard.cmp(other),
            order => order,
        });
        // Each shard keeps a part back if it can, so that small requests of others do not get in the way of the write.
        let total = offers.iter().fold(0_i64, |total, (_, offer)| total.saturating_add((*offer).max(0)));
        let keeps_back = total - total / KEPT_BACK - i64::try_from(offers.len()).unwrap_or(i64::MAX) >= amount.get();
        for (shard, offer) in offers {
            let kept = if keeps_back { offer / KEPT_BACK } else { 0 };
            let part = (offer - kept).min(missing).max(0);
            if part > 0 {
                parts.entry(shard).or_default().insert(limit.clone(), Millitokens::new(part));
                missing -= part;
            }
        }
        if missing > 0 {
            return None;
        }
    }
    Some(parts)
}

/// Returns how long it takes until all shards together hold enough for a request, if no other caller takes tokens. Returns
/// `None` if they never do.
#[must_use]
pub fn wait_for_all(
    states: &BTreeMap<Shard, BucketState<'_>>,
    amounts: &Amounts<'_>,
    now: EpochMillis,
) -> Option<Duration> {
    let is_enough = |wait: u64| divide(states, amounts, now.after(Duration::from_millis(wait))).is_some();
    // The sums only grow: double the wait until it is enough, then halve the interval.
    let mut longest = 1;
    while !is_enough(longest) {
        longest = longest.checked_mul(2).filter(|wait| *wait < LONGEST_WAIT)?;
    }
    let mut shortest = longest / 2;
    while longest - shortest > 1 {
        let middle = shortest.midpoint(longest);
        if is_enough(middle) {
            longest = middle;
        } else {
            shortest = middle;
        }
    }
    Some(Duration::from_millis(longest))
}

fn accrued(share: &Share, elapsed: u128) -> i128 {
    i128::try_from(share.accrued(elapsed)).unwrap_or(i128::MAX)
}

/// What accrues in so many milliseconds, rounded up.
fn accrued_up(share: &Share, elapsed: u128) -> i128 {
    i128::try_from(share.accrued_up(elapsed)).unwrap_or(i128::MAX)
}

fn clamp(millitokens: i128) -> i64 {
    i64::try_from(millitokens).unwrap_or(if millitokens < 0 { i64::MIN } else { i64::MAX })
}
