//! Configurations, remembered for a minute. One call at a time reads the configuration of a bucket.

use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use tidegate_aws::{
    configurations::{Configurations, Configured},
    error::StoreError,
};
use tidegate_domain::bucket::Namespace;
use tokio::time::Instant;

use crate::core::Name;

/// How many configurations are remembered.
const CAPACITY: usize = 100_000;

pub(crate) struct ConfigurationCache {
    store: Configurations,
    namespace: Namespace<'static>,
    lifetime: Duration,
    entries: Cache<Name, Entry>,
}

#[derive(Clone)]
struct Entry {
    configured: Arc<Configured>,
    read_at: Instant,
}

impl ConfigurationCache {
    pub(crate) fn new(store: Configurations, namespace: Namespace<'static>, lifetime: Duration) -> Self {
        Self { store, namespace, lifetime, entries: Cache::new(CAPACITY) }
    }

    /// Returns what is configured, as it was at most a lifetime ago. A bucket without limits is remembered, too.
    pub(crate) async fn get(&self, name: &Name) -> Result<Arc<Configured>, StoreError> {
        if self.entries.get(name).is_some_and(|entry| entry.read_at.elapsed() >= self.lifetime) {
            self.entries.remove(name);
        }
        let entry = self.entries.get_or_insert_async(name, self.read(name)).await?;
        Ok(entry.configured)
    }

    /// Reads what is configured now, and remembers it.
    pub(crate) async fn refresh(&self, name: &Name) -> Result<Arc<Configured>, StoreError> {
        let entry = self.read(name).await?;
        self.entries.insert(name.clone(), entry.clone());
        Ok(entry.configured)
    }

    async fn read(&self, name: &Name) -> Result<Entry, StoreError> {
        let read_at = Instant::now();
        let configured = Arc::new(self.store.read(&self.namespace, &name.entity, &name.resource).await?);
        Ok(Entry { configured, read_at })
    }
}
