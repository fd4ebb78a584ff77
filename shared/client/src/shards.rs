//! The number of shards: missing shards are created, and a bucket that is written too fast gets twice as many.
//!
//! A new shard takes a part of the tokens of another one, in one transaction, so no token is created.

use tidegate_aws::buckets::{Shards, WriteOutcome};
use tidegate_domain::{bucket::Shard, split};

use crate::{
    bucket::{Bucket, plain},
    core::Core,
    error::AcquireError,
    lane::{Stop, Writer},
};

/// How often shards are read while other clients change them.
const ATTEMPTS: u32 = 4;

/// The most shards to which a client doubles a bucket, as other clients do.
const MAX_SHARDS: u32 = 32;

impl Writer {
    /// Creates this shard if it is missing, or the shards that are missing and split from this one.
    pub(crate) async fn fill_shards(&self) -> Result<(), Stop> {
        let _resizing = self.bucket.resize.lock().await;
        let mut count = self.bucket.count();
        for _ in 0..ATTEMPTS {
            let shards = read(&self.core, &self.bucket, count).await.map_err(Stop::Failed)?;
            if !shards.unfamiliar.is_empty() {
                self.settle_all(shards.unfamiliar.keys().copied()).await?;
                continue;
            }
            let Some(zero) = shards.zero() else {
                self.bucket.forget(Shard::ZERO);
                return Err(Stop::Moved);
            };
            self.bucket.learn(zero.shards);
            if self.shard.get() >= zero.shards.get() {
                return Err(Stop::Moved);
            }
            if zero.shards.get() > count {
                count = zero.shards.get();
                continue;
            }
            if let Some(mut plan) = split::plan(&shards.states, zero.shards) {
                plan.splits.retain(|split| split.donor == self.shard || split.targets.contains(&self.shard));
                for split in &mut plan.splits {
                    // What is left out stays with the donor.
                    let own = split.targets.iter().position(|target| *target == self.shard);
                    split.targets.swap(0, own.unwrap_or_default());
                    split.targets.truncate(MAX_SHARDS as usize);
                }
                plan.raises.clear();
                if !plan.splits.is_empty() {
                    let increased = self.core.within(self.core.store.increase_shards(&self.key, &shards, &plan));
                    increased.await.map_err(Stop::Failed)?;
                }
            }
            return self.look().await;
        }
        Err(Stop::Moved)
    }

    /// Settles shards that `set_limits` has marked.
    async fn settle_all(&self, shards: impl Iterator<Item = Shard>) -> Result<(), Stop> {
        for shard in shards {
            let writer = Self::new(&self.core, &self.bucket, shard);
            let Some(item) = self.core.store.find(&writer.key).await.map_err(Stop::failed)? else { continue };
            if let Some(obstacle) = self.bucket.obstacle(&item) {
                return Err(Stop::Failed(obstacle));
            }
            if let Some(state) = plain(&item) {
                writer.settle(&item, state).await?;
            }
        }
        Ok(())
    }
}

/// Doubles the shards of a bucket that was written too fast when it had `seen` shards. A failure is logged: the caller
/// tries again anyhow.
pub(crate) async fn double(core: &Core, bucket: &Bucket, seen: u32) {
    let Ok(_resizing) = bucket.resize.try_lock() else { return };
    if let Err(error) = try_double(core, bucket, seen).await {
        tracing::warn!(entity = %bucket.name.entity, resource = %bucket.name.resource, %error, "a hot bucket was not doubled");
    }
}

async fn try_double(core: &Core, bucket: &Bucket, seen: u32) -> Result<(), AcquireError> {
    let shards = read(core, bucket, seen).await?;
    let Some(zero) = shards.zero() else { return Ok(()) };
    // Another client has doubled the bucket already.
    if zero.shards.get() != seen {
        bucket.learn(zero.shards);
        return Ok(());
    }
    let Some(doubled) = zero.shards.doubled().filter(|doubled| doubled.get() <= MAX_SHARDS) else { return Ok(()) };
    if let Some(plan) = split::plan(&shards.states, doubled) {
        let key = core.key(bucket, Shard::ZERO);
        if core.within(core.store.increase_shards(&key, &shards, &plan)).await? == WriteOutcome::Written {
            bucket.learn(doubled);
        }
    }
    Ok(())
}

async fn read(core: &Core, bucket: &Bucket, count: u32) -> Result<Shards, AcquireError> {
    let key = core.key(bucket, Shard::ZERO);
    core.within(core.store.read(&key, 0..count)).await
}
