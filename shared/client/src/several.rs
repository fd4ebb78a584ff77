//! Requests for more than one shard can hold: one transaction takes from several.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_aws::{acquires::SeenShard, bucket_item::BucketItem, buckets::WriteOutcome};
use tidegate_domain::{
    admission::{self, Amounts, Remedy, Shortage},
    bucket::{Limit, Shard},
    state::BucketState,
    time::EpochMillis,
};

use crate::{
    acquire::refusal,
    bucket::{Bucket, plain},
    clock::Moment,
    core::Core,
    error::{AcquireError, Contended, DecidedBy, Unavailable},
    lane::{Stop, Writer, operation},
    lease::Grant,
};

/// How often a request is tried while other clients write to the shards.
const ATTEMPTS: u32 = 8;

/// Takes amounts that no shard can hold alone. Returns `None` if the bucket has other shards by now.
///
/// It runs in a task of its own: if the caller goes away, the grants give their tokens back.
pub(crate) async fn take(
    core: &Arc<Core>,
    bucket: &Arc<Bucket>,
    amounts: &Amounts<'static>,
    is_parent: bool,
) -> Result<Option<Vec<Grant>>, AcquireError> {
    let request = Request { core: Arc::clone(core), bucket: Arc::clone(bucket), amounts: amounts.clone(), is_parent };
    core.background.run(request.run()).await.map_err(Unavailable::new)?
}

/// Returns the denial that follows from what was seen of all shards a moment ago.
pub(crate) fn known_denial(core: &Core, bucket: &Bucket, amounts: &Amounts<'static>) -> Option<AcquireError> {
    let moment = core.moment();
    let states = bucket.recent_states(moment)?;
    let is_denied = admission::divide(&states, amounts, moment.now).is_none();
    let refuse = || refusal(bucket, &shortages(&states, amounts, moment.now), DecidedBy::Cache);
    // What never fits may have come to fit by a change of the limits.
    is_denied.then(refuse).filter(|error| matches!(error, AcquireError::Denied(_)))
}

struct Request {
    core: Arc<Core>,
    bucket: Arc<Bucket>,
    amounts: Amounts<'static>,
    is_parent: bool,
}

type States = BTreeMap<Shard, BucketState<'static>>;

impl Request {
    async fn run(mut self) -> Result<Option<Vec<Grant>>, AcquireError> {
        for attempt in 1..=ATTEMPTS {
            let moment = self.core.moment();
            let Some(items) = self.read(moment).await? else { return Ok(None) };
            let states: States =
                items.iter().filter_map(|(shard, item)| Some((*shard, plain(item)?.clone()))).collect();
            let Some(zero) = states.get(&Shard::ZERO) else { return Ok(None) };
            if self.is_parent {
                self.amounts.retain(|limit, _| zero.limits.contains_key(limit));
            }
            let missing = (0..zero.shards.get()).map(Shard::new).find(|shard| !states.contains_key(shard));
            let step = match missing {
                Some(missing) => self.writer(missing).fill_shards().await.map(|()| None),
                None => self.try_take(&items, &states, moment).await,
            };
            match step {
                Ok(Some(grants)) => return Ok(Some(grants)),
                Ok(None) => self.core.back_off(attempt).await,
                Err(Stop::Moved) => return Ok(None),
                Err(Stop::Busy(busy)) => return Err(busy.error.into()),
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        Err(Unavailable::busy(Contended(ATTEMPTS)).into())
    }

    /// Reads all shards; `None` if there is no bucket.
    async fn read(&self, moment: Moment) -> Result<Option<BTreeMap<Shard, BucketItem>>, AcquireError> {
        let key = self.core.key(&self.bucket, Shard::ZERO);
        let mut items = self.core.within(self.core.store.find_all(&key, 0..self.bucket.count())).await?;
        let Some(zero) = items.get(&Shard::ZERO).cloned() else {
            self.bucket.forget(Shard::ZERO);
            return Ok(None);
        };
        if let Some(obstacle) = items.values().find_map(|item| self.bucket.obstacle(item)) {
            return Err(obstacle);
        }
        self.bucket.observe(Shard::ZERO, zero, moment);
        // Shards of an older and larger bucket expire by themselves.
        let count = self.bucket.count();
        items.retain(|shard, _| shard.get() < count);
        for (shard, item) in items.iter().filter(|(shard, _)| **shard != Shard::ZERO) {
            self.bucket.observe(*shard, item.clone(), moment);
        }
        Ok(Some(items))
    }

    async fn try_take(
        &self,
        items: &BTreeMap<Shard, BucketItem>,
        states: &States,
        moment: Moment,
    ) -> Result<Option<Vec<Grant>>, Stop> {
        let parts = admission::divide(states, &self.amounts, moment.now);
        let mut seen = Vec::new();
        // A denial, too, follows from the terms that are configured.
        let nothing = BTreeMap::from([(Shard::ZERO, Amounts::new())]);
        for (shard, part) in parts.as_ref().unwrap_or(&nothing) {
            let (Some(item), Some(state)) = (items.get(shard), states.get(shard)) else { return Ok(None) };
            let Some(renewal) = self.writer(*shard).renewal(item, state, moment).await? else { return Ok(None) };
            let Some(take) = admission::decide(state, std::slice::from_ref(part), moment.now).take else { continue };
            seen.push(SeenShard { key: self.core.key(&self.bucket, *shard), item, state, take, renewal });
        }
        let Some(parts) = parts else {
            let shortages = shortages(states, &self.amounts, moment.now);
            return Err(Stop::Failed(refusal(&self.bucket, &shortages, DecidedBy::Store)));
        };
        let id = self.core.operation_id();
        let taken = self.core.store.take_together(&seen, operation(&id, 1, moment.now));
        match self.core.within(taken).await.map_err(Stop::Failed)? {
            WriteOutcome::Written => {
                let parent = items[&Shard::ZERO].owner.cascades_to();
                let grant = |(shard, part)| Grant::new(&self.core, &self.bucket, shard, part, parent.cloned());
                Ok(Some(parts.into_iter().map(grant).collect()))
            }
            WriteOutcome::Lost => Ok(None),
        }
    }

    fn writer(&self, shard: Shard) -> Writer {
        Writer::new(&self.core, &self.bucket, shard)
    }
}

/// What all shards together lack for a request.
fn shortages(states: &States, amounts: &Amounts<'static>, now: EpochMillis) -> Vec<Shortage<'static>> {
    let wait = admission::wait_for_all(states, amounts, now);
    let capacity = |limit: &Limit<'_>| Some(states.get(&Shard::ZERO)?.limits.get(limit.as_str())?.terms.capacity);
    let shortage = |(limit, requested): (&Limit<'static>, &_)| Shortage {
        limit: limit.clone(),
        requested: *requested,
        available: admission::available_in_all(states, limit, now),
        capacity: capacity(limit).unwrap_or_default(),
        remedy: wait.map_or(Remedy::Never, Remedy::Wait),
    };
    amounts.iter().map(shortage).filter(|shortage| shortage.available < shortage.requested).collect()
}
