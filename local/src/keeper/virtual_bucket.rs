//! One exact token bucket of a whole limit: what may be admitted, whatever shards and refills there are.

use super::phases::Terms;

/// The bucket, full at its creation. Takes are never refused: how deep it goes below zero is what was
/// admitted too much.
#[derive(Clone, Debug)]
pub(crate) struct VirtualBucket {
    terms: Terms,
    /// Tokens times the period: whole numbers, whatever has accrued.
    level: i64,
    at: i64,
    deepest: i64,
}

impl VirtualBucket {
    pub(crate) fn new(terms: Terms, at: i64) -> Self {
        Self { terms, level: terms.capacity * terms.period, at, deepest: 0 }
    }

    /// Takes whole tokens at the moment `now`, in milliseconds.
    pub(crate) fn take(&mut self, tokens: i64, now: i64) {
        let accrued = (now - self.at).max(0) * self.terms.refill;
        self.at = self.at.max(now);
        self.level = (self.level + accrued).min(self.terms.capacity * self.terms.period);
        self.level -= tokens * self.terms.period;
        self.deepest = self.deepest.min(self.level);
    }

    /// The whole tokens that are left; none in debt.
    pub(crate) fn left(&self) -> i64 {
        self.level.max(0) / self.terms.period
    }

    /// The tokens that were admitted too much at the worst moment: a part of one counts as one.
    pub(crate) fn over_admitted(&self) -> i64 {
        (-self.deepest + self.terms.period - 1) / self.terms.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_and_what_is_too_much_is_found() {
        let mut bucket = VirtualBucket::new(Terms { capacity: 10, refill: 1, period: 3 }, 0);
        bucket.take(0, 1_000);
        bucket.take(10, 1_000);
        assert_eq!((bucket.left(), bucket.over_admitted()), (0, 0));
        // Two thirds of a token have accrued.
        bucket.take(1, 1_002);
        assert_eq!((bucket.left(), bucket.over_admitted()), (0, 1));
        bucket.take(2, 1_009);
        assert_eq!((bucket.left(), bucket.over_admitted()), (0, 1));
        bucket.take(2, 1_009);
        assert_eq!(bucket.over_admitted(), 2);
        bucket.take(0, 2_000);
        assert_eq!((bucket.left(), bucket.over_admitted()), (10, 2));
    }
}
