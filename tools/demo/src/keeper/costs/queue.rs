//! What happens next in a simulation, in the order of time.

use tidegate_domain::{
    bucket::BucketChange,
    refill::Refill,
    state::{BucketImage, BucketState},
};

#[derive(Debug)]
pub(super) enum Event {
    Acquire,
    /// A client reads the item, to refill it up to the moment `now`.
    Read {
        shard: usize,
        now: i64,
    },
    /// A client writes what it has computed from the item as it was `seen`.
    Commit {
        shard: usize,
        now: i64,
        seen: BucketState<'static>,
    },
    /// A client takes its tokens without a refill.
    Retry {
        shard: usize,
    },
    /// A batching window ends.
    Window,
    Batch(Vec<BucketChange<'static, BucketImage<'static>>>),
    Refill {
        shard: usize,
        seen: BucketState<'static>,
        refill: Refill<'static>,
    },
    Repair,
}

pub(super) struct Queued {
    /// Events of the same moment keep their order.
    pub(super) at: (i64, u64),
    pub(super) event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}
