//! Proof of the rule of fungible tokens on a model of several clients that share one row.
//!
//! Our clients decide with the real code, and each of their writes applies under the conditions that the table checks.
//! Clients of rate-limiter-py take with their two writes. Calls follow each other in any order: a write may arrive late or
//! never, and its response may be lost. The reference is an exact bucket, which is charged at the moments of the takes.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod examples;
mod random_calls;
mod reference;
mod world;

use std::time::Duration;

use tidegate_domain::fungible::Rate;

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Limit {
    tokens: u64,
    window: Duration,
}

impl Limit {
    fn rate(self) -> Rate {
        Rate::new(self.tokens, self.window).unwrap()
    }

    fn nanos(self) -> i128 {
        i128::try_from(self.window.as_nanos()).unwrap()
    }
}
