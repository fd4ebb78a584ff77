//! AWS's rule, which the Python workers follow: a worker consumes under its limit, and sets the limit by the summary.

use std::time::Duration;

/// AWS's rule, for one kind of capacity: a cap for the fleet and a maximum for each worker, in capacity units a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rule {
    cap: f64,
    maximum: f64,
}

/// A cap or a maximum that no worker can follow.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} capacity units a second, where a number from 1 on is needed")]
pub(crate) struct InvalidRate(f64);

impl Rule {
    /// The lowest limit, in capacity units a second.
    pub(crate) const FLOOR: f64 = 1.0;
    /// How far a limit moves towards the target: 0 is not at all, 1 is the whole way.
    pub(crate) const SMOOTHING: f64 = 0.4;
    /// A worker starts with the cap divided by this.
    const GUESS: f64 = 10.0;

    pub(crate) fn new(cap: f64, maximum: f64) -> Result<Self, InvalidRate> {
        match [cap, maximum].into_iter().find(|rate| !rate.is_finite() || *rate < Self::FLOOR) {
            Some(rate) => Err(InvalidRate(rate)),
            None => Ok(Self { cap, maximum }),
        }
    }

    /// What the fleet may consume.
    pub(crate) const fn cap(self) -> f64 {
        self.cap
    }

    /// What one worker may consume, even if it is alone.
    pub(crate) const fn maximum(self) -> f64 {
        self.maximum
    }

    /// The limit of a worker that starts.
    pub(crate) const fn initial(self) -> f64 {
        self.maximum.min(self.cap / Self::GUESS).max(Self::FLOOR)
    }

    /// The limit that would bring the fleet exactly to its cap if the summary were current, at most the maximum.
    pub(crate) fn target(self, limit: f64, sum: f64) -> f64 {
        let scale = if sum > 0.0 { self.cap / sum } else { 1.0 };
        (limit * scale).min(self.maximum)
    }

    /// The limit after a worker with this limit has read this sum.
    pub(crate) fn adjust(self, limit: f64, sum: f64) -> f64 {
        let adjusted = (1.0 - Self::SMOOTHING) * limit + Self::SMOOTHING * self.target(limit, sum);
        if adjusted < Self::FLOOR { limit } else { adjusted }
    }
}

/// A token bucket that the limit fills and consumption empties. Both flow, so it is never overdrawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allowance {
    limit: f64,
    tokens: f64,
}

impl Allowance {
    /// The seconds of its limit that a bucket holds.
    const DEPTH: f64 = 2.0;

    /// The allowance of a worker that starts: one second of its limit.
    pub(crate) const fn new(limit: f64) -> Self {
        Self { limit, tokens: limit }
    }

    /// The limit, in capacity units a second.
    pub(crate) const fn limit(&self) -> f64 {
        self.limit
    }

    #[cfg(test)]
    pub(crate) const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Changes the limit, and the tokens in proportion.
    pub(crate) fn set_limit(&mut self, limit: f64) {
        let tokens = if self.limit > 0.0 { self.tokens * limit / self.limit } else { self.tokens };
        *self = Self { limit, tokens: tokens.min(limit * Self::DEPTH) };
    }

    /// Lets time pass with a demand of so many capacity units a second. Returns how many are consumed in all.
    pub(crate) fn consume(&mut self, demand: f64, elapsed: Duration) -> f64 {
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

/// A worker that follows the rule.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    rule: Rule,
    pub(crate) allowance: Allowance,
}

impl Python {
    pub(crate) const fn new(rule: Rule) -> Self {
        Self { rule, allowance: Allowance::new(rule.initial()) }
    }

    /// Sets the limit by the sum of a summary.
    pub(crate) fn adjust(&mut self, sum: f64) {
        self.allowance.set_limit(self.rule.adjust(self.allowance.limit(), sum));
    }
}
