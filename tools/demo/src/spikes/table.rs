//! What a table serves in a second: with provisioned capacity and burst capacity, or on demand up to its warm throughput.
//!
//! The traffic spreads evenly over the partitions, so no partition throttles before the table.

use std::{collections::VecDeque, mem};

use super::traffic::MINUTE;

/// Unused capacity is kept for so many seconds.
///
/// AWS: [burst capacity](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html).
pub(crate) const BURST_SECONDS: u64 = 300;

/// A table with provisioned capacity.
///
/// AWS documents how long unused capacity is kept, not how it is counted. The model is a token bucket that accrues unused
/// capacity, and holds what the table provisions in 300 s. With it, the table of the article bursts for four minutes, as the
/// article says. AWS does not guarantee burst capacity; here, all of it is there.
#[derive(Clone, Debug)]
pub(crate) struct ProvisionedTable {
    capacity: u64,
    burst: u64,
}

impl ProvisionedTable {
    /// Creates a table with full burst capacity.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, burst: BURST_SECONDS * capacity }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    #[cfg(test)]
    pub(crate) fn burst(&self) -> u64 {
        self.burst
    }

    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.burst = self.burst.min(BURST_SECONDS * capacity);
    }

    /// Returns how many of the write units of one second are served.
    pub(crate) fn serve(&mut self, demanded: u64) -> u64 {
        let available = self.capacity + self.burst;
        let served = demanded.min(available);
        self.burst = (available - served).min(BURST_SECONDS * self.capacity);
        served
    }
}

/// Write units a second that a new on-demand table serves at once.
///
/// AWS: [initial throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html#on-demand-capacity-mode-initial).
pub(crate) const INITIAL_WARM_THROUGHPUT: u64 = 4_000;

/// Within so many minutes, traffic may only double its previous peak.
///
/// AWS: [initial throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html#on-demand-capacity-mode-initial).
const DOUBLING_MINUTES: usize = 30;

/// An on-demand table. It serves its warm throughput at once, and throttles what exceeds it.
///
/// AWS says that a table throttles if its traffic exceeds twice the previous peak within 30 minutes. The model takes this
/// literally: a minute raises the warm throughput to twice its traffic 30 minutes later. A real table often grows faster.
/// Warm throughput never falls.
#[derive(Clone, Debug)]
pub(crate) struct OnDemandTable {
    warm: u64,
    /// Write units of the current minute.
    minute: u64,
    /// Write units of the last minutes, the oldest first.
    minutes: VecDeque<u64>,
}

impl OnDemandTable {
    pub(crate) fn new(warm: u64) -> Self {
        Self { warm, minute: 0, minutes: VecDeque::new() }
    }

    pub(crate) fn warm(&self) -> u64 {
        self.warm
    }

    /// Returns how many of the write units of the second `now` are served.
    pub(crate) fn serve(&mut self, demanded: u64, now: u32) -> u64 {
        let served = demanded.min(self.warm);
        self.minute += served;
        if (now + 1).is_multiple_of(MINUTE) {
            self.minutes.push_back(mem::take(&mut self.minute));
        }
        if self.minutes.len() > DOUBLING_MINUTES
            && let Some(minute) = self.minutes.pop_front()
        {
            self.warm = self.warm.max(2 * minute / u64::from(MINUTE));
        }
        served
    }
}
