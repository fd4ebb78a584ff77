//! Ids of writes. A write leaves its id in the item, which tells whether it happened if its response is lost.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// The ids of one client.
pub(crate) struct OperationIds {
    writer: u64,
    operations: AtomicU64,
}

impl OperationIds {
    pub(crate) fn new() -> Self {
        Self { writer: random_u64(), operations: AtomicU64::new(0) }
    }

    /// Returns an id that no other write has.
    pub(crate) fn next(&self) -> String {
        format!("{:016x}.{:x}", self.writer, self.operations.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns a random number that the operating system's randomness is part of. The generator of `fastrand` starts from the
/// time since boot, which may be equal on two small machines.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns an id that no other process has, in 32 hexadecimal digits.
pub(crate) fn random_id() -> String {
    format!("{:016x}{:016x}", random_u64(), fastrand::u64(..))
}
