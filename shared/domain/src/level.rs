//! Level: what has accrued on a bucket item since its last refill and is not in its tokens.
//!
//! The item alone does not tell. Speculative writes take tokens and leave the time of the last refill, so
//! a bucket that was full for an hour and was emptied just now looks like one that was empty for an hour;
//! to credit it with an hour would admit its capacity twice at a time. What the bucket could not hold
//! while it was full is gone, and when it was full is known only to those who followed its changes.
//!
//! So a [`Level`] is a lower bound. Whoever follows all changes knows it but for the second in which the
//! bucket was last full; whoever begins in the middle assumes that it was full until then. Forgetting a
//! level makes a later credit smaller and never greater.

use std::collections::{BTreeMap, HashMap};

use crate::{
    bucket::{BucketKey, Limit},
    state::{BucketState, Share},
    time::EpochMillis,
};

/// What has accrued on a bucket item and is not in its tokens: no less than this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level<'a> {
    /// The item, as its last change left it.
    seen: BucketState<'a>,
    /// Limits that have been full since the last refill, or may have been.
    full: BTreeMap<Limit<'a>, Full>,
}

/// When a limit was full, and what was not in its tokens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Full {
    pending: u128,
    at: i64,
}

impl<'a> Level<'a> {
    /// Everything since the last refill counts.
    #[must_use]
    pub fn since_refill(seen: BucketState<'a>) -> Self {
        Self { seen, full: BTreeMap::new() }
    }

    /// The item may have been full up to this moment.
    #[must_use]
    pub fn unknown(seen: BucketState<'a>, at: EpochMillis) -> Self {
        let full = Full { pending: 0, at: at.get().max(seen.last_refill.get()) };
        let full = seen.limits.keys().map(|limit| (limit.clone(), full)).collect();
        Self { seen, full }
    }

    /// The level of an item that is created in the second of `created`. A client's comes with all that has
    /// accrued; a clone takes over an older time of the last refill.
    #[must_use]
    pub fn created(seen: BucketState<'a>, created: EpochMillis) -> Self {
        if seen.last_refill.get() >= start_of_second(created) {
            Self::since_refill(seen)
        } else {
            Self::unknown(seen, end_of_second(created))
        }
    }

    /// The level after the first change that is followed, in the second of `created`.
    #[must_use]
    pub fn first(before: &BucketState<'a>, after: &BucketState<'a>, created: EpochMillis) -> Self {
        Self::unknown(before.clone(), end_of_second(created)).follow(before, after, created)
    }

    /// The item as it was when the level was last known.
    #[must_use]
    pub const fn seen(&self) -> &BucketState<'a> {
        &self.seen
    }

    /// The level of an item that is found like this now, if this one was remembered for it. Unlike a
    /// change in the stream, what is found does not tell when it became so.
    #[must_use]
    pub fn found(remembered: Option<Self>, state: &BucketState<'a>, now: EpochMillis) -> Self {
        remembered.filter(|level| level.seen == *state).unwrap_or_else(|| Self::unknown(state.clone(), now))
    }

    /// The level after a change in the second of `created`.
    #[must_use]
    pub fn follow(self, before: &BucketState<'a>, after: &BucketState<'a>, created: EpochMillis) -> Self {
        if after.last_refill > before.last_refill {
            return Self::since_refill(after.clone());
        }
        let end = end_of_second(created);
        let has_same_terms = before.shards == after.shards
            && before.limits.len() == after.limits.len()
            && before.limits.iter().all(|(limit, state)| {
                after.limits.get(limit).is_some_and(|after_state| after_state.terms == state.terms)
            });
        if self.seen != *before || after.last_refill != before.last_refill || !has_same_terms {
            return Self::unknown(after.clone(), end);
        }
        let mut level = Self { seen: after.clone(), full: self.full };
        for state in [before, after] {
            for (limit, limit_state) in &state.limits {
                let share = state.share(limit, limit_state);
                let room = i128::from(share.capacity.get()) - i128::from(limit_state.tokens.get());
                let room = u128::try_from(room).unwrap_or(0);
                if level.pending(limit, &share, end) >= room {
                    level.full.insert(limit.clone(), Full { pending: room, at: end.get() });
                }
            }
        }
        level
    }

    /// The millitokens of a limit that have accrued by `until` and are not in its tokens.
    #[must_use]
    pub fn pending(&self, limit: &Limit<'_>, share: &Share, until: EpochMillis) -> u128 {
        match self.full.get(limit) {
            Some(Full { pending, at }) => pending.saturating_add(share.accrued(elapsed(*at, until))),
            None => share.accrued(elapsed(self.seen.last_refill.get(), until)),
        }
    }

    /// Whether all that has accrued on a limit since the last refill counts.
    #[must_use]
    pub fn counts_from_refill(&self, limit: &Limit<'_>) -> bool {
        !self.full.contains_key(limit)
    }

    /// The same level, borrowing from nothing.
    #[must_use]
    pub fn into_owned(self) -> Level<'static> {
        let full = self.full.into_iter().map(|(limit, full)| (limit.into_owned(), full)).collect();
        Level { seen: self.seen.into_owned(), full }
    }
}

fn elapsed(from: i64, until: EpochMillis) -> u128 {
    u128::try_from(until.get() - from).unwrap_or(0)
}

fn start_of_second(time: EpochMillis) -> i64 {
    time.get() / 1000 * 1000
}

/// Creation times are whole seconds: what happened did so at the end of the second, or before.
fn end_of_second(time: EpochMillis) -> EpochMillis {
    EpochMillis::new(start_of_second(time) + 999).unwrap_or(time)
}

/// The levels that a process remembers, of the bucket shards that it met last.
#[derive(Clone, Debug)]
pub struct Levels {
    recent: HashMap<BucketKey<'static>, Level<'static>>,
    older: HashMap<BucketKey<'static>, Level<'static>>,
    most: usize,
}

impl Levels {
    /// A memory for at least `most` levels and at most twice as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { recent: HashMap::new(), older: HashMap::new(), most }
    }

    /// Takes a level out of the memory.
    pub fn take(&mut self, bucket: &BucketKey<'_>) -> Option<Level<'static>> {
        // Keys of whatever lifetime are equal if their texts are.
        let bucket = bucket.clone().into_owned();
        self.recent.remove(&bucket).or_else(|| self.older.remove(&bucket))
    }

    /// Puts a level into the memory; the levels that were not asked for longest may be forgotten.
    pub fn put(&mut self, bucket: BucketKey<'static>, level: Level<'static>) {
        if self.recent.len() >= self.most {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(bucket, level);
    }
}
