//! What a process remembers from one invocation to the next. Nothing depends on it but the cost: what is
//! forgotten is found out again, and until then buckets are credited less.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tidegate_domain::{
    activity::Trail,
    bucket::{BucketKey, Shard},
    level::Level,
    recent::Recent,
    state::ShardCount,
};

/// How many bucket shards are remembered from batch to batch: about a kilobyte each.
const FOLLOWED: usize = 4_096;
/// How many are remembered from repair to repair: those that are not full, of a run's 10,000 buckets.
const FOUND: usize = 16_384;

/// The memory of a process.
pub struct Memory {
    state: Mutex<State>,
}

struct State {
    /// As the stream shows them.
    followed: Recent<Trail<'static>>,
    /// As the repair found them.
    found: Recent<Level<'static>>,
    /// Buckets of which all shards exist, by shard 0's key.
    settled: HashMap<BucketKey<'static>, ShardCount>,
}

impl Default for Memory {
    fn default() -> Self {
        let state = State { followed: Recent::new(FOLLOWED), found: Recent::new(FOUND), settled: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Memory {
    /// The trail of a shard as the last batch left it.
    pub(crate) fn recall(&self, bucket: &BucketKey<'_>) -> Option<Trail<'static>> {
        self.state().followed.peek(bucket).cloned()
    }

    /// Remembers the trail of a shard as a batch leaves it.
    pub(crate) fn follow(&self, bucket: BucketKey<'static>, trail: Trail<'static>) {
        self.state().followed.put(bucket, trail);
    }

    /// The levels at which the last repair and the last batch left a shard, as far as they are remembered.
    pub(crate) fn found(&self, bucket: &BucketKey<'_>) -> [Option<Level<'static>>; 2] {
        let mut state = self.state();
        let followed = state.followed.peek(bucket).map(|trail| trail.level().clone());
        [state.found.take(bucket), followed]
    }

    /// Remembers the level of a shard as a repair leaves it.
    pub(crate) fn find(&self, bucket: BucketKey<'static>, level: Level<'static>) {
        self.state().found.put(bucket, level);
    }

    /// Whether all shards of a bucket are known to exist.
    pub(crate) fn is_settled(&self, bucket: &BucketKey<'_>, shards: ShardCount) -> bool {
        let bucket = bucket.at(Shard::ZERO).into_owned();
        shards == ShardCount::ONE || self.state().settled.get(&bucket) == Some(&shards)
    }

    /// Remembers that all shards of a bucket exist.
    pub(crate) fn settle(&self, bucket: &BucketKey<'_>, shards: ShardCount) {
        let mut state = self.state();
        if state.settled.len() >= FOUND {
            state.settled.clear();
        }
        state.settled.insert(bucket.at(Shard::ZERO).into_owned(), shards);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}
