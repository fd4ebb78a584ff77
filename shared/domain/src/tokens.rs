//! Tokens: what a bucket holds and a caller takes. Integers only.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
};

/// Thousandths of a token: the unit in which buckets are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millitokens(i64);

impl Millitokens {
    /// A number of millitokens; negative is debt.
    #[must_use]
    pub const fn new(millitokens: i64) -> Self {
        Self(millitokens)
    }

    /// The number of millitokens.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The whole tokens in this many millitokens, rounded towards negative infinity.
    ///
    /// Because every reading of a counter is rounded the same way, differences of floors telescope:
    /// however a counter's history is cut up, the parts add up to the whole and nothing drifts.
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

/// Whole tokens: the unit of usage snapshots. Negative when more was given back than taken.
///
/// 128 bits wide, so that no sum of 64-bit counters that fits in a machine can overflow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(i128);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// A number of whole tokens.
    #[must_use]
    pub const fn new(tokens: i128) -> Self {
        Self(tokens)
    }

    /// The number of whole tokens.
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
