//! A bucket item as a whole: what it holds, what its limits say, and whether we understand them.

use std::{collections::BTreeMap, num::NonZeroU32};

use crate::{bucket::Limit, time::EpochMillis, tokens::Millitokens};

/// What an image of a bucket item tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BucketImage<'a> {
    /// There is no such item.
    #[default]
    Absent,
    /// A plain token bucket.
    Plain(BucketState<'a>),
    /// A bucket with rules that a plain token bucket does not know: its clients' to refill and to shard.
    Unfamiliar(Unfamiliar),
}

/// Why a bucket is not ours to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfamiliar {
    /// Its amounts follow a schedule, or are reset by one.
    Schedule,
    /// A limit is a quota for a session, or has what only quotas have.
    Quota,
    /// A limit refills nothing, or in no time.
    NoRefill,
    /// Its clients have switched it, or a limit of it, off.
    SwitchedOff,
    /// A part of it, or of one of its limits, is missing.
    Incomplete,
    /// A number in it is one that this number cannot be, such as a capacity below zero.
    OutOfRange,
    /// It has a `vu`: above zero, its configuration schedules it even if the item looks plain; zero asks for a pass
    /// that needs the configuration, and the next client request performs it.
    AwaitsClient,
}

/// A plain token bucket, as one of its items shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketState<'a> {
    /// Until when what has accrued is in the tokens, of all limits.
    pub last_refill: EpochMillis,
    /// How many shards the bucket has, as far as this one knows.
    pub shards: ShardCount,
    /// When the item expires, in epoch **seconds**; never, if there is none.
    pub expires: Option<i64>,
    /// The size of the whole item, in bytes, as DynamoDB counts it; about.
    pub bytes: u32,
    /// The limits, the reserved one among them.
    pub limits: BTreeMap<Limit<'a>, LimitState>,
}

/// One limit of a bucket item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitState {
    /// What the shard holds; below zero in debt.
    pub tokens: Millitokens,
    /// Net consumption since the item was created.
    pub consumed: Millitokens,
    /// What is configured, undivided.
    pub terms: Terms,
}

/// What is configured for a limit: the same on every shard, and undivided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The most that the bucket holds.
    pub capacity: Millitokens,
    /// What it gets back in a period: above zero.
    pub refill: Millitokens,
    /// The period, in milliseconds: above zero.
    pub period: i64,
}

/// How many shards a bucket has: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(NonZeroU32);

impl ShardCount {
    /// A bucket that is not spread.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// A number of shards; `None` if it is zero.
    #[must_use]
    pub const fn new(count: u32) -> Option<Self> {
        match NonZeroU32::new(count) {
            Some(count) => Some(Self(count)),
            None => None,
        }
    }

    /// The number of shards.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Twice as many; `None` if that is more than can be counted.
    #[must_use]
    pub fn doubled(self) -> Option<Self> {
        self.get().checked_mul(2).and_then(Self::new)
    }
}

impl Terms {
    /// The part of a limit that one of `shards` shards has. The reserved limit stands for the write
    /// units of an item's own partition, so every shard has all of it.
    #[must_use]
    pub fn share(self, limit: &Limit<'_>, shards: ShardCount) -> Share {
        let shards = if limit.is_write_units() { 1 } else { i64::from(shards.get()) };
        Share {
            capacity: Millitokens::new(self.capacity.get().div_euclid(shards)),
            refill: self.refill.get().unsigned_abs().into(),
            per: u128::from(self.period.unsigned_abs()) * u128::from(shards.unsigned_abs()),
        }
    }
}

/// The part of a limit that one shard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The most that the shard holds.
    pub capacity: Millitokens,
    /// The shard gets back this many millitokens...
    refill: u128,
    /// ...in this many milliseconds.
    per: u128,
}

impl Share {
    /// The whole millitokens that accrue in so many milliseconds.
    #[must_use]
    pub const fn accrued(&self, elapsed: u128) -> u128 {
        elapsed.saturating_mul(self.refill) / self.per
    }

    /// The shortest interval, in milliseconds, in which a whole number of millitokens accrues.
    #[must_use]
    pub fn grain(&self) -> u128 {
        self.per / gcd(self.refill, self.per)
    }
}

/// The least common multiple, or the greatest number if it is beyond.
pub(crate) fn lcm(a: u128, b: u128) -> u128 {
    (a / gcd(a, b)).saturating_mul(b)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'a> BucketState<'a> {
    /// What the shard has of a limit that it carries.
    #[must_use]
    pub fn share(&self, limit: &Limit<'_>, state: &LimitState) -> Share {
        state.terms.share(limit, self.shards)
    }

    /// The limits that are divided among the shards: all but the reserved one.
    pub fn divided(&self) -> impl Iterator<Item = (&Limit<'a>, &LimitState)> {
        self.limits.iter().filter(|(limit, _)| !limit.is_write_units())
    }

    /// The reserved limit, if the bucket has it.
    #[must_use]
    pub fn write_units(&self) -> Option<&LimitState> {
        self.limits.iter().find_map(|(limit, state)| limit.is_write_units().then_some(state))
    }

    /// Whether a speculative write would find the item expired.
    #[must_use]
    pub fn is_expired(&self, now: EpochMillis) -> bool {
        self.expires.is_some_and(|expires| expires <= now.get() / 1000)
    }

    /// Whether a shard holds more than its share of a limit: after a shrink of the limit, or because
    /// the bucket has more shards than it had.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.limits.iter().any(|(limit, state)| state.tokens > self.share(limit, state).capacity)
    }

    /// The same state, borrowing from nothing.
    #[must_use]
    pub fn into_owned(self) -> BucketState<'static> {
        let Self { last_refill, shards, expires, bytes, limits } = self;
        let limits = limits.into_iter().map(|(limit, state)| (limit.into_owned(), state)).collect();
        BucketState { last_refill, shards, expires, bytes, limits }
    }
}

impl<'a> BucketImage<'a> {
    /// The state, if the bucket is there and plain.
    #[must_use]
    pub const fn plain(&self) -> Option<&BucketState<'a>> {
        match self {
            Self::Plain(state) => Some(state),
            Self::Absent | Self::Unfamiliar(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(refill: i64, period: i64, shards: u32) -> Share {
        let terms = Terms { capacity: Millitokens::new(10_000), refill: Millitokens::new(refill), period };
        terms.share(&Limit::new("rpm").unwrap(), ShardCount::new(shards).unwrap())
    }

    #[test]
    fn write_units_are_not_divided() {
        let terms = Terms { capacity: Millitokens::new(1_000_000), refill: Millitokens::new(1_000_000), period: 1_000 };
        let of = |limit| terms.share(&Limit::new(limit).unwrap(), ShardCount::new(4).unwrap());
        assert_eq!((of("wcu").capacity.get(), of("wcu").accrued(500)), (1_000_000, 500_000));
        assert_eq!((of("rpm").capacity.get(), of("rpm").accrued(500)), (250_000, 125_000));
    }

    proptest! {
        /// What accrues in a grain is whole, so refilling at its multiples loses nothing.
        #[test]
        fn nothing_is_lost_at_the_grain(
            refill in 1..10_000_000_i64, period in 1..100_000_000_i64, shards in 1..65_u32, times in 1..100_u128,
        ) {
            let share = share(refill, period, shards);
            prop_assert_eq!(share.accrued(share.grain() * times), share.accrued(share.grain()) * times);
            prop_assert_eq!(share.accrued(share.grain()) * share.per, share.grain() * share.refill);
        }
    }
}
