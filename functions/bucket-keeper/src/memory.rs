//! What a process remembers from one invocation to the next. Nothing depends on it but the cost: what is
//! forgotten is found out again, and until then buckets are credited less.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tidegate_domain::{
    bucket::{BucketKey, Shard},
    level::{Level, Levels},
    state::ShardCount,
};

/// How many bucket shards are remembered: about a kilobyte each.
const SHARDS: usize = 4096;

/// The memory of a process.
pub struct Memory {
    state: Mutex<State>,
}

struct State {
    /// As the stream shows them.
    followed: Levels,
    /// As the repair found them.
    found: Levels,
    /// Buckets of which all shards exist, by shard 0's key.
    settled: HashMap<BucketKey<'static>, ShardCount>,
}

impl Default for Memory {
    fn default() -> Self {
        let state = State { followed: Levels::new(SHARDS), found: Levels::new(SHARDS), settled: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Memory {
    /// The level of a shard as the last batch left it.
    pub(crate) fn recall(&self, bucket: &BucketKey<'_>) -> Option<Level<'static>> {
        self.state().followed.take(bucket)
    }

    /// Remembers the level of a shard as a batch leaves it.
    pub(crate) fn follow(&self, bucket: BucketKey<'static>, level: Level<'static>) {
        self.state().followed.put(bucket, level);
    }

    /// The levels at which the last repair and the last batch left a shard, as far as they are remembered.
    pub(crate) fn found(&self, bucket: &BucketKey<'_>) -> [Option<Level<'static>>; 2] {
        let mut state = self.state();
        let followed = state.followed.peek(bucket).cloned();
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
        if state.settled.len() >= SHARDS {
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
