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
    sightings::Sightings,
    state::{BucketState, ShardCount},
    time::EpochMillis,
};

/// How many bucket shards are remembered from batch to batch, up to twice: some 3.5 KB each.
const FOLLOWED: usize = 2_048;
/// How many are remembered from repair to repair, up to twice: all those of a run's 10,000 buckets, unless
/// they have many, at some 30 bytes each.
const FOUND: usize = 65_536;
/// How many buckets are remembered to have all their shards: some 300 bytes each.
const SETTLED: usize = 16_384;

/// The memory of a process.
pub struct Memory {
    state: Mutex<State>,
}

struct State {
    /// As the stream shows them.
    followed: Recent<BucketKey<'static>, Trail<'static>>,
    /// As the repair found them.
    found: Sightings,
    /// Buckets of which all shards exist, by shard 0's key.
    settled: HashMap<BucketKey<'static>, ShardCount>,
}

impl Default for Memory {
    fn default() -> Self {
        let state = State { followed: Recent::new(FOLLOWED), found: Sightings::new(FOUND), settled: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Memory {
    /// The trail of a shard as the last batch left it.
    pub(crate) fn recall(&self, bucket: &BucketKey<'_>) -> Option<Trail<'static>> {
        self.state().followed.get(&bucket.clone().into_owned()).cloned()
    }

    /// Remembers the trail of a shard as a batch leaves it.
    pub(crate) fn follow(&self, bucket: BucketKey<'static>, trail: Trail<'static>) {
        self.state().followed.put(bucket, trail);
    }

    /// The levels of a shard that a repair finds like this now: by what the batches left, and by when it was
    /// first seen so.
    pub(crate) fn find<'a>(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'a>,
        now: EpochMillis,
    ) -> [Option<Level<'a>>; 2] {
        let mut memory = self.state();
        let followed = memory.followed.get(&bucket.clone().into_owned()).map(|trail| trail.level().clone());
        [followed, Some(memory.found.see(bucket, state, now))]
    }

    /// Whether all shards of a bucket are known to exist. A bucket that has fewer than it had is another one,
    /// of which nothing is known.
    pub(crate) fn is_settled(&self, bucket: &BucketKey<'_>, shards: ShardCount) -> bool {
        let bucket = bucket.at(Shard::ZERO).into_owned();
        let mut memory = self.state();
        match memory.settled.get(&bucket) {
            Some(settled) if *settled > shards => {
                memory.settled.remove(&bucket);
                shards == ShardCount::ONE
            }
            settled => shards == ShardCount::ONE || settled == Some(&shards),
        }
    }

    /// Remembers that all shards of a bucket exist.
    pub(crate) fn settle(&self, bucket: &BucketKey<'_>, shards: ShardCount) {
        let mut memory = self.state();
        if memory.settled.len() >= SETTLED {
            memory.settled.clear();
        }
        memory.settled.insert(bucket.at(Shard::ZERO).into_owned(), shards);
    }

    /// Forgets whether all shards of a bucket exist.
    pub(crate) fn unsettle(&self, bucket: &BucketKey<'_>) {
        self.state().settled.remove(&bucket.at(Shard::ZERO).into_owned());
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
