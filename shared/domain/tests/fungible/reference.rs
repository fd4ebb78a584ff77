//! The exact bucket.

use crate::{Limit, NANOS_PER_MILLI};

/// Tokens that were granted at a moment, in nanoseconds. A fail-safe take is granted without tokens.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub at: i128,
    pub tokens: u64,
    pub is_fail_safe: bool,
}

pub fn granted(at: i128, tokens: u64) -> Grant {
    Grant { at, tokens, is_fail_safe: false }
}

/// An exact bucket with debt. Its unit is a token divided by the window's nanoseconds.
pub struct Reference {
    limit: Limit,
    capacity: i128,
    pub level: i128,
    at: i128,
}

impl Reference {
    /// A full bucket, for clients whose clocks differ by at most `spread` milliseconds.
    pub fn new(limit: Limit, spread: i64) -> Self {
        let capacity = i128::from(limit.tokens) * (limit.nanos() + i128::from(spread) * NANOS_PER_MILLI);
        Self { limit, capacity, level: capacity, at: 0 }
    }

    pub fn advance(&mut self, at: i128) {
        let accrued = (at - self.at).saturating_mul(self.limit.tokens.into());
        self.level = self.level.saturating_add(accrued).min(self.capacity);
        self.at = at;
    }

    /// Charges a grant. Returns whether the bucket had its tokens.
    pub fn charge(&mut self, grant: Grant) -> bool {
        self.advance(grant.at);
        let tokens = i128::from(grant.tokens) * self.limit.nanos();
        let had = self.level >= tokens;
        self.level -= tokens;
        had || grant.is_fail_safe
    }
}
