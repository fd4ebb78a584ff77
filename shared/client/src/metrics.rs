//! Counters, through the facade of the `metrics` crate. Without the feature `metrics`, nothing is counted.

use tidegate_aws::acquires::{WriteError, Written};
#[cfg(feature = "fleet")]
use tidegate_domain::rates::Rates;

#[cfg(feature = "capacity")]
use crate::capacity::{Announcement, CapacityError};
use crate::{
    error::{AcquireError, DecidedBy},
    fungible::{TakeError, Taken},
    lease::Lease,
    reservation::{Reservation, ReserveError},
};

/// Counts an acquire by its outcome.
pub(crate) fn acquired(acquired: &Result<Lease, AcquireError>) {
    let outcome = match acquired {
        Ok(lease) if lease.is_degraded() => "degraded",
        Ok(_) => "granted",
        Err(AcquireError::Denied(denied)) => {
            let decided_by = match denied.decided_by() {
                DecidedBy::Store => "store",
                DecidedBy::Cache => "cache",
                DecidedBy::LocalRate => "local_rate",
            };
            return count("tidegate_acquires_total", &[("outcome", "denied"), ("decided_by", decided_by)], 1);
        }
        Err(AcquireError::Never(_)) => "never",
        Err(AcquireError::Unavailable(_)) => "unavailable",
        Err(_) => "error",
    };
    count("tidegate_acquires_total", &[("outcome", outcome)], 1);
}

/// Counts a request for a token that is reserved.
pub(crate) fn reserved(reserved: &Result<Reservation, ReserveError>) {
    let outcome = match reserved {
        Ok(_) => "granted",
        Err(ReserveError::Denied(_)) => "denied",
        Err(ReserveError::Blocked { .. }) => "blocked",
        Err(ReserveError::Table(_) | ReserveError::TimedOut) => "unavailable",
        Err(_) => "error",
    };
    count("tidegate_reservations_total", &[("outcome", outcome)], 1);
}

/// Counts a take of fungible tokens.
pub(crate) fn taken(taken: &Result<Taken, TakeError>) {
    let outcome = match taken {
        Ok(_) => "granted",
        Err(TakeError::Denied(_)) => "denied",
        Err(TakeError::Never { .. }) => "never",
        Err(TakeError::Blocked { .. }) => "blocked",
        Err(TakeError::Table(_)) => "unavailable",
        Err(TakeError::Lost { .. }) => "lost",
        Err(_) => "error",
    };
    count("tidegate_fungible_takes_total", &[("outcome", outcome)], 1);
}

/// Counts a write to a shard by its outcome.
pub(crate) fn written(operation: &'static str, written: &Result<Written, WriteError>) {
    let outcome = match written {
        Ok(Written::Applied(_)) => "applied",
        Ok(Written::Refused(_)) => "refused",
        Err(WriteError::Throttled { .. }) => "throttled",
        Err(WriteError::NotWritten(_)) => "failed",
        Err(WriteError::Lost(_)) => "lost",
    };
    write(operation, outcome);
}

/// Counts a write to a shard.
pub(crate) fn write(operation: &'static str, outcome: &'static str) {
    count("tidegate_writes_total", &[("operation", operation), ("outcome", outcome)], 1);
}

/// Counts acquires that needed no write of their own.
pub(crate) fn merged(acquires: usize) {
    count("tidegate_merged_acquires_total", &[], acquires);
}

/// Counts adjustments and refunds that may not have been written.
pub(crate) fn adjustments_lost(adjustments: usize) {
    count("tidegate_adjustments_lost_total", &[], adjustments);
}

/// Counts a request for capacity.
#[cfg(feature = "capacity")]
pub(crate) fn announced(announced: &Result<Announcement, CapacityError>) {
    let outcome = match announced {
        Ok(_) => "ready",
        Err(CapacityError::NotReady(_)) => "not_ready",
        Err(CapacityError::Refused(_)) => "refused",
        Err(CapacityError::Unavailable { .. }) => "unavailable",
        Err(_) => "error",
    };
    count("tidegate_announcements_total", &[("outcome", outcome)], 1);
}

/// Counts a call of a fleet's worker to its bucket.
#[cfg(feature = "fleet")]
pub(crate) fn fleet_call(call: &'static str, has_succeeded: bool) {
    let outcome = if has_succeeded { "succeeded" } else { "failed" };
    count("tidegate_fleet_calls_total", &[("call", call), ("outcome", outcome)], 1);
}

/// Shows what the callers of a fleet's worker use, and what they may use, in capacity units a second.
#[cfg(feature = "fleet")]
pub(crate) fn fleet_rates(used: Rates, allowed: Rates) {
    for (capacity, used, allowed) in [("read", used.read, allowed.read), ("write", used.write, allowed.write)] {
        gauge("tidegate_fleet_used_units", &[("capacity", capacity)], used.units());
        gauge("tidegate_fleet_allowed_units", &[("capacity", capacity)], allowed.units());
    }
}

#[cfg(feature = "metrics")]
fn count(name: &'static str, labels: &[(&'static str, &'static str)], by: usize) {
    ::metrics::counter!(name, labels).increment(u64::try_from(by).unwrap_or(u64::MAX));
}

#[cfg(not(feature = "metrics"))]
const fn count(_: &str, _: &[(&str, &str)], _: usize) {}

#[cfg(all(feature = "fleet", feature = "metrics"))]
fn gauge(name: &'static str, labels: &[(&'static str, &'static str)], value: f64) {
    ::metrics::gauge!(name, labels).set(value);
}

#[cfg(all(feature = "fleet", not(feature = "metrics")))]
const fn gauge(_: &str, _: &[(&str, &str)], _: f64) {}
