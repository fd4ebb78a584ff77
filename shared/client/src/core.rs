//! What all parts of a limiter share: the table, the caches, and the tasks that write.

use std::{sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use tidegate_aws::{acquires::SpeculativeWrite, error::StoreError};
use tidegate_domain::bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard};
use tokio::runtime::Handle;

use crate::{
    administration::Administration,
    background::Background,
    bucket::Bucket,
    cache::ConfigurationCache,
    clock::{Clock, Moment},
    error::{AcquireError, InvalidRequest, Unavailable},
    names,
    operation_ids::OperationIds,
    store::Store,
};

/// The most buckets that a limiter remembers.
const BUCKETS: usize = 100_000;
/// The sets of limits for which a limiter keeps the text of the write.
const WRITES: usize = 1_000;
/// The longest wait before the second attempt. A partition gets back a write unit each millisecond.
const BACKOFF: Duration = Duration::from_millis(10);
/// The longest time for a transaction over several shards, or for reading them, with all retries.
const CALL: Duration = Duration::from_secs(5);

pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) configurations: ConfigurationCache,
    pub(crate) administration: Administration,
    pub(crate) namespace: Namespace<'static>,
    pub(crate) clock: Clock,
    known: Cache<Name, Arc<Bucket>>,
    writes: Cache<Vec<Limit<'static>>, Arc<SpeculativeWrite>>,
    operations: OperationIds,
    pub(crate) background: Arc<Background>,
}

/// The entity and the resource of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) entity: Entity<'static>,
    pub(crate) resource: Resource<'static>,
}

impl Name {
    pub(crate) fn checked(entity: &str, resource: &str) -> Result<Self, InvalidRequest> {
        Ok(Self { entity: names::entity(entity)?, resource: names::resource(resource)? })
    }
}

impl Core {
    pub(crate) fn new(
        store: Store,
        configurations: ConfigurationCache,
        administration: Administration,
        namespace: Namespace<'static>,
        clock: Clock,
        runtime: Handle,
    ) -> Self {
        Self {
            store,
            configurations,
            administration,
            namespace,
            clock,
            known: Cache::new(BUCKETS),
            writes: Cache::new(WRITES),
            operations: OperationIds::new(),
            background: Background::new(runtime),
        }
    }

    pub(crate) fn bucket(&self, name: &Name) -> Arc<Bucket> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::new(Bucket::new(name.clone())));
        let Ok(bucket) = self.known.get_or_insert_with(name, new);
        bucket
    }

    pub(crate) fn key(&self, bucket: &Bucket, shard: Shard) -> BucketKey<'static> {
        let Name { entity, resource } = bucket.name.clone();
        BucketKey { namespace: self.namespace.clone(), entity, resource, shard }
    }

    /// Returns the write for a set of limits, whose text depends on their names only.
    pub(crate) fn speculative_write(&self, limits: &[Limit<'static>]) -> Arc<SpeculativeWrite> {
        let new = || Ok::<_, std::convert::Infallible>(Arc::new(SpeculativeWrite::new(limits.to_vec())));
        let Ok(write) = self.writes.get_or_insert_with(limits, new);
        write
    }

    /// Returns an id that no other write has.
    pub(crate) fn operation_id(&self) -> String {
        self.operations.next()
    }

    pub(crate) fn moment(&self) -> Moment {
        self.clock.moment()
    }

    /// Makes a call that takes many requests, within [`CALL`].
    pub(crate) async fn within<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, AcquireError> {
        Ok(tokio::time::timeout(CALL, call).await.map_err(Unavailable::new)??)
    }

    /// Waits for a random time of some milliseconds, longer with each attempt: a partition or an item is busy.
    pub(crate) async fn back_off(&self, attempt: u32) {
        tokio::time::sleep(Self::backoff(attempt)).await;
    }

    pub(crate) fn backoff(attempt: u32) -> Duration {
        BACKOFF.saturating_mul(attempt).mul_f64(fastrand::f64())
    }
}
