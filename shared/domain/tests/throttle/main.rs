//! Proof of the throttle: callers pass in order, and keep the limit without leaving anything over.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod examples;
mod law;
mod steps;

use std::time::Duration;

use tidegate_domain::{
    rates::{Rate, Rates},
    throttle::Units,
};

/// Whole units.
fn units(units: u64) -> Units {
    Units::from_millionths(units * Units::ONE)
}

/// Whole units a second, of reads and half as much of writes.
fn rates(units: u64) -> Rates {
    Rates { read: Rate::from_millionths(units * Rate::UNIT), write: Rate::from_millionths(units * Rate::UNIT / 2) }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
