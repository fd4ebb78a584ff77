//! Ids of writes. A write leaves its id in the item, which tells whether it happened if its response is lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// The ids of one client.
pub(crate) struct OperationIds {
    writer: u64,
    operations: AtomicU64,
}

impl OperationIds {
    pub(crate) fn new() -> Self {
        Self { writer: fastrand::u64(..), operations: AtomicU64::new(0) }
    }

    /// Returns an id that no other write has.
    pub(crate) fn next(&self) -> String {
        format!("{:016x}.{:x}", self.writer, self.operations.fetch_add(1, Ordering::Relaxed))
    }
}
