//! What a worker may consume under its limit: a bucket of tokens.

use std::time::Duration;

/// A bucket that the limit fills, and consumption empties. Both flow; a bucket is never overdrawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    limit: f64,
    tokens: f64,
}

impl Allowance {
    /// The seconds of its limit that a bucket holds.
    const DEPTH: f64 = 2.0;

    /// The allowance of a worker that starts: one second's worth of its limit.
    pub const fn new(limit: f64) -> Self {
        Self { limit, tokens: limit }
    }

    /// The limit, in capacity units a second.
    pub const fn limit(&self) -> f64 {
        self.limit
    }

    /// The capacity units that could be consumed at once.
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Changes the limit, and what is in the bucket in proportion.
    pub fn set_limit(&mut self, limit: f64) {
        let tokens = if self.limit > 0.0 { self.tokens * limit / self.limit } else { self.tokens };
        *self = Self { limit, tokens: tokens.min(limit * Self::DEPTH) };
    }

    /// Lets time pass in which `demand` capacity units a second are wanted; how many are consumed in all.
    pub fn consume(&mut self, demand: f64, elapsed: Duration) -> f64 {
        let seconds = elapsed.as_secs_f64();
        let drain = demand - self.limit;
        if drain <= 0.0 {
            self.tokens = (self.tokens - drain * seconds).min(self.limit * Self::DEPTH);
            return demand * seconds;
        }
        let until_empty = (self.tokens / drain).min(seconds);
        self.tokens = (self.tokens - drain * until_empty).max(0.0);
        demand * until_empty + self.limit * (seconds - until_empty)
    }
}
