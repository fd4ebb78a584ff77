//! The writer of one shard. While a write is under way, requests wait; the next write takes them all.

use std::{sync::Arc, time::Duration};

use tidegate_aws::{
    acquires::{Operation, SeenShard, WriteError, Written},
    bucket_item::BucketItem,
    error::StoreError,
};
use tidegate_domain::{
    admission::{self, Amounts, Outcome, Remedy, Shortage, Take},
    bucket::{BucketKey, Shard},
    state::BucketState,
    time::EpochMillis,
    tokens::Millitokens,
};
use tokio::sync::oneshot;

use crate::{
    bucket::{Bucket, Seen, plain},
    clock::Moment,
    core::Core,
    error::{AcquireError, Contended, DecidedBy, Unavailable},
    lease::Grant,
    metrics,
};

/// How often a batch is tried while other clients write to the same item. Each attempt starts from the item that the last
/// one returned.
const ATTEMPTS: u32 = 16;

/// How long the table is asked, with the SDK's retries, whether a write happened whose response was lost.
const FIND: Duration = Duration::from_secs(2);

/// A request for tokens of one shard.
pub(crate) struct TakeRequest {
    pub(crate) amounts: Amounts<'static>,
    /// Whether the bucket is the parent's in a cascade. Limits that it does not have are left out.
    pub(crate) is_parent: bool,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// The result of a request for tokens.
pub(crate) enum Reply {
    Granted(Grant),
    Denied(Vec<Shortage<'static>>, DecidedBy),
    Busy(Busy),
    /// The bucket has other shards by now.
    Moved,
    Failed(AcquireError),
}

/// The shard takes no more writes for the moment. Another one may, or this one a few milliseconds later.
#[derive(Clone, Debug)]
pub(crate) struct Busy {
    pub(crate) error: Unavailable,
    /// The number of shards, if the shard's partition is too hot: more shards help.
    pub(crate) hot_at: Option<u32>,
}

/// Writes until no request waits.
pub(crate) fn run(core: &Arc<Core>, bucket: &Arc<Bucket>, shard: Shard) -> impl Future<Output = ()> + Send + use<> {
    // If a write panics, or the runtime drops the task, the requests are dropped, and so are their replies.
    let on_drop = Abandon { bucket: Arc::clone(bucket), shard, is_armed: true };
    let writer = Writer::new(core, bucket, shard);
    async move {
        let mut on_drop = on_drop;
        while let Some(batch) = writer.bucket.next(shard) {
            // What is rare is boxed, here and below, so that the task of each write is small.
            if !batch.gives.is_empty() {
                Box::pin(writer.give(batch.gives)).await;
            }
            writer.take(batch.takes).await;
        }
        on_drop.is_armed = false;
    }
}

struct Abandon {
    bucket: Arc<Bucket>,
    shard: Shard,
    is_armed: bool,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if self.is_armed {
            self.bucket.abandon(self.shard);
        }
    }
}

pub(crate) struct Writer {
    pub(crate) core: Arc<Core>,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) shard: Shard,
    pub(crate) key: BucketKey<'static>,
}

/// What the attempts at one batch have found out.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The item was seen after the requests arrived.
    pub(crate) is_fresh: bool,
    /// The item has all attributes that a client can give it.
    pub(crate) is_complete: bool,
    /// All shards existed when they were last read.
    pub(crate) has_all_shards: bool,
}

/// The next call for some requests.
#[derive(Debug, PartialEq)]
enum Call {
    /// A write that knows only the amounts: the stored tokens should cover them, or nothing is known of the shard.
    Speculate,
    /// A write that refills, and takes for the requests that are granted.
    Take(Take<'static>, Vec<Outcome<'static>>),
    /// None: no request is granted.
    None(Vec<Outcome<'static>>),
}

/// Chooses the call for some requests, which ask for these sums, by what was seen of the shard.
fn next_call(
    seen: Option<&Seen>,
    requests: &[TakeRequest],
    sums: &Amounts<'static>,
    is_fresh: bool,
    is_comparison_due: bool,
    moment: Moment,
) -> Call {
    let Some((seen, state)) = seen.and_then(|seen| Some((seen, plain(&seen.item)?))) else { return Call::Speculate };
    let is_valid = seen.item.valid_until.is_none() && !state.is_expired(moment.now) && !state.is_overfull();
    if is_valid && !is_comparison_due && is_stored(state, sums) {
        return Call::Speculate;
    }
    let amounts: Vec<_> = requests.iter().map(|request| request.amounts.clone()).collect();
    let decision = admission::decide(state, &amounts, moment.now);
    match decision.take {
        Some(take) => Call::Take(take, decision.outcomes),
        // What others have given back since is known to the table only.
        None if !is_fresh && !seen.is_recent(moment) => Call::Speculate,
        None => Call::None(decision.outcomes),
    }
}

fn is_never(outcome: &Outcome<'_>) -> bool {
    matches!(outcome, Outcome::Denied(shortages) if shortages.iter().any(|of| of.remedy == Remedy::Never))
}

/// Whether the stored tokens cover the sums of all requests.
fn is_stored(state: &BucketState<'_>, sums: &Amounts<'static>) -> bool {
    let units = state.write_units().is_some_and(|units| units.tokens >= admission::WRITE_UNIT);
    units && sums.iter().all(|(limit, sum)| state.limits.get(limit).is_some_and(|of| of.tokens >= *sum))
}

/// What the requests ask for together.
fn sums(requests: &[TakeRequest]) -> Amounts<'static> {
    let mut sums = Amounts::new();
    for (limit, amount) in requests.iter().flat_map(|request| &request.amounts) {
        match sums.get_mut(limit) {
            Some(sum) => *sum = Millitokens::new(sum.get().saturating_add(amount.get())),
            None => drop(sums.insert(limit.clone(), *amount)),
        }
    }
    sums
}

impl Writer {
    pub(crate) fn new(core: &Arc<Core>, bucket: &Arc<Bucket>, shard: Shard) -> Self {
        Self { key: core.key(bucket, shard), core: Arc::clone(core), bucket: Arc::clone(bucket), shard }
    }

    /// Takes tokens for some requests, and replies to each.
    async fn take(&self, mut requests: Vec<TakeRequest>) {
        let mut progress = Progress::default();
        for _ in 0..ATTEMPTS {
            requests.retain(|request| !request.reply.is_closed());
            if requests.is_empty() {
                return;
            }
            match self.try_take(&mut requests, &mut progress).await {
                Ok(()) => {}
                // The stored tokens may cover fewer requests.
                Err(Stop::Failed(AcquireError::Unsupported { .. })) if requests.len() > 1 => {
                    let rest = requests.split_off(requests.len() / 2);
                    Box::pin(self.take(requests)).await;
                    return Box::pin(self.take(rest)).await;
                }
                Err(Stop::Busy(busy)) => return reply_all(requests, || Reply::Busy(busy.clone())),
                Err(Stop::Moved) => return reply_all(requests, || Reply::Moved),
                Err(Stop::Failed(error)) => return reply_all(requests, || Reply::Failed(error.clone())),
            }
        }
        let busy = Busy { error: Unavailable::busy(Contended(ATTEMPTS)), hot_at: None };
        reply_all(requests, || Reply::Busy(busy.clone()));
    }

    /// Makes the next call for the requests. Removes those that it replies to.
    async fn try_take(&self, requests: &mut Vec<TakeRequest>, progress: &mut Progress) -> Result<(), Stop> {
        let moment = self.core.moment();
        let seen = self.bucket.seen(self.shard);
        let state = seen.as_deref().and_then(|seen| plain(&seen.item));
        if let Some(state) = state {
            self.leave_out_missing(requests, state).await?;
        }
        let sums = sums(requests);
        let is_due = self.bucket.is_comparison_due(moment, self.core.configurations.lifetime());
        let id = self.core.operation_id();
        let (written, is_granted) = match next_call(seen.as_deref(), requests, &sums, progress.is_fresh, is_due, moment)
        {
            Call::Speculate => {
                let write = self.core.speculative_write(&sums.keys().cloned().collect::<Vec<_>>());
                let amounts: Vec<_> = sums.into_values().collect();
                let operation = operation(&id, requests.len(), moment.now);
                let written = self.core.store.speculate(&self.key, &write, &amounts, operation).await;
                progress.is_fresh = true;
                if let Ok(Written::Refused(Some(item))) = written {
                    metrics::write("take", "refused");
                    let seen = self.bucket.observe(self.shard, item, moment);
                    return Box::pin(self.overcome(&seen.item, progress, moment)).await;
                }
                (written, vec![true; requests.len()])
            }
            Call::Take(take, outcomes) => {
                // A take is planned from an item only.
                let Some((seen, state)) = seen.as_deref().zip(state) else { return Ok(()) };
                if Box::pin(self.resolve_missing(requests, &outcomes, seen, state)).await? {
                    return Ok(());
                }
                if state.is_overfull() && !progress.has_all_shards {
                    progress.has_all_shards = true;
                    let shards = state.shards.get();
                    let found = Box::pin(self.core.within(self.core.store.find_all(&self.key, 1..shards))).await;
                    if found.map_err(Stop::Failed)?.len() + 1 < shards as usize {
                        // The surplus belongs to shards that are missing.
                        return Box::pin(self.fill_shards()).await;
                    }
                }
                let Some(renewal) = Box::pin(self.renewal(&seen.item, state, moment)).await? else { return Ok(()) };
                let is_granted: Vec<_> = outcomes.iter().map(|outcome| *outcome == Outcome::Granted).collect();
                let count = is_granted.iter().filter(|is_granted| **is_granted).count();
                let seen = SeenShard { key: self.key.clone(), item: &seen.item, state, take, renewal };
                progress.is_fresh = true;
                (Box::pin(self.core.store.take(&seen, operation(&id, count, moment.now))).await, is_granted)
            }
            Call::None(outcomes) => {
                let Some((seen, state)) = seen.as_deref().zip(state) else { return Ok(()) };
                if Box::pin(self.resolve_missing(requests, &outcomes, seen, state)).await? {
                    return Ok(());
                }
                if seen.item.valid_until.is_some() {
                    // Other clients take their slow path until it is settled.
                    return Box::pin(self.settle(&seen.item, state)).await;
                }
                // The item may deny what the configuration has come to allow.
                if (is_due || outcomes.iter().any(is_never))
                    && Box::pin(self.renewal(&seen.item, state, moment)).await?.is_none()
                {
                    return Ok(());
                }
                let decided_by = if progress.is_fresh { DecidedBy::Store } else { DecidedBy::Cache };
                deny(requests, outcomes, decided_by, state.shards.get());
                return Ok(());
            }
        };
        self.finish(requests, &is_granted, written, &id, moment).await
    }

    /// Replies to the requests that a write has taken for, if it has happened.
    pub(crate) async fn finish(
        &self,
        requests: &mut Vec<TakeRequest>,
        is_granted: &[bool],
        written: Result<Written, WriteError>,
        id: &str,
        moment: Moment,
    ) -> Result<(), Stop> {
        metrics::written("take", &written);
        match written {
            Ok(Written::Applied(item)) => self.grant(requests, is_granted, item, moment),
            // Another client was faster.
            Ok(Written::Refused(Some(item))) => drop(self.bucket.observe(self.shard, item, moment)),
            Ok(Written::Refused(None)) => {
                self.bucket.forget(self.shard);
                return Box::pin(self.create(requests, moment)).await;
            }
            Err(WriteError::Throttled { error, is_hot_partition }) => {
                let hot_at = is_hot_partition.then(|| self.bucket.count());
                return Err(Stop::Busy(Busy { error: Unavailable::busy(error), hot_at }));
            }
            Err(WriteError::NotWritten(error)) => return Err(Stop::failed(error)),
            Err(WriteError::Lost(error)) => {
                if let Some(item) = Box::pin(self.find_written(id)).await {
                    self.grant(requests, is_granted, Some(item), moment);
                } else {
                    // It may have been written. To write it again could charge twice.
                    let error = AcquireError::from(error);
                    for request in select(requests, is_granted) {
                        drop(request.reply.send(Reply::Failed(error.clone())));
                    }
                }
            }
        }
        Ok(())
    }

    /// Remembers an item that a call returned which began at `moment`, or forgets one that cannot be read.
    pub(crate) fn remember(&self, item: Option<BucketItem>, moment: Moment) {
        match item {
            Some(item) => drop(self.bucket.observe(self.shard, item, moment)),
            None => self.bucket.forget(self.shard),
        }
    }

    /// Hands out what a write has taken.
    fn grant(&self, requests: &mut Vec<TakeRequest>, is_granted: &[bool], item: Option<BucketItem>, moment: Moment) {
        let parent = item.as_ref().and_then(|item| item.owner.cascades_to().cloned());
        self.remember(item, moment);
        let granted = select(requests, is_granted);
        metrics::merged(granted.len().saturating_sub(1));
        for TakeRequest { amounts, reply, .. } in granted {
            let grant = Grant::new(&self.core, &self.bucket, self.shard, amounts, parent.clone());
            // If the caller has gone away, the grant gives its tokens back.
            drop(reply.send(Reply::Granted(grant)));
        }
    }

    /// Reads the item of a write whose response was lost. Returns it if the write has happened; `None` if it has not, or
    /// if that cannot be known, because another writer of this crate has left its id since.
    pub(crate) async fn find_written(&self, id: &str) -> Option<BucketItem> {
        match tokio::time::timeout(FIND, self.core.store.find(&self.key)).await {
            Ok(Ok(item)) => item.filter(|item| item.operation.as_deref() == Some(id)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the outcome of a write could not be read");
                None
            }
            Err(_) => None,
        }
    }
}

/// Why no further attempt is made for some requests.
pub(crate) enum Stop {
    Busy(Busy),
    Moved,
    Failed(AcquireError),
}

impl Stop {
    pub(crate) fn failed(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

pub(crate) fn operation(id: &str, acquires: usize, now: EpochMillis) -> Operation<'_> {
    Operation { id, acquires: u32::try_from(acquires).unwrap_or(u32::MAX), now }
}

/// Takes the requests out for which `is_selected` is true.
pub(crate) fn select(requests: &mut Vec<TakeRequest>, is_selected: &[bool]) -> Vec<TakeRequest> {
    let mut is_selected = is_selected.iter();
    requests.extract_if(.., |_| is_selected.next() == Some(&true)).collect()
}

fn reply_all(requests: Vec<TakeRequest>, reply: impl Fn() -> Reply) {
    for request in requests {
        drop(request.reply.send(reply()));
    }
}

/// Denies all requests. If only write units are short, the shard is busy.
pub(crate) fn deny(
    requests: &mut Vec<TakeRequest>,
    outcomes: Vec<Outcome<'static>>,
    decided_by: DecidedBy,
    shards: u32,
) {
    for (request, outcome) in requests.drain(..).zip(outcomes) {
        let Outcome::Denied(shortages) = outcome else { continue };
        let is_busy = shortages.iter().all(|shortage| shortage.limit.is_write_units());
        let reply = if is_busy {
            Reply::Busy(Busy { error: Unavailable::busy(OutOfWriteUnits), hot_at: Some(shards) })
        } else {
            Reply::Denied(shortages, decided_by)
        };
        drop(request.reply.send(reply));
    }
}

/// A partition takes 1,000 write units a second.
///
/// AWS: [partitions](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).
#[derive(Debug, thiserror::Error)]
#[error("the bucket's partition takes no more writes for the moment")]
struct OutOfWriteUnits;
