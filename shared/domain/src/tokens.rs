//! Tokens, which a bucket holds and a caller takes, as integers.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
};

/// Thousandths of a token: the unit in which buckets are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millitokens(i64);

impl Millitokens {
    /// Creates an amount from millitokens. Negative amounts are debt.
    #[must_use]
    pub const fn new(millitokens: i64) -> Self {
        Self(millitokens)
    }

    /// Returns the number of millitokens.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns whole tokens, rounded towards negative infinity.
    ///
    /// All readings of a counter are rounded the same way. So the differences of floors add up to the difference of the last
    /// and the first floor, however the counter's history is cut into parts.
    #[must_use]
    pub fn floor(self) -> Tokens {
        Tokens(i128::from(self.0.div_euclid(1000)))
    }
}

impl fmt::Display for Millitokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whole tokens: the unit of usage snapshots. Negative if clients gave back more than they took.
///
/// 128 bits hold the sum of more 64-bit counters than fit in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(i128);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// Creates an amount from whole tokens.
    #[must_use]
    pub const fn new(tokens: i128) -> Self {
        Self(tokens)
    }

    /// Returns the number of whole tokens.
    #[must_use]
    pub const fn get(self) -> i128 {
        self.0
    }
}

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Tokens {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn floor_rounds_towards_negative_infinity() {
        for (millitokens, tokens) in [(0, 0), (999, 0), (1000, 1), (-1, -1), (-1000, -1), (-1001, -2)] {
            assert_eq!(Millitokens::new(millitokens).floor(), Tokens::new(tokens), "{millitokens}");
        }
    }

    proptest! {
        /// However often a counter is read on its way, the floors of the steps add up to the whole.
        #[test]
        fn floors_telescope(readings in prop::collection::vec(any::<i64>(), 2..50)) {
            let steps = readings.windows(2).fold(Tokens::ZERO, |sum, pair| {
                sum + (Millitokens::new(pair[1]).floor() - Millitokens::new(pair[0]).floor())
            });
            let whole = Millitokens::new(readings[readings.len() - 1]).floor() - Millitokens::new(readings[0]).floor();
            prop_assert_eq!(steps, whole);
        }
    }
}
