//! One exact token bucket of a whole limit: the standard for what may be admitted, however many shards exist.

/// A limit in whole tokens. The caller chooses the unit of the period, and gives times in the same unit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) capacity: i64,
    pub(crate) refill: i64,
    pub(crate) period: i64,
}

/// The bucket, full when it is created.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExactBucket {
    terms: Terms,
    /// Tokens times the period, so that what accrues is a whole number.
    level: i64,
    at: i64,
    lowest: i64,
}

impl ExactBucket {
    pub(crate) fn new(terms: Terms, at: i64) -> Self {
        Self { terms, level: terms.capacity * terms.period, at, lowest: 0 }
    }

    /// Takes whole tokens, even if there are too few.
    pub(crate) fn take(&mut self, tokens: i64, now: i64) {
        let accrued = (now - self.at).max(0) * self.terms.refill;
        self.at = self.at.max(now);
        self.level = (self.level + accrued).min(self.terms.capacity * self.terms.period);
        self.level -= tokens * self.terms.period;
        self.lowest = self.lowest.min(self.level);
    }

    /// Takes whole tokens if there are enough. Returns whether there were.
    pub(crate) fn acquire(&mut self, tokens: i64, now: i64) -> bool {
        self.take(0, now);
        let fits = self.level >= tokens * self.terms.period;
        if fits {
            self.take(tokens, now);
        }
        fits
    }

    /// The most tokens that were missing at any time, rounded up.
    pub(crate) fn over_admitted(&self) -> u64 {
        self.lowest.unsigned_abs().div_ceil(self.terms.period.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_lost_and_debt_is_reported() {
        let mut bucket = ExactBucket::new(Terms { capacity: 10, refill: 1, period: 3 }, 0);
        bucket.take(10, 1_000);
        assert_eq!(bucket.over_admitted(), 0);
        // Two thirds of a token have accrued.
        assert!(!bucket.acquire(1, 1_002));
        bucket.take(1, 1_002);
        assert_eq!(bucket.over_admitted(), 1);
        bucket.take(4, 1_009);
        assert_eq!(bucket.over_admitted(), 2);
        assert!(bucket.acquire(10, 2_000));
        assert_eq!(bucket.over_admitted(), 2);
    }
}
