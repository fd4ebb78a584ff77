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

use std::collections::BTreeMap;

use crate::{
    bucket::{Limit, Shard},
    state::{BucketState, LimitState, Share},
    time::EpochMillis,
};

/// What has accrued on a bucket item and is not in its tokens: no less than this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level<'a> {
    /// The item, as its last change left it.
    seen: BucketState<'a>,
    /// Limits of which not simply counts what has accrued since the last refill.
    marks: BTreeMap<Limit<'a>, Mark>,
}

/// From when on it counts what accrues on a limit: when it was full last, or may have been, or when the last
/// refill left a fraction of a millitoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// By the end of the second in which that was.
    then: Known,
    /// Before: what was known without it, but no more than `then`.
    before: Known,
}

/// What has accrued on a limit by a moment and is not in its tokens: no less than this. Below zero, it is what
/// was credited of what accrues from that moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    pending: i128,
    at: i64,
}

impl Known {
    fn by(self, share: &Share, until: i64) -> u128 {
        let Ok(elapsed) = u128::try_from(until - self.at) else { return 0 };
        let accrued = i128::try_from(share.accrued(elapsed)).unwrap_or(i128::MAX);
        u128::try_from(self.pending.saturating_add(accrued)).unwrap_or(0)
    }
}

impl<'a> Level<'a> {
    /// Everything since the last refill counts.
    #[must_use]
    pub fn since_refill(seen: BucketState<'a>) -> Self {
        Self { seen, marks: BTreeMap::new() }
    }

    /// The item may have been full up to this moment.
    #[must_use]
    pub fn unknown(seen: BucketState<'a>, at: EpochMillis) -> Self {
        let known = Known { pending: 0, at: at.get().max(seen.last_refill.get()) };
        let mark = Mark { then: known, before: known };
        let marks = seen.limits.keys().map(|limit| (limit.clone(), mark)).collect();
        Self { seen, marks }
    }

    /// The level of a shard that is created in the second of `created`. A client creates shard 0 only, with
    /// all that has accrued; a clone takes over the time of an earlier refill.
    #[must_use]
    pub fn created(seen: BucketState<'a>, shard: Shard, created: EpochMillis) -> Self {
        if shard == Shard::ZERO && seen.last_refill.get() >= start_of_second(created) {
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

    /// The level of an item that is found like this now: one of those that are remembered for it, if it was
    /// of the same item. Unlike a change in the stream, what is found does not tell when it became so.
    #[must_use]
    pub fn found(remembered: impl IntoIterator<Item = Level<'a>>, state: &BucketState<'a>, now: EpochMillis) -> Self {
        let known = remembered.into_iter().find(|level| level.seen == *state);
        known.unwrap_or_else(|| Self::unknown(state.clone(), now))
    }

    /// The level after a change in the second of `created`.
    #[must_use]
    pub fn follow(self, before: &BucketState<'a>, after: &BucketState<'a>, created: EpochMillis) -> Self {
        let end = end_of_second(created);
        let has_same_terms = before.shards == after.shards
            && before.limits.len() == after.limits.len()
            && before.limits.iter().all(|(limit, state)| {
                after.limits.get(limit).is_some_and(|after_state| after_state.terms == state.terms)
            });
        if self.seen != *before || after.last_refill < before.last_refill || !has_same_terms {
            return Self::unknown(after.clone(), end);
        }
        if after.last_refill > before.last_refill {
            return self.refilled(after.clone(), end);
        }
        let mut level = Self { seen: after.clone(), marks: self.marks };
        for state in [before, after] {
            for (limit, limit_state) in &state.limits {
                let share = state.share(limit, limit_state);
                let room = i128::from(share.capacity.get()) - i128::from(limit_state.tokens.get());
                let room = u128::try_from(room).unwrap_or(0);
                if level.pending(limit, &share, end) >= room {
                    let before = match level.marks.get(limit) {
                        Some(mark) if mark.then.at < end.get() => mark.then,
                        Some(mark) => mark.before,
                        None => Known { pending: 0, at: after.last_refill.get() },
                    };
                    let then = Known { pending: signed(room), at: end.get() };
                    level.marks.insert(limit.clone(), Mark { then, before });
                }
            }
        }
        level
    }

    /// The level after a refill that was written at the moment `now`, or before.
    ///
    /// Everything since the refill counts, with three exceptions. A refill can come late: a limit that was full
    /// between its `last_refill` and its write lost what came before. One that credited more than is known
    /// here was planned by somebody who knew more, also of when the limit was full. And one that credited all
    /// whole millitokens that are known here left a fraction, which still counts: a limit that accrues less
    /// than a millitoken from one refill to the next would else accrue nothing for ever.
    #[must_use]
    pub fn refilled(self, after: BucketState<'a>, now: EpochMillis) -> Self {
        let until = after.last_refill;
        let mut marks = BTreeMap::new();
        for (limit, limit_state) in &after.limits {
            let credit = self.seen.limits.get(limit).map_or(0, |before| credited(before, limit_state));
            let share = after.share(limit, limit_state);
            let less = |pending: u128, at| Known { pending: signed(pending.saturating_sub(credit)), at };
            let mark = match self.marks.get(limit) {
                Some(Mark { then, before }) if then.at > until.get() => {
                    let by_then = before.by(&share, until.get());
                    let then = less(u128::try_from(then.pending).unwrap_or(0), then.at);
                    Mark { then, before: if by_then < credit { then } else { less(by_then, until.get()) } }
                }
                _ if credit > self.pending(limit, &share, until) => {
                    let now = now.max(until);
                    let then = less(self.pending(limit, &share, now), now.get());
                    Mark { then, before: then }
                }
                _ => match self.fraction(limit, &share, credit, until) {
                    Some(known) => Mark { then: known, before: known },
                    None => continue,
                },
            };
            marks.insert(limit.clone(), mark);
        }
        Self { seen: after, marks }
    }

    /// What is left of a limit by a refill that credited all whole millitokens, if it did and did not fill it.
    fn fraction(&self, limit: &Limit<'_>, share: &Share, credit: u128, until: EpochMillis) -> Option<Known> {
        let held = self.seen.limits.get(limit)?.tokens.get();
        let is_full = i128::from(held) + i128::try_from(credit).ok()? >= share.capacity.get().into();
        let since_refill = Known { pending: 0, at: self.seen.last_refill.get() };
        let known = self.marks.get(limit).map_or(since_refill, |mark| mark.then);
        if is_full || credit != known.by(share, until.get()) {
            return None;
        }
        Some(Known { pending: known.pending - i128::try_from(credit).ok()?, ..known })
    }

    /// The millitokens of a limit that have accrued by `until` and are not in its tokens.
    #[must_use]
    pub fn pending(&self, limit: &Limit<'_>, share: &Share, until: EpochMillis) -> u128 {
        let until = until.get();
        match self.marks.get(limit) {
            Some(Mark { then, before }) if until < then.at => {
                before.by(share, until).min(u128::try_from(then.pending).unwrap_or(0))
            }
            Some(Mark { then, .. }) => then.by(share, until),
            None => Known { pending: 0, at: self.seen.last_refill.get() }.by(share, until),
        }
    }

    /// Whether all that has accrued on a limit since the last refill counts.
    pub(crate) fn counts_from_refill(&self, limit: &Limit<'_>) -> bool {
        !self.marks.contains_key(limit)
    }

    /// The same level, borrowing from nothing.
    #[must_use]
    pub fn into_owned(self) -> Level<'static> {
        let marks = self.marks.into_iter().map(|(limit, mark)| (limit.into_owned(), mark)).collect();
        Level { seen: self.seen.into_owned(), marks }
    }
}

/// What a refill has added to a limit.
fn credited(before: &LimitState, after: &LimitState) -> u128 {
    let held = |state: &LimitState| i128::from(state.tokens.get()) + i128::from(state.consumed.get());
    u128::try_from(held(after) - held(before)).unwrap_or(0)
}

fn signed(millitokens: u128) -> i128 {
    i128::try_from(millitokens).unwrap_or(i128::MAX)
}

fn start_of_second(time: EpochMillis) -> i64 {
    time.get() / 1000 * 1000
}

/// Creation times are whole seconds: what happened did so at the end of the second, or before.
fn end_of_second(time: EpochMillis) -> EpochMillis {
    EpochMillis::new(start_of_second(time) + 999).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        state::{ShardCount, Terms},
        tokens::Millitokens,
    };

    /// A second's start.
    const START: i64 = 1_767_217_000_000;

    fn at(millis: i64) -> EpochMillis {
        EpochMillis::new(START + millis).unwrap()
    }

    /// A bucket of 10,000 millitokens that gets one a millisecond.
    fn bucket(last_refill: i64, tokens: i64, consumed: i64) -> BucketState<'static> {
        let terms = Terms { capacity: Millitokens::new(10_000), refill: Millitokens::new(1_000), period: 1_000 };
        let state = LimitState { tokens: Millitokens::new(tokens), consumed: Millitokens::new(consumed), terms };
        let limits = [(Limit::new("rpm").unwrap(), state)].into();
        let last_refill = at(last_refill);
        BucketState { last_refill, shards: ShardCount::ONE, expires: None, valid_until: None, limits }
    }

    fn pending(level: &Level<'_>, until: i64) -> u128 {
        let (limit, state) = level.seen().limits.first_key_value().unwrap();
        level.pending(limit, &level.seen().share(limit, state), at(until))
    }

    /// What is full at the end of a second may not have been so within it.
    #[test]
    fn a_level_before_its_time_is_less() {
        let (before, after) = (bucket(0, 5_000, 0), bucket(0, 4_000, 1_000));
        let level = Level::since_refill(before.clone()).follow(&before, &after, at(4_000));
        assert_eq!(pending(&level, 4_500), 4_500);
        let level = Level::since_refill(before.clone()).follow(&before, &after, at(5_000));
        assert_eq!(pending(&level, 5_999), 5_000);
        assert_eq!(pending(&level, 5_001), 5_000);
        assert_eq!(pending(&level, 4_999), 4_999);
        assert_eq!(pending(&level, 6_999), 6_000);
    }

    /// Full after the time of a refill, and emptied before its write.
    #[test]
    fn a_late_refill_does_not_bring_back_what_was_lost() {
        let (before, drained, refilled) = (bucket(0, 5_000, 0), bucket(0, 0, 5_000), bucket(5_500, 5_000, 5_000));
        let level = Level::since_refill(before.clone()).follow(&before, &drained, at(8_000));
        assert_eq!(pending(&level, 8_999), 5_000);
        let level = level.follow(&drained, &refilled, at(9_000));
        assert_eq!(pending(&level, 8_999), 0);
        assert_eq!(pending(&level, 10_999), 2_000);
    }

    /// Somebody knew that more had accrued: perhaps also that the limit was full afterwards.
    #[test]
    fn a_refill_of_more_than_is_known_is_the_end_of_what_is_known() {
        let (before, refilled) = (bucket(0, 0, 0), bucket(9_000, 9_000, 0));
        let level = Level::unknown(before.clone(), at(5_000)).follow(&before, &refilled, at(11_000));
        assert_eq!(pending(&level, 11_999), 0);
        assert_eq!(pending(&level, 12_999), 1_000);
        let level = Level::since_refill(before.clone()).follow(&before, &refilled, at(11_000));
        assert_eq!(pending(&level, 11_999), 2_999);
    }

    /// A clone has the time of a refill before which its donor may have been full.
    #[test]
    fn only_shard_zero_is_created_by_clients() {
        let state = bucket(100, 0, 0);
        assert_eq!(pending(&Level::created(state.clone(), Shard::ZERO, at(0)), 1_999), 1_899);
        assert_eq!(pending(&Level::created(state.clone(), Shard::new(1), at(0)), 1_999), 1_000);
        assert_eq!(pending(&Level::created(state, Shard::ZERO, at(1_000)), 1_999), 0);
    }
}
