//! Token buckets without rounding, which follow the clients' common rule.

use tidegate_domain::{
    bucket::Limit,
    state::{ShardCount, Terms},
};

use crate::items::State;

/// A limit of a shard by the clients' common rule, without rounding.
///
/// A speculative write takes stored tokens. A refill at a moment raises them by all that has accrued until then, up to
/// the share. Between refills, a bucket accrues without bound: its clients clamp what accrues when they refill.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// In millitokens divided by `unit`, so that what accrues is a whole number.
    stored: i128,
    /// The last refill.
    at: i64,
    terms: Terms,
    share: i128,
    unit: i128,
}

impl Reference {
    /// A bucket that holds what an item holds.
    pub fn of(state: &State, limit: &Limit<'_>) -> Self {
        let of = &state.limits[limit];
        let shards = if limit.is_write_units() { ShardCount::ONE } else { state.shards };
        let unit = i128::from(of.terms.period) * i128::from(shards.get());
        Self {
            stored: i128::from(of.tokens.get()) * unit,
            at: state.last_refill.get(),
            terms: of.terms,
            share: i128::from(state.share(limit, of).capacity.get()) * unit,
            unit,
        }
    }

    /// The most millitokens that a limit holds and accrues in so many milliseconds, over all shards.
    pub fn whole(of: Terms, elapsed: i64) -> i64 {
        let accrued = i128::from(of.refill.get()) * i128::from(elapsed) / i128::from(of.period);
        of.capacity.get() + i64::try_from(accrued).unwrap()
    }

    /// What the bucket stores and has accrued, in its own units.
    pub fn potential(&self, now: i64) -> i128 {
        self.stored + i128::from(self.terms.refill.get()) * i128::from((now - self.at).max(0))
    }

    /// What a refill finds: `V`.
    pub fn available(&self, now: i64) -> i128 {
        self.share.min(self.potential(now))
    }

    /// In the bucket's own units.
    pub fn scaled(&self, millitokens: i64) -> i128 {
        i128::from(millitokens) * self.unit
    }

    pub fn share(&self) -> i128 {
        self.share
    }

    pub fn stored(&self) -> i128 {
        self.stored
    }

    /// Adds to the stored tokens, without a refill.
    pub fn add(&mut self, millitokens: i64) {
        self.stored += self.scaled(millitokens);
    }

    /// Refills by a clock that shows `now`. A clock behind the last refill adds nothing, and what has accrued since that
    /// clock's time is not clamped.
    pub fn refill(&mut self, now: i64) {
        let at = self.at.max(now);
        let accrues = i128::from(self.terms.refill.get()) * i128::from(at - now);
        self.stored = self.potential(at).min(self.share + accrues);
        self.at = at;
    }

    /// Whether the clients' rule never grants more from the item than from this bucket.
    pub fn covers(&self, item: &Self) -> bool {
        item.potential(self.at) <= self.stored
    }
}
