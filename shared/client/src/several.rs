//! What concerns all shards of a bucket: requests larger than one shard can hold, and the doubling of the shards.

use std::sync::Arc;

use tidegate_aws::{
    acquires::SeenShard,
    buckets::{Consistency, Shards, WriteOutcome},
};
use tidegate_domain::{
    admission::{self, Amounts, Remedy, Shortage},
    bucket::Shard,
    split,
    time::EpochMillis,
};

use crate::{
    acquire::refusal,
    bucket::Bucket,
    core::Core,
    error::{AcquireError, DecidedBy, Unavailable},
    lane::operation,
    lease::Grant,
};

/// How often a request is tried while other clients write to the shards.
const ATTEMPTS: u32 = 8;

/// The most shards to which a client doubles a bucket, as other clients do.
const MAX_SHARDS: u32 = 32;

/// Takes amounts that no shard can hold alone from several shards, in one transaction.
pub(crate) async fn take(
    core: &Arc<Core>,
    bucket: &Arc<Bucket>,
    amounts: &Amounts<'static>,
) -> Result<Vec<Grant>, AcquireError> {
    for attempt in 1..=ATTEMPTS {
        let shards = read(core, bucket).await?;
        let now = core.now();
        let Some(parts) = admission::divide(&shards.states, amounts, now) else {
            return Err(refusal(bucket, &shortages(&shards, amounts, now), DecidedBy::Store));
        };
        let configured = core.configurations.get(&bucket.name).await.map_err(Unavailable::new)?;
        let expires = configured.configuration.as_ref().and_then(|configuration| configuration.expires(now));
        let takes: Vec<_> = parts
            .iter()
            .filter_map(|(shard, part)| {
                let state = shards.states.get(shard)?;
                let take = admission::decide(state, std::slice::from_ref(part), now).take?;
                Some(SeenShard { key: core.key(bucket, *shard), state, take })
            })
            .collect();
        let id = core.operation_id();
        match core.acquires.take_together(&takes, expires, operation(&id, 1, now)).await.map_err(Unavailable::new)? {
            WriteOutcome::Written => {
                let grant = |(shard, part)| Grant::new(core, bucket, shard, part, None);
                return Ok(parts.into_iter().map(grant).collect());
            }
            WriteOutcome::Lost => core.back_off(attempt).await,
        }
    }
    Err(Unavailable::new(Contended).into())
}

/// Doubles the shards of a bucket that is written too fast. Each new shard takes half of another one's tokens.
pub(crate) async fn double(core: &Core, bucket: &Bucket) -> Result<(), AcquireError> {
    let shards = read(core, bucket).await?;
    let Some(doubled) = shards.zero().and_then(|zero| zero.shards.doubled()) else { return Ok(()) };
    if doubled.get() > MAX_SHARDS {
        return Ok(());
    }
    if let Some(plan) = split::plan(&shards.states, doubled) {
        let key = core.key(bucket, Shard::ZERO);
        core.buckets.increase_shards(&key, &shards, &plan).await.map_err(Unavailable::new)?;
        bucket.learn(doubled);
    }
    Ok(())
}

async fn read(core: &Core, bucket: &Bucket) -> Result<Shards, AcquireError> {
    let key = core.key(bucket, Shard::ZERO);
    let read = core.buckets.read(&key, 0..bucket.count(), Consistency::Strong).await;
    Ok(read.map_err(Unavailable::new)?)
}

/// What all shards together lack for a request.
fn shortages(shards: &Shards, amounts: &Amounts<'static>, now: EpochMillis) -> Vec<Shortage<'static>> {
    let wait = admission::wait_for_all(&shards.states, amounts, now);
    let total = |limit| {
        let held = shards
            .states
            .values()
            .filter_map(|state| Some(admission::available(state, limit, state.limits.get(limit)?, now).get()));
        tidegate_domain::tokens::Millitokens::new(held.fold(0, i64::saturating_add))
    };
    amounts
        .iter()
        .map(|(limit, requested)| Shortage {
            limit: limit.clone(),
            requested: *requested,
            available: total(limit),
            remedy: wait.map_or(Remedy::Never, Remedy::Wait),
        })
        .filter(|shortage| shortage.available < shortage.requested)
        .collect()
}

#[derive(Debug, thiserror::Error)]
#[error("other clients changed the bucket's shards during each of {ATTEMPTS} attempts")]
struct Contended;
