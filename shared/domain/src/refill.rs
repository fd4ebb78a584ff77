//! Refill: moves what has accrued into the stored tokens of a bucket item, where clients' speculative writes find it.
//!
//! A refill equals a slow path of the clients that takes nothing. A client admits a request exactly when
//! `min(share, V)` covers it, where `V = tokens + rate * (now - last refill)`. The credit of a refill is
//! `min(share - tokens, rate * (t - last refill))`. Here `t` is **the time of the image**: the creation second of its
//! record, or a moment before the read that returned it. The current time would be wrong: clients may have taken tokens
//! after the image, and the refill would forfeit what has accrued for them.
//!
//! Two properties hold for any number of processes, and for images and writes that are stale, late, repeated or lost:
//!
//! 1. A refill never raises `V`. So it admits nothing that the clients' slow path would not admit.
//! 2. An exact token bucket with the same acquires never holds more than `min(share, V)`, as long as the clients' slow
//!    path loses nothing. So a refill never causes a denial.
//!
//! One write credits **every** limit of the item, because they share one time of the last refill. Any other limit would
//! forfeit what it has accrued. The condition of the write covers everything that the credit was computed from: the
//! time of the last refill, the number of shards, and the terms of each limit.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    activity::{Activity, Demand},
    bucket::Limit,
    state::{BucketState, LimitState, ShardCount, Share, lcm},
    time::EpochMillis,
    tokens::Millitokens,
};

/// A refill is due if the stored tokens do not last this many times the measured lag. A limit that fills up within that time
/// gets no refill: its clients' slow path is faster.
const HORIZON_LAGS: u32 = 2;

/// A refill must credit at least 1/`MIN_CREDIT` of a share. A bucket whose demand exceeds its refill rate soon has less
/// than that to credit, so it gets no refills.
const MIN_CREDIT: i64 = 2;

/// A refill must credit at least this many average acquires. It saves about one slow path, which costs less than two
/// write units.
const MIN_ACQUIRES: i64 = 40;

/// A refill of write units must credit at least 1/`MIN_WRITE_UNITS` of what the shard can hold: 250 acquires. Even a refill
/// that saves nothing then costs at most 0.4 % of them.
const MIN_WRITE_UNITS: i64 = 4;

/// An idle shard that holds less than half of its share must gain at least 1/`IDLE_CREDIT` of it. A shard that holds less
/// than that is nearly dry.
const IDLE_CREDIT: i64 = 16;

/// The maximum age of records that lead to a write. Older images are outdated. If the stream is so far behind, the keeper
/// does not see its own refill for several batches and repeats it, which costs more than it saves.
pub const MAX_AGE: Duration = Duration::from_secs(3);

/// The least credit that is worth a write: one token.
const ONE_TOKEN: i64 = 1000;

/// If there is no common moment with whole millitokens of all limits, each limit must have accrued this many. Rounding then
/// loses at most a thousandth.
const ROUNDABLE: u128 = 1000;

/// What to do about the tokens of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Write this refill.
    Refill(Refill<'a>),
    /// Do nothing: the stored tokens last until the next batch.
    Enough,
    /// Do nothing: the tokens are low, but a refill would cost more than it saves.
    Unprofitable,
    /// Wait: the shard holds more than its share. Half of that may belong to a missing shard, so a read of all shards must
    /// decide.
    Waiting,
    /// Do nothing: the image is older than [`MAX_AGE`].
    Stale,
    /// Do nothing: the item has expired, and its clients will create it again.
    Expired,
}

/// One write of a refill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refill<'a> {
    /// The new time of the last refill: later than the one in the image, and not after the time of the image.
    pub until: EpochMillis,
    /// The tokens to add, by limit. Positive.
    pub credits: BTreeMap<Limit<'a>, Millitokens>,
    /// The shares of limits that hold more. The write lowers them to the share if they still hold more.
    pub trims: BTreeMap<Limit<'a>, Millitokens>,
}

impl<'a> Refill<'a> {
    /// Returns the item after the write, if no other write precedes it.
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

/// Decides on a shard with this activity in a batch, at the moment `now`.
///
/// A refill is due if a limit's stored tokens will not last two lags at the measured demand. The lag is the time from the
/// shard's first record in the batch to `now`: the batching window and the delay of the delivery. The refill pays if it
/// credits at least half of the limit's share and 40 average acquires, and if the limit would not fill up within that
/// time anyway. A refill of write units pays from a quarter of their share.
#[must_use]
pub fn decide<'a>(activity: &Activity<'a>, state: &BucketState<'a>, now: EpochMillis) -> Decision<'a> {
    if now.since(activity.created) > MAX_AGE {
        return Decision::Stale;
    }
    if state.is_expired(now) {
        return Decision::Expired;
    }
    if state.is_overfull() && state.shards > ShardCount::ONE {
        return Decision::Waiting;
    }
    let refill = accrue(state, activity.created);
    if let Some(refill) = &refill
        && !refill.trims.is_empty()
    {
        return Decision::Refill(refill.clone());
    }
    let horizon = now.since(activity.first_created) * HORIZON_LAGS;
    let short: Vec<_> = activity
        .demand
        .iter()
        .filter_map(|(limit, demand)| Some((limit, demand, state.limits.get(limit)?)))
        .filter(|(_, demand, limit_state)| demand.within(horizon) > limit_state.tokens)
        .collect();
    if short.is_empty() {
        return Decision::Enough;
    }
    match refill {
        Some(refill) if short.iter().any(|short| pays(&refill, state, *short, horizon)) => Decision::Refill(refill),
        _ => Decision::Unprofitable,
    }
}

/// Whether a refill pays for a limit that is short.
fn pays(
    refill: &Refill<'_>,
    state: &BucketState<'_>,
    (limit, demand, limit_state): (&Limit<'_>, &Demand, &LimitState),
    horizon: Duration,
) -> bool {
    let share = state.share(limit, limit_state);
    let capacity = share.capacity.get();
    let credit = refill.credits.get(limit).copied().unwrap_or_default().get();
    // They fill up within a second, but a client of 0.10 to 0.12 doubles the shards as soon as they run out.
    if limit.is_write_units() {
        return credit >= capacity / MIN_WRITE_UNITS;
    }
    let fills_soon = share.accrued(horizon.as_millis()) >= u128::try_from(capacity).unwrap_or_default();
    let mean = demand.mean().get();
    // A debt may swallow the credit.
    let admits = limit_state.tokens.get().saturating_add(credit) >= mean;
    !fills_soon && admits && credit >= capacity / MIN_CREDIT && credit >= mean.saturating_mul(MIN_ACQUIRES)
}

/// Decides on a shard from a read that began at `at`. The shard may have been idle for a long time.
///
/// A refill is due if a limit holds less than half of its share and gains at least a sixteenth of it, or if it holds less
/// than a sixteenth and gains at least a token or everything that it can hold.
#[must_use]
pub fn decide_idle<'a>(state: &BucketState<'a>, at: EpochMillis) -> Decision<'a> {
    if state.is_expired(at) {
        return Decision::Expired;
    }
    let Some(refill) = accrue(state, at) else { return Decision::Enough };
    let is_due = |(limit, credit): (&Limit<'a>, &Millitokens)| {
        let Some(limit_state) = state.limits.get(limit) else { return false };
        let (stored, capacity) = (limit_state.tokens.get(), state.share(limit, limit_state).capacity.get());
        let is_low = stored < capacity / 2 && credit.get() >= capacity / IDLE_CREDIT;
        let is_nearly_dry = stored < capacity / IDLE_CREDIT;
        (is_low || is_nearly_dry) && (credit.get() >= ONE_TOKEN || stored + credit.get() >= capacity)
    };
    if !refill.trims.is_empty() || refill.credits.iter().any(is_due) {
        Decision::Refill(refill)
    } else {
        Decision::Enough
    }
}

/// What has accrued by `at` and can be credited without loss. `None` if there is nothing.
fn accrue<'a>(state: &BucketState<'a>, at: EpochMillis) -> Option<Refill<'a>> {
    settle(state, at).filter(|refill| !refill.credits.is_empty() || !refill.trims.is_empty())
}

/// The same, including refills of full limits without a credit: they forfeit what has accrued, as a client's slow path
/// does. `None` if rounding would lose tokens.
pub(crate) fn settle<'a>(state: &BucketState<'a>, at: EpochMillis) -> Option<Refill<'a>> {
    let until = last_whole(state, at)?;
    let elapsed = until.since(state.last_refill).as_millis();
    let (mut credits, mut trims) = (BTreeMap::new(), BTreeMap::new());
    for (limit, limit_state) in &state.limits {
        let share = state.share(limit, limit_state);
        let credit = accrued(&share, elapsed).min(room(&share, limit_state));
        if room(&share, limit_state) < 0 {
            trims.insert(limit.clone(), share.capacity);
        } else if credit > 0 {
            // Debt apart, a credit is no greater than a capacity.
            credits.insert(limit.clone(), Millitokens::new(i64::try_from(credit).unwrap_or(i64::MAX)));
        }
    }
    Some(Refill { until, credits, trims })
}

/// The last moment after the last refill, and not after `at`, at which rounding loses nothing.
///
/// A limit that is full at that moment has nothing to lose. All others accrue whole millitokens at the multiples of a
/// common grain. If the grain is longer than the elapsed time, rounding loses less than a millitoken of each limit. Then
/// each must have accrued [`ROUNDABLE`].
pub(crate) fn last_whole(state: &BucketState<'_>, at: EpochMillis) -> Option<EpochMillis> {
    let mut elapsed = at.since(state.last_refill).as_millis();
    loop {
        let open: Vec<Share> = state
            .limits
            .iter()
            .map(|(limit, limit_state)| (state.share(limit, limit_state), limit_state))
            .filter(|(share, limit_state)| accrued(share, elapsed) < room(share, limit_state))
            .map(|(share, _)| share)
            .collect();
        let grain = open.iter().fold(1, |grain, share| lcm(grain, share.grain()));
        let whole = if grain <= elapsed {
            elapsed - elapsed % grain
        } else if open.iter().all(|share| share.accrued(elapsed) >= ROUNDABLE) {
            elapsed
        } else {
            0
        };
        // A limit that fills up by the later moment may be open at the earlier one.
        if whole == elapsed {
            break;
        }
        elapsed = whole;
    }
    let until = EpochMillis::new(state.last_refill.get() + i64::try_from(elapsed).ok()?).ok()?;
    (until > state.last_refill).then_some(until)
}

fn accrued(share: &Share, elapsed: u128) -> i128 {
    i128::try_from(share.accrued(elapsed)).unwrap_or(i128::MAX)
}

/// What a limit of a shard can still hold. Negative if it holds more than its share.
fn room(share: &Share, limit_state: &LimitState) -> i128 {
    i128::from(share.capacity.get()) - i128::from(limit_state.tokens.get())
}
