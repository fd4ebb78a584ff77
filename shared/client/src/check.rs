//! Looking at buckets without taking from them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_domain::{
    admission::{self, Amounts, Remedy, Shortage},
    bucket::{Entity, Limit, Shard},
    tokens::Millitokens,
};

use crate::{
    bucket::{Bucket, plain},
    core::{Core, Name},
    error::{AcquireError, LimitStatus},
};

/// What a bucket, and its parent's if consumption cascades, can grant. Nothing was taken.
///
/// Made by [`AcquireBuilder::check`](crate::AcquireBuilder::check).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    limits: Vec<LimitStatus>,
}

impl Availability {
    /// Returns what the buckets have of each of their limits.
    #[must_use]
    pub fn limits(&self) -> &[LimitStatus] {
        &self.limits
    }

    /// Returns how long to wait until the request can succeed, if no other caller takes tokens: zero if it can now, and
    /// `None` if it never can.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.limits.iter().try_fold(Duration::ZERO, |longest, limit| Some(longest.max(limit.retry_after?)))
    }
}

/// Reads the bucket of a name and its parent's.
pub(crate) async fn check(core: &Core, name: &Name, amounts: &Amounts<'static>) -> Result<Availability, AcquireError> {
    let mut limits = Vec::new();
    let parent = check_one(core, &core.bucket(name), amounts, false, &mut limits).await?;
    if let Some(parent) = parent {
        let name = Name { entity: parent, resource: name.resource.clone() };
        check_one(core, &core.bucket(&name), amounts, true, &mut limits).await?;
    }
    Ok(Availability { limits })
}

/// Reads one bucket. Returns the entity to which its consumption cascades.
async fn check_one(
    core: &Core,
    bucket: &Arc<Bucket>,
    amounts: &Amounts<'static>,
    is_parent: bool,
    limits: &mut Vec<LimitStatus>,
) -> Result<Option<Entity<'static>>, AcquireError> {
    let moment = core.moment();
    let now = moment.now;
    let key = core.key(bucket, Shard::ZERO);
    let configured = core.configurations.get(&bucket.name).await?;
    let mut items = core.within(core.store.find_all(&key, 0..bucket.count())).await?;
    if let Some(zero) = items.get(&Shard::ZERO) {
        let read = bucket.count();
        bucket.observe(Shard::ZERO, zero.clone(), moment);
        if bucket.count() > read {
            items.extend(core.within(core.store.find_all(&key, read..bucket.count())).await?);
        }
    }
    items.retain(|shard, _| shard.get() < bucket.count());
    if let Some(obstacle) = items.values().find_map(|item| bucket.obstacle(item)) {
        return Err(obstacle);
    }
    let owner = items.get(&Shard::ZERO).map_or(&configured.owner, |zero| &zero.owner);
    let parent = owner.cascades_to().cloned();
    if configured.is_disabled {
        return Err(bucket.disabled());
    }
    if is_parent && configured.configuration.is_none() {
        // An acquire leaves out what a parent does not have.
        return Ok(None);
    }
    let mut states: BTreeMap<_, _> =
        items.iter().filter_map(|(shard, item)| Some((*shard, plain(item)?.clone()))).collect();
    if !states.contains_key(&Shard::ZERO) {
        // The bucket that the first acquire would create.
        states = BTreeMap::from([(Shard::ZERO, bucket.new_state(&configured, now)?)]);
    }
    let state = &states[&Shard::ZERO];
    let is_known = |limit: &Limit<'_>| {
        state.limits.contains_key(limit.as_str())
            || configured.configuration.as_ref().is_some_and(|of| of.limits.contains_key(limit.as_str()))
    };
    if !is_parent && let Some(unknown) = amounts.keys().find(|limit| !is_known(limit)) {
        return Err(bucket.unknown(unknown));
    }
    for (limit, of) in state.divided() {
        let requested = amounts.get(limit).copied().unwrap_or_default();
        let available = admission::available_in_all(&states, limit, now);
        let wait = if requested <= available.max(Millitokens::default()) {
            Some(Duration::ZERO)
        } else {
            admission::wait_for_all(&states, &[(limit.clone(), requested)].into(), now)
        };
        let remedy = wait.map_or(Remedy::Never, Remedy::Wait);
        let capacity = of.terms.capacity;
        let shortage = Shortage { limit: limit.clone(), requested, available, capacity, remedy };
        limits.push(LimitStatus::new(bucket.name.entity.as_str(), &shortage));
    }
    Ok(parent)
}
