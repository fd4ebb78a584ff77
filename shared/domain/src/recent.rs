//! A bounded memory: of bucket shards, those that were met last.

use std::{collections::HashMap, hash::Hash};

/// What is remembered by its key, of those that were met last.
#[derive(Clone, Debug)]
pub struct Recent<K, T> {
    newer: HashMap<K, T>,
    older: HashMap<K, T>,
    most: usize,
}

impl<K: Eq + Hash, T> Recent<K, T> {
    /// A memory for at least `most` keys and at most twice as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { newer: HashMap::new(), older: HashMap::new(), most }
    }

    /// What is remembered by a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&T> {
        self.newer.get(key).or_else(|| self.older.get(key))
    }

    /// Remembers something; what was not remembered anew for longest may be forgotten.
    pub fn put(&mut self, key: K, value: T) {
        if self.newer.len() >= self.most {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_the_oldest_forgotten() {
        let mut recent = Recent::new(2);
        (0..5).for_each(|key| recent.put(key, key * 10));
        let remembered: Vec<_> = (0..5).filter_map(|key| recent.get(&key)).collect();
        assert_eq!(remembered, [&20, &30, &40]);
        recent.put(2, 21);
        assert_eq!(recent.get(&2), Some(&21));
    }
}
