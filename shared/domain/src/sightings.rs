//! Sightings: since when a bucket shard has been as it is, to those who look at it now and then.
//!
//! A fingerprint of the shard and its state is all that is kept of a sighting, so that many fit. Two that are
//! mistaken for one another would need the same 64 bits, of a hash that is keyed anew in each process.

use std::{collections::hash_map::RandomState, hash::BuildHasher as _};

use crate::{bucket::BucketKey, level::Level, recent::Recent, state::BucketState, time::EpochMillis};

/// When bucket shards were first seen as they are.
#[derive(Clone, Debug)]
pub struct Sightings {
    since: Recent<u64, EpochMillis>,
    hasher: RandomState,
}

impl Sightings {
    /// A memory for at least `most` sightings and at most twice as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { since: Recent::new(most), hasher: RandomState::new() }
    }

    /// The level of a shard that is found like this now: what accrues counts from when it was first seen so,
    /// which is now if it is not remembered.
    pub fn see<'a>(&mut self, bucket: &BucketKey<'_>, state: &BucketState<'a>, now: EpochMillis) -> Level<'a> {
        let fingerprint = self.fingerprint(bucket, state);
        let since = self.since.get(&fingerprint).copied().unwrap_or(now);
        self.since.put(fingerprint, since);
        Level::unknown(state.clone(), since)
    }

    fn fingerprint(&self, bucket: &BucketKey<'_>, state: &BucketState<'_>) -> u64 {
        self.hasher.hash_one((bucket, state))
    }
}
