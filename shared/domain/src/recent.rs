//! A bounded memory of bucket shards: those that were met last.

use std::collections::HashMap;

use crate::bucket::BucketKey;

/// What is remembered of the bucket shards that were met last.
#[derive(Clone, Debug)]
pub struct Recent<T> {
    newer: HashMap<BucketKey<'static>, T>,
    older: HashMap<BucketKey<'static>, T>,
    most: usize,
}

impl<T> Recent<T> {
    /// A memory for at least `most` shards and at most twice as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), most }
    }

    /// Takes what is remembered of a shard out of the memory.
    pub fn take(&mut self, bucket: &BucketKey<'_>) -> Option<T> {
        // Keys of whatever lifetime are equal if their texts are.
        let bucket = bucket.clone().into_owned();
        let (newer, older) = (self.newer.remove(&bucket), self.older.remove(&bucket));
        newer.or(older)
    }

    /// What is remembered of a shard, and stays in the memory.
    #[must_use]
    pub fn peek(&self, bucket: &BucketKey<'_>) -> Option<&T> {
        let bucket = bucket.clone().into_owned();
        self.newer.get(&bucket).or_else(|| self.older.get(&bucket))
    }

    /// Remembers something of a shard; what was not remembered anew for longest may be forgotten.
    pub fn put(&mut self, bucket: BucketKey<'static>, value: T) {
        if self.newer.len() >= self.most {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(bucket, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{Entity, Namespace, Resource, Shard};

    fn key(shard: u32) -> BucketKey<'static> {
        BucketKey {
            namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
            entity: Entity::new("user-1").unwrap(),
            resource: Resource::new("api").unwrap(),
            shard: Shard::new(shard),
        }
    }

    #[test]
    fn the_latest_are_remembered_and_the_oldest_forgotten() {
        let mut recent = Recent::new(2);
        (0..5).for_each(|shard| recent.put(key(shard), shard));
        let remembered: Vec<_> = (0..5).filter_map(|shard| recent.peek(&key(shard))).collect();
        assert_eq!(remembered, [&2, &3, &4]);
        recent.put(key(2), 20);
        assert_eq!((recent.take(&key(2)), recent.take(&key(2))), (Some(20), None));
    }
}
