//! Configurations, remembered for a minute. One call at a time reads the configuration of a bucket.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use quick_cache::sync::Cache;
use tidegate_aws::{buckets::Consistency, configurations::Configured, error::StoreError};
use tidegate_domain::{bucket::Namespace, configuration::Scope};

use crate::{clock::Clock, core::Name, store::Store};

/// How many configurations are remembered.
const CAPACITY: usize = 100_000;

pub(crate) struct ConfigurationCache {
    store: Store,
    namespace: Namespace<'static>,
    lifetime: Duration,
    clock: Clock,
    entries: Cache<Name, Entry>,
}

#[derive(Clone)]
struct Entry {
    configured: Arc<Configured>,
    /// As [`Moment::elapsed`](crate::clock::Moment::elapsed).
    read_at: Duration,
    /// One caller reads it again; the others use it meanwhile.
    is_refreshing: Arc<AtomicBool>,
}

/// How old the answer may be that a limit is not configured: a caller with a misspelt name causes no more reads.
const RECENT: Duration = Duration::from_secs(1);

impl ConfigurationCache {
    pub(crate) fn new(store: Store, namespace: Namespace<'static>, lifetime: Duration, clock: Clock) -> Self {
        Self { store, namespace, lifetime, clock, entries: Cache::new(CAPACITY) }
    }

    /// How long a configuration is remembered.
    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns what is configured, as it was at most a lifetime ago, or what was before while another caller reads it. A
    /// bucket without limits is remembered, too.
    pub(crate) async fn get(&self, name: &Name) -> Result<Arc<Configured>, StoreError> {
        let Some(entry) = self.entries.get(name) else {
            let entry = self.entries.get_or_insert_async(name, self.read(name, Consistency::Eventual)).await?;
            return Ok(entry.configured);
        };
        if self.age(&entry) < self.lifetime || entry.is_refreshing.swap(true, Ordering::AcqRel) {
            return Ok(entry.configured);
        }
        let _refreshing = Refreshing(&entry.is_refreshing);
        let fresh = self.read(name, Consistency::Eventual).await?;
        self.entries.insert(name.clone(), fresh.clone());
        Ok(fresh.configured)
    }

    /// Returns what is remembered, if it was read a moment ago.
    pub(crate) fn recent(&self, name: &Name) -> Option<Arc<Configured>> {
        self.entries.get(name).filter(|entry| self.age(entry) < RECENT).map(|entry| entry.configured)
    }

    /// Returns what is configured, as it was at most a moment ago.
    pub(crate) async fn get_recent(&self, name: &Name) -> Result<Arc<Configured>, StoreError> {
        match self.recent(name) {
            Some(recent) => Ok(recent),
            None => self.refresh(name).await,
        }
    }

    /// Reads what is configured now, and remembers it. An eventually consistent read could bring back limits that were
    /// just changed.
    pub(crate) async fn refresh(&self, name: &Name) -> Result<Arc<Configured>, StoreError> {
        self.read_again(name, Consistency::Strong).await
    }

    /// Reads what is configured, whatever is remembered.
    pub(crate) async fn read_again(
        &self,
        name: &Name,
        consistency: Consistency,
    ) -> Result<Arc<Configured>, StoreError> {
        let entry = self.read(name, consistency).await?;
        self.entries.insert(name.clone(), entry.clone());
        Ok(entry.configured)
    }

    /// Forgets what applies in a scope, because its configuration has changed.
    pub(crate) fn forget(&self, scope: &Scope<'_>) {
        self.entries.retain(|name, _| !scope.covers(&name.entity, &name.resource));
    }

    fn age(&self, entry: &Entry) -> Duration {
        self.clock.moment().elapsed.saturating_sub(entry.read_at)
    }

    async fn read(&self, name: &Name, consistency: Consistency) -> Result<Entry, StoreError> {
        let read_at = self.clock.moment().elapsed;
        let read = self.store.configured(&self.namespace, name, consistency).await?;
        Ok(Entry { configured: Arc::new(read), read_at, is_refreshing: Arc::default() })
    }
}

/// Lets another caller read the entry if this one fails or goes away.
struct Refreshing<'e>(&'e AtomicBool);

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
