//! Proof of the lease rule: workers never use more than the cap, and share it fairly.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod fairness;
mod law;
mod ledger;
mod levels;
mod worker;
mod world;

use std::num::NonZeroU32;

use tidegate_domain::{
    rates::{Rate, Rates},
    time::EpochMillis,
};

/// A rate in millionths of a unit.
fn rate(millionths: u64) -> Rate {
    Rate::from_millionths(millionths)
}

/// Reads in millionths of a unit, and no writes.
fn reads(millionths: u64) -> Rates {
    Rates { read: rate(millionths), ..Rates::default() }
}

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

/// A moment so many milliseconds after the start of a test.
fn at(millis: i64) -> EpochMillis {
    EpochMillis::new(1_767_225_600_000 + millis).unwrap()
}
