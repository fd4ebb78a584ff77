//! A whole bucket item: its tokens, its limits, and whether they follow the plain rules.

use std::{collections::BTreeMap, num::NonZeroU32};

use crate::{bucket::Limit, time::EpochMillis, tokens::Millitokens};

/// An image of a bucket item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BucketImage<'a> {
    /// There is no such item.
    #[default]
    Absent,
    /// A plain token bucket.
    Plain(BucketState<'a>),
    /// A bucket with rules beyond a plain token bucket. Only its clients may refill and split it.
    Unfamiliar(Unfamiliar),
}

/// Why only its clients may write a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfamiliar {
    /// A schedule sets or resets its amounts.
    Schedule,
    /// A limit is a quota for a session, or has an attribute of quotas.
    Quota,
    /// A limit has no refill, or a period of zero.
    NoRefill,
    /// Its clients have switched off the bucket or one of its limits.
    SwitchedOff,
    /// An attribute of the item or of a limit is missing.
    Incomplete,
    /// A number has an impossible value, such as a capacity below zero.
    OutOfRange,
    /// The item has the attribute `vu`. Above zero, a schedule in the configuration applies, although the item looks
    /// plain. Zero asks the next client to apply the configuration.
    AwaitsClient,
}

/// One item of a plain token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BucketState<'a> {
    /// The time of the last refill, of all limits. The tokens contain what has accrued until then.
    pub last_refill: EpochMillis,
    /// The number of shards according to this item.
    pub shards: ShardCount,
    /// When the item expires, in epoch **seconds**. `None` if it never expires.
    pub expires: Option<i64>,
    /// The approximate size of the whole item, in bytes, as DynamoDB counts it.
    ///
    /// AWS: [item sizes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html).
    pub bytes: u32,
    /// The limits, including the reserved one.
    pub limits: BTreeMap<Limit<'a>, LimitState>,
}

/// One limit of a bucket item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitState {
    /// The tokens of the shard. Negative in debt.
    pub tokens: Millitokens,
    /// Net consumption since the item was created.
    pub consumed: Millitokens,
    /// The configuration, undivided.
    pub terms: Terms,
}

/// The configuration of a limit, undivided and the same on every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The most that the bucket holds.
    pub capacity: Millitokens,
    /// The tokens that it gets back in a period. Positive.
    pub refill: Millitokens,
    /// The period, in milliseconds. Positive.
    pub period: i64,
}

/// The number of shards of a bucket, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(NonZeroU32);

impl ShardCount {
    /// A bucket that is not spread.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// Creates a number of shards. `None` if it is zero.
    #[must_use]
    pub const fn new(count: u32) -> Option<Self> {
        match NonZeroU32::new(count) {
            Some(count) => Some(Self(count)),
            None => None,
        }
    }

    /// Returns the number of shards.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns twice as many. `None` on overflow.
    #[must_use]
    pub fn doubled(self) -> Option<Self> {
        self.get().checked_mul(2).and_then(Self::new)
    }
}

impl Terms {
    /// The terms of the reserved limit: the write units that one partition takes.
    ///
    /// AWS: [partitions](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).
    pub const WRITE_UNITS: Self =
        Self { capacity: Millitokens::new(1_000_000), refill: Millitokens::new(1_000_000), period: 1_000 };

    /// Returns the part of a limit that each of `shards` shards has. The reserved limit counts the write units of an item's
    /// own partition, so every shard has all of it.
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
    /// The millitokens that accrue in `per` milliseconds.
    refill: u128,
    /// In milliseconds.
    per: u128,
}

impl Share {
    /// Returns the whole millitokens that accrue in `elapsed` milliseconds.
    #[must_use]
    pub const fn accrued(&self, elapsed: u128) -> u128 {
        elapsed.saturating_mul(self.refill) / self.per
    }

    /// Returns what accrues in so many milliseconds, in millitokens, rounded up.
    pub(crate) const fn accrued_up(&self, elapsed: u128) -> u128 {
        elapsed.saturating_mul(self.refill).div_ceil(self.per)
    }

    /// Returns the milliseconds in which so many millitokens accrue.
    #[must_use]
    pub const fn time_for(&self, millitokens: u128) -> u128 {
        millitokens.saturating_mul(self.per).div_ceil(self.refill)
    }

    /// Returns the shortest interval, in milliseconds, in which a whole number of millitokens accrues.
    #[must_use]
    pub fn grain(&self) -> u128 {
        self.per / gcd(self.refill, self.per)
    }
}

/// The least common multiple, or `u128::MAX` on overflow.
pub(crate) fn lcm(a: u128, b: u128) -> u128 {
    (a / gcd(a, b)).saturating_mul(b)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'a> BucketState<'a> {
    /// Returns the shard's part of one of its limits.
    #[must_use]
    pub fn share(&self, limit: &Limit<'_>, state: &LimitState) -> Share {
        state.terms.share(limit, self.shards)
    }

    /// Returns the limits that are divided among the shards: all but the reserved one.
    pub fn divided(&self) -> impl Iterator<Item = (&Limit<'a>, &LimitState)> {
        self.limits.iter().filter(|(limit, _)| !limit.is_write_units())
    }

    /// Returns the reserved limit, if the bucket has it.
    #[must_use]
    pub fn write_units(&self) -> Option<&LimitState> {
        self.limits.iter().find_map(|(limit, state)| limit.is_write_units().then_some(state))
    }

    /// Returns whether the item has expired at the moment `now`, for a client's speculative write.
    #[must_use]
    pub fn is_expired(&self, now: EpochMillis) -> bool {
        self.expires.is_some_and(|expires| expires <= now.get() / 1000)
    }

    /// Returns whether the shard holds more than its share of a limit, because the limit shrank or the bucket got more
    /// shards.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.limits.iter().any(|(limit, state)| state.tokens > self.share(limit, state).capacity)
    }

    /// Converts to a state that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> BucketState<'static> {
        let Self { last_refill, shards, expires, bytes, limits } = self;
        let limits = limits.into_iter().map(|(limit, state)| (limit.into_owned(), state)).collect();
        BucketState { last_refill, shards, expires, bytes, limits }
    }
}

impl<'a> BucketImage<'a> {
    /// Returns the state of a plain bucket.
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
