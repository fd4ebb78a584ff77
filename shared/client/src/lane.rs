//! The writer of one shard. While a write is under way, requests wait; the next write takes them all.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_aws::{
    acquires::{Adjustment, BucketItem, Operation, WriteError, Written},
    buckets::{Consistency, Shards},
    error::StoreError,
};
use tidegate_domain::{
    admission::{self, Amounts, Outcome, Shortage, Take},
    bucket::{BucketKey, Limit, Shard},
    repair::Alignment,
    split,
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms, Unfamiliar},
    time::EpochMillis,
    tokens::Millitokens,
};
use tokio::sync::oneshot;

use crate::{
    bucket::{Bucket, Seen},
    core::{Core, Name},
    error::{AcquireError, DecidedBy, Unavailable},
    lease::Grant,
};

/// How often a batch is tried while other clients write to the same item. Each attempt starts from the item that the last
/// one returned.
const ATTEMPTS: u32 = 16;

/// How often the table is asked whether a write happened whose response was lost.
const FIND_ATTEMPTS: u32 = 3;

/// A request for tokens of one shard.
pub(crate) struct TakeRequest {
    pub(crate) amounts: Amounts<'static>,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// What becomes of a request for tokens.
pub(crate) enum Reply {
    Granted(Grant),
    Denied(Vec<Shortage<'static>>, DecidedBy),
    /// The shard takes no more writes for the moment. Another one may, or this one a few milliseconds later.
    Busy(Unavailable),
    /// The bucket has other shards by now.
    Moved,
    Failed(AcquireError),
}

/// A change of what was taken, in millitokens; tokens are given back where it is below zero.
pub(crate) struct GiveRequest {
    pub(crate) changes: BTreeMap<Limit<'static>, i64>,
    /// Hears whether the change was written, if somebody waits for it.
    pub(crate) reply: Option<oneshot::Sender<Result<(), Unavailable>>>,
}

/// Writes until no request waits.
pub(crate) async fn run(core: Arc<Core>, bucket: Arc<Bucket>, shard: Shard) {
    let writer = Writer { key: core.key(&bucket, shard), core, bucket, shard };
    // If a write panics, its requests are dropped, and so are their replies.
    let mut on_panic = Abandon { bucket: &writer.bucket, shard, is_armed: true };
    while let Some(batch) = writer.bucket.next(shard) {
        writer.give(batch.gives).await;
        writer.take(batch.takes).await;
    }
    on_panic.is_armed = false;
}

struct Abandon<'w> {
    bucket: &'w Bucket,
    shard: Shard,
    is_armed: bool,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.bucket.abandon(self.shard);
        }
    }
}

struct Writer {
    core: Arc<Core>,
    bucket: Arc<Bucket>,
    shard: Shard,
    key: BucketKey<'static>,
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

/// Chooses the call for some requests by what was seen of the shard. `is_fresh` tells whether it was seen after the
/// requests arrived.
fn next_call(seen: Option<&Seen>, requests: &[Amounts<'static>], is_fresh: bool, now: EpochMillis) -> Call {
    let Some(seen) = seen else { return Call::Speculate };
    let Some(state) = seen.plain() else { return Call::Speculate };
    if seen.item.valid_until.is_none() && !state.is_expired(now) && is_stored(state, requests) {
        return Call::Speculate;
    }
    let decision = admission::decide(state, requests, now);
    match decision.take {
        Some(take) => Call::Take(take, decision.outcomes),
        // What others have given back since is known to the table only.
        None if !is_fresh && !seen.is_recent(now) => Call::Speculate,
        None => Call::None(decision.outcomes),
    }
}

/// Whether the stored tokens cover all requests together.
fn is_stored(state: &BucketState<'_>, requests: &[Amounts<'static>]) -> bool {
    let units = state.write_units().is_some_and(|units| units.tokens >= admission::WRITE_UNIT);
    units && sums(requests).iter().all(|(limit, sum)| state.limits.get(limit).is_some_and(|of| of.tokens >= *sum))
}

/// What the requests ask for together.
fn sums(requests: &[Amounts<'static>]) -> Amounts<'static> {
    let mut sums = Amounts::new();
    for (limit, amount) in requests.iter().flatten() {
        match sums.get_mut(limit) {
            Some(sum) => *sum = Millitokens::new(sum.get().saturating_add(amount.get())),
            None => drop(sums.insert(limit.clone(), *amount)),
        }
    }
    sums
}

impl Writer {
    /// Takes tokens for some requests, and replies to each.
    async fn take(&self, mut requests: Vec<TakeRequest>) {
        let mut is_fresh = false;
        for _ in 0..ATTEMPTS {
            requests.retain(|request| !request.reply.is_closed());
            if requests.is_empty() {
                return;
            }
            let step = self.try_take(&mut requests, &mut is_fresh).await;
            match step {
                Ok(()) => {}
                Err(Stop::Busy(error)) => return reply_all(requests, || Reply::Busy(error.clone())),
                Err(Stop::Moved) => return reply_all(requests, || Reply::Moved),
                Err(Stop::Failed(error)) => return reply_all(requests, || Reply::Failed(error.clone())),
            }
        }
        let error = Unavailable::new(Contended);
        reply_all(requests, || Reply::Busy(error.clone()));
    }

    /// Makes the next call for the requests. Removes those that it replies to.
    async fn try_take(&self, requests: &mut Vec<TakeRequest>, is_fresh: &mut bool) -> Result<(), Stop> {
        let now = self.core.now();
        let seen = self.bucket.seen(self.shard);
        let amounts: Vec<_> = requests.iter().map(|request| request.amounts.clone()).collect();
        let id = self.core.operation_id();
        let call = next_call(seen.as_deref(), &amounts, *is_fresh, now);
        let is_speculative = call == Call::Speculate;
        let (written, is_granted) = match call {
            Call::Speculate => {
                let sums = sums(&amounts);
                let write = self.core.speculative_write(&sums.keys().cloned().collect::<Vec<_>>());
                let amounts: Vec<_> = sums.into_values().collect();
                let operation = operation(&id, requests.len(), now);
                (self.core.acquires.speculate(&self.key, &write, &amounts, operation).await, vec![true; requests.len()])
            }
            Call::Take(take, outcomes) => {
                // A take is planned from an item only.
                let Some((seen, state)) = seen.as_deref().and_then(|seen| Some((seen, seen.plain()?))) else {
                    return Ok(());
                };
                if self.resolve_missing(requests, &outcomes).await? {
                    return Ok(());
                }
                let Some(expires) = self.expiry(seen, state, now).await? else { return Ok(()) };
                let is_granted: Vec<_> = outcomes.iter().map(|outcome| *outcome == Outcome::Granted).collect();
                let count = is_granted.iter().filter(|is_granted| **is_granted).count();
                let operation = operation(&id, count, now);
                (self.core.acquires.take(&self.key, &seen.item, state, &take, expires, operation).await, is_granted)
            }
            Call::None(outcomes) => {
                if self.resolve_missing(requests, &outcomes).await? {
                    return Ok(());
                }
                let decided_by = if *is_fresh { DecidedBy::Store } else { DecidedBy::Cache };
                deny(requests, outcomes, decided_by);
                return Ok(());
            }
        };
        *is_fresh = true;
        match written {
            Ok(Written::Applied(item)) => self.grant(requests, &is_granted, item, now),
            Ok(Written::Refused(Some(item))) => {
                let seen = self.bucket.observe(self.shard, item, now);
                // A refill asks more of the item than a speculative write does.
                return if is_speculative { self.obstacle(&seen) } else { Ok(()) };
            }
            Ok(Written::Refused(None)) => {
                self.bucket.forget(self.shard);
                return self.create(requests, now).await;
            }
            Err(WriteError::Throttled(error)) => return Err(Stop::Busy(Unavailable::new(error))),
            Err(WriteError::NotWritten(error)) => return Err(Stop::failed(error)),
            Err(WriteError::Lost(error)) => {
                if let Some(item) = self.find(&id).await {
                    self.grant(requests, &is_granted, item, now);
                } else {
                    // It may have been written. To write it again could charge twice.
                    let error = AcquireError::from(Unavailable::new(error));
                    for request in select(requests, &is_granted) {
                        drop(request.reply.send(Reply::Failed(error.clone())));
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands out what a write has taken.
    fn grant(&self, requests: &mut Vec<TakeRequest>, is_granted: &[bool], item: BucketItem, now: EpochMillis) {
        let seen = self.bucket.observe(self.shard, item, now);
        for TakeRequest { amounts, reply } in select(requests, is_granted) {
            let grant = Grant::new(&self.core, &self.bucket, self.shard, amounts, seen.item.parent.clone());
            // If the caller has gone away, the grant gives its tokens back.
            drop(reply.send(Reply::Granted(grant)));
        }
    }

    /// Reads the item of a write whose response was lost. Returns it if the write has happened; `None` if it has not, or
    /// if that cannot be known, because another writer of this crate has left its id since.
    async fn find(&self, id: &str) -> Option<BucketItem> {
        for _ in 0..FIND_ATTEMPTS {
            match self.core.acquires.find(&self.key).await {
                Ok(item) => return item.filter(|item| item.operation.as_deref() == Some(id)),
                Err(error) => tracing::warn!(error = %error, "a write's outcome could not be read"),
            }
        }
        None
    }

    /// Returns why the speculative write was refused if the refill of a plain bucket cannot help.
    fn obstacle(&self, seen: &Seen) -> Result<(), Stop> {
        let item = &seen.item;
        let unsupported = |attribute: &str| Err(Stop::Failed(self.unsupported(attribute)));
        if item.is_disabled {
            return Err(Stop::Failed(self.disabled()));
        }
        if item.bypass_until.is_some() {
            return unsupported("bypass");
        }
        if item.is_soft {
            return unsupported("soft");
        }
        if item.valid_until.is_some_and(|until| until > 0) {
            return unsupported("vu");
        }
        match &item.image {
            BucketImage::Plain(_) | BucketImage::Absent => Ok(()),
            BucketImage::Unfamiliar(reason) => unsupported(match reason {
                Unfamiliar::Schedule => "sched",
                Unfamiliar::Quota => "a quota",
                Unfamiliar::NoRefill => "a limit that refills nothing",
                Unfamiliar::SwitchedOff => "disabled",
                Unfamiliar::Incomplete => "an incomplete limit",
                Unfamiliar::OutOfRange => "a number out of range",
                Unfamiliar::AwaitsClient => "vu",
            }),
        }
    }

    /// Resolves limits that the shard lacks: adds them if they are configured, and fails their requests if not. Returns
    /// whether anything was done.
    async fn resolve_missing(
        &self,
        requests: &mut Vec<TakeRequest>,
        outcomes: &[Outcome<'static>],
    ) -> Result<bool, Stop> {
        let Some(missing) = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Missing(limit) => Some(limit),
            _ => None,
        }) else {
            return Ok(false);
        };
        let configured = self.core.configurations.refresh(&self.bucket.name).await.map_err(Stop::failed)?;
        let terms = configured.configuration.as_ref().and_then(|of| of.limits.get(missing).copied());
        let seen = self.bucket.seen(self.shard);
        if let (Some(terms), Some(state)) = (terms, seen.as_deref().and_then(Seen::plain)) {
            let tokens = terms.share(missing, state.shards).capacity;
            let added = [(missing.clone(), (terms, tokens))].into();
            self.align(state, Alignment { terms: BTreeMap::new(), added, expiry: None }).await?;
        } else {
            let is_unknown: Vec<_> = requests.iter().map(|request| request.amounts.contains_key(missing)).collect();
            let error = self.unknown(missing);
            for request in select(requests, &is_unknown) {
                drop(request.reply.send(Reply::Failed(error.clone())));
            }
        }
        Ok(true)
    }

    /// Returns the expiry that a refill writes; `None` if the item was brought in line with its configuration first, so
    /// that it must be looked at again.
    async fn expiry(
        &self,
        seen: &Seen,
        state: &BucketState<'static>,
        now: EpochMillis,
    ) -> Result<Option<Option<i64>>, Stop> {
        let name = &self.bucket.name;
        let mut configured = self.core.configurations.get(name).await.map_err(Stop::failed)?;
        let is_settled = |of: &tidegate_aws::configurations::Configured| {
            of.configuration.as_ref().is_some_and(|of| !of.is_disabled && changed_terms(state, &of.limits).is_empty())
        };
        if !is_settled(&configured) {
            configured = self.core.configurations.refresh(name).await.map_err(Stop::failed)?;
        }
        let Some(configuration) = &configured.configuration else { return Err(Stop::Failed(self.not_configured())) };
        if configuration.is_disabled {
            return Err(Stop::Failed(self.disabled()));
        }
        let changed = changed_terms(state, &configuration.limits);
        if !changed.is_empty() && seen.item.valid_until.is_none() {
            self.align(state, Alignment { terms: changed, added: BTreeMap::new(), expiry: None }).await?;
            return Ok(None);
        }
        Ok(Some(configuration.expires(now)))
    }

    /// Writes what is configured to the item, and looks at it again.
    async fn align(&self, state: &BucketState<'static>, alignment: Alignment<'static>) -> Result<(), Stop> {
        self.core.buckets.align(&self.key, state, &alignment).await.map_err(Stop::failed)?;
        let now = self.core.now();
        match self.core.acquires.find(&self.key).await.map_err(Stop::failed)? {
            Some(item) => drop(self.bucket.observe(self.shard, item, now)),
            None => self.bucket.forget(self.shard),
        }
        Ok(())
    }

    /// Creates the shard, and takes for the requests that a new one grants.
    async fn create(&self, requests: &mut Vec<TakeRequest>, now: EpochMillis) -> Result<(), Stop> {
        if self.shard != Shard::ZERO {
            return self.fill_shards().await;
        }
        // What is remembered may be older than a change of the limits.
        let configured = self.core.configurations.refresh(&self.bucket.name).await.map_err(Stop::failed)?;
        let Some(configuration) = &configured.configuration else { return Err(Stop::Failed(self.not_configured())) };
        if configuration.is_disabled {
            return Err(Stop::Failed(self.disabled()));
        }
        if let Some(attribute) = &configuration.unsupported {
            return Err(Stop::Failed(self.unsupported(attribute)));
        }
        let state = full(&configuration.limits, configuration.expires(now), now);
        let amounts: Vec<_> = requests.iter().map(|request| request.amounts.clone()).collect();
        let decision = admission::decide(&state, &amounts, now);
        let unknown = decision.outcomes.iter().map(|outcome| match outcome {
            Outcome::Missing(limit) => Some(self.unknown(limit)),
            _ => None,
        });
        let unknown: Vec<_> = unknown.collect();
        if unknown.iter().any(Option::is_some) {
            let mut unknown = unknown.into_iter();
            requests.retain_mut(|request| match unknown.next().flatten() {
                Some(error) => {
                    let (closed, _) = oneshot::channel();
                    drop(std::mem::replace(&mut request.reply, closed).send(Reply::Failed(error)));
                    false
                }
                None => true,
            });
            return Ok(());
        }
        let Some(take) = decision.take else {
            deny(requests, decision.outcomes, DecidedBy::Store);
            return Ok(());
        };
        let is_granted: Vec<_> = decision.outcomes.iter().map(|outcome| *outcome == Outcome::Granted).collect();
        let count = is_granted.iter().filter(|is_granted| **is_granted).count();
        let id = self.core.operation_id();
        let state = take.applied_to(state);
        match self.core.acquires.create(&self.key, &state, &configured, operation(&id, count, now)).await {
            Ok(Written::Applied(item)) => self.grant(requests, &is_granted, item, now),
            // Another client was faster.
            Ok(Written::Refused(item)) => {
                if let Some(item) = item {
                    self.bucket.observe(self.shard, item, now);
                }
            }
            Err(WriteError::Throttled(error)) => return Err(Stop::Busy(Unavailable::new(error))),
            Err(WriteError::NotWritten(error)) => return Err(Stop::failed(error)),
            Err(WriteError::Lost(error)) => match self.find(&id).await {
                Some(item) => self.grant(requests, &is_granted, item, now),
                None => return Err(Stop::failed(error)),
            },
        }
        Ok(())
    }

    /// Creates the shards that are missing. Each takes a part of the tokens of another one, so no token is created.
    async fn fill_shards(&self) -> Result<(), Stop> {
        let Some(count) = ShardCount::new(self.bucket.count()) else { return Err(Stop::Moved) };
        let shards = self.read_shards(count).await?;
        let Some(zero) = shards.zero() else {
            self.bucket.forget(Shard::ZERO);
            return Err(Stop::Moved);
        };
        let count = count.max(zero.shards);
        if let Some(plan) = split::plan(&shards.states, count) {
            self.core.buckets.increase_shards(&self.key, &shards, &plan).await.map_err(Stop::failed)?;
        }
        Ok(())
    }

    async fn read_shards(&self, count: ShardCount) -> Result<Shards, Stop> {
        let read = self.core.buckets.read(&self.key, 0..count.get(), Consistency::Strong).await;
        let shards = read.map_err(Stop::failed)?;
        if shards.unfamiliar.is_empty() {
            Ok(shards)
        } else {
            Err(Stop::Failed(self.unsupported("a shard with rules of its own")))
        }
    }

    /// Writes what callers have given back, or have taken beyond their grants.
    async fn give(&self, requests: Vec<GiveRequest>) {
        let mut sums: BTreeMap<Limit<'static>, i64> = BTreeMap::new();
        for (limit, change) in requests.iter().flat_map(|request| &request.changes) {
            let sum = sums.entry(limit.clone()).or_default();
            *sum = sum.saturating_add(*change);
        }
        sums.retain(|_, sum| *sum != 0);
        let written = if sums.is_empty() { Ok(()) } else { self.adjust(sums).await };
        if let Err(error) = &written {
            tracing::warn!(bucket = ?self.key, error = %error, "an adjustment may not have been written");
        }
        for reply in requests.into_iter().filter_map(|request| request.reply) {
            drop(reply.send(written.clone()));
        }
    }

    async fn adjust(&self, mut sums: BTreeMap<Limit<'static>, i64>) -> Result<(), Unavailable> {
        for attempt in 1..=ATTEMPTS {
            let now = self.core.now();
            let Some(seen) = self.bucket.seen(self.shard) else {
                match self.core.acquires.find(&self.key).await.map_err(Unavailable::new)? {
                    Some(item) => drop(self.bucket.observe(self.shard, item, now)),
                    // The bucket has expired, and is full when it is created again.
                    None => return Ok(()),
                }
                continue;
            };
            if let Some(state) = seen.item.image.plain() {
                sums.retain(|limit, _| state.limits.contains_key(limit));
            }
            if sums.is_empty() {
                return Ok(());
            }
            let adjustments: Vec<_> = sums.iter().map(|(limit, sum)| adjustment(&seen, limit, *sum)).collect();
            let id = self.core.operation_id();
            match self.core.acquires.adjust(&self.key, &adjustments, operation(&id, 1, now)).await {
                Ok(Written::Applied(item)) => {
                    self.bucket.observe(self.shard, item, now);
                    return Ok(());
                }
                Ok(Written::Refused(Some(item))) => drop(self.bucket.observe(self.shard, item, now)),
                Ok(Written::Refused(None)) => {
                    self.bucket.forget(self.shard);
                    return Ok(());
                }
                Err(WriteError::Throttled(_)) => self.core.back_off(attempt).await,
                Err(WriteError::NotWritten(error)) => return Err(Unavailable::new(error)),
                Err(WriteError::Lost(error)) => match self.find(&id).await {
                    Some(item) => {
                        self.bucket.observe(self.shard, item, now);
                        return Ok(());
                    }
                    // To write it again could charge twice, or create tokens.
                    None => return Err(Unavailable::new(error)),
                },
            }
        }
        Err(Unavailable::new(Contended))
    }

    fn disabled(&self) -> AcquireError {
        let Name { entity, resource } = &self.bucket.name;
        AcquireError::Disabled { entity: entity.to_string(), resource: resource.to_string() }
    }

    fn not_configured(&self) -> AcquireError {
        let Name { entity, resource } = &self.bucket.name;
        AcquireError::NotConfigured { entity: entity.to_string(), resource: resource.to_string() }
    }

    fn unknown(&self, limit: &Limit<'_>) -> AcquireError {
        let Name { entity, resource } = &self.bucket.name;
        AcquireError::UnknownLimit {
            limit: limit.to_string(),
            entity: entity.to_string(),
            resource: resource.to_string(),
        }
    }

    fn unsupported(&self, attribute: &str) -> AcquireError {
        let Name { entity, resource } = &self.bucket.name;
        AcquireError::Unsupported {
            attribute: attribute.to_owned(),
            entity: entity.to_string(),
            resource: resource.to_string(),
        }
    }
}

/// Why no further attempt is made for some requests.
enum Stop {
    Busy(Unavailable),
    Moved,
    Failed(AcquireError),
}

impl Stop {
    fn failed(error: StoreError) -> Self {
        Self::Failed(Unavailable::new(error).into())
    }
}

/// Other writers were faster, again and again.
#[derive(Debug, thiserror::Error)]
#[error("other clients changed the bucket during each of {ATTEMPTS} attempts")]
struct Contended;

pub(crate) fn operation(id: &str, acquires: usize, now: EpochMillis) -> Operation<'_> {
    Operation { id, acquires: u32::try_from(acquires).unwrap_or(u32::MAX), now }
}

/// The limits of a state whose terms are not those configured.
fn changed_terms(
    state: &BucketState<'static>,
    configured: &BTreeMap<Limit<'static>, Terms>,
) -> BTreeMap<Limit<'static>, Terms> {
    let changed =
        configured.iter().filter(|(limit, terms)| state.limits.get(*limit).is_some_and(|of| of.terms != **terms));
    changed.map(|(limit, terms)| (limit.clone(), *terms)).collect()
}

/// A bucket that is created at `now`.
fn full(limits: &BTreeMap<Limit<'static>, Terms>, expires: Option<i64>, now: EpochMillis) -> BucketState<'static> {
    let full = |terms: &Terms| LimitState { tokens: terms.capacity, consumed: Millitokens::default(), terms: *terms };
    let mut limits: BTreeMap<_, _> = limits.iter().map(|(limit, terms)| (limit.clone(), full(terms))).collect();
    let write_units = Limit::new(Limit::WRITE_UNITS).map(|limit| (limit, full(&Terms::WRITE_UNITS)));
    limits.extend(write_units);
    BucketState { last_refill: now, shards: ShardCount::ONE, expires, bytes: 0, limits }
}

/// The change of one limit. Tokens that are given back fill the shard up to its share, and no further.
fn adjustment(seen: &Seen, limit: &Limit<'static>, taken: i64) -> Adjustment<'static> {
    let limit = limit.clone();
    let state = seen.plain().and_then(|state| Some((state, state.limits.get(&limit)?)));
    let Some((state, of)) = state.filter(|_| taken < 0) else {
        return Adjustment { limit, tokens: -taken, consumed: taken, at_most: None, at_least: None };
    };
    let (share, stored) = (state.share(&limit, of).capacity.get(), of.tokens.get());
    let room = share.saturating_sub(stored).max(0);
    let tokens = room.min(-taken);
    let is_clipped = tokens < -taken;
    Adjustment {
        limit,
        tokens,
        consumed: taken,
        at_most: Some(share.saturating_sub(tokens).max(stored)),
        // Less stored would leave more room.
        at_least: is_clipped.then_some(stored),
    }
}

/// Takes the requests out for which `is_selected` is true.
fn select(requests: &mut Vec<TakeRequest>, is_selected: &[bool]) -> Vec<TakeRequest> {
    let mut is_selected = is_selected.iter();
    requests.extract_if(.., |_| is_selected.next() == Some(&true)).collect()
}

fn reply_all(requests: Vec<TakeRequest>, reply: impl Fn() -> Reply) {
    for request in requests {
        drop(request.reply.send(reply()));
    }
}

/// Denies all requests. Where only write units are short, the shard is busy.
fn deny(requests: &mut Vec<TakeRequest>, outcomes: Vec<Outcome<'static>>, decided_by: DecidedBy) {
    for (request, outcome) in requests.drain(..).zip(outcomes) {
        let Outcome::Denied(shortages) = outcome else { continue };
        let is_busy = shortages.iter().all(|shortage| shortage.limit.is_write_units());
        let reply =
            if is_busy { Reply::Busy(Unavailable::new(OutOfWriteUnits)) } else { Reply::Denied(shortages, decided_by) };
        drop(request.reply.send(reply));
    }
}

/// A partition takes 1,000 write units a second.
///
/// AWS: [partitions](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html).
#[derive(Debug, thiserror::Error)]
#[error("the bucket's partition takes no more writes for the moment")]
struct OutOfWriteUnits;
