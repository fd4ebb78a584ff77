//! How a shard comes to have the limits that are configured: it is created, completed, and brought in line.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_aws::{
    acquires::{Renewal, SeenShard},
    bucket_item::BucketItem,
    buckets::Consistency,
    configurations::Configured,
};
use tidegate_domain::{
    admission::{self, Amounts, Outcome},
    bucket::{Limit, Shard},
    repair::Alignment,
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms, Unfamiliar},
    time::EpochMillis,
    tokens::Millitokens,
};

use crate::{
    bucket::{Bucket, Seen, plain},
    clock::Moment,
    error::{AcquireError, DecidedBy},
    lane::{Progress, Reply, Stop, TakeRequest, Writer, deny, operation, select},
    lease::Grant,
};

impl Writer {
    /// Leaves limits out of requests to a parent that neither its item nor its configuration has. Grants the requests of
    /// which nothing is left.
    pub(crate) async fn leave_out_missing(
        &self,
        requests: &mut Vec<TakeRequest>,
        state: &BucketState<'static>,
    ) -> Result<(), Stop> {
        let is_missing = |request: &TakeRequest| {
            request.is_parent && request.amounts.keys().any(|limit| !state.limits.contains_key(limit))
        };
        if requests.iter().any(is_missing) {
            let configured = Box::pin(self.core.configurations.get(&self.bucket.name)).await.map_err(Stop::failed)?;
            let limits = configured.configuration.as_ref().map(|of| &of.limits);
            self.keep_known(requests, |limit| {
                state.limits.contains_key(limit) || limits.is_some_and(|limits| limits.contains_key(limit))
            });
        }
        Ok(())
    }

    fn keep_known(&self, requests: &mut Vec<TakeRequest>, is_known: impl Fn(&Limit<'static>) -> bool) {
        for request in requests.iter_mut().filter(|request| request.is_parent) {
            request.amounts.retain(|limit, _| is_known(limit));
        }
        let is_empty: Vec<_> = requests.iter().map(|request| request.amounts.is_empty()).collect();
        for request in select(requests, &is_empty) {
            let nothing = Grant::new(&self.core, &self.bucket, self.shard, Amounts::new(), None);
            drop(request.reply.send(Reply::Granted(nothing)));
        }
    }

    /// Resolves limits that the shard lacks: adds those that are configured, and fails the requests for the others.
    /// Returns whether anything was done.
    pub(crate) async fn resolve_missing(
        &self,
        requests: &mut Vec<TakeRequest>,
        outcomes: &[Outcome<'static>],
        seen: &Seen,
        state: &BucketState<'static>,
    ) -> Result<bool, Stop> {
        if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Missing(_))) {
            return Ok(false);
        }
        let asked = requests.iter().flat_map(|request| request.amounts.keys());
        let missing: BTreeSet<_> = asked.filter(|limit| !state.limits.contains_key(*limit)).cloned().collect();
        let configured = self.core.configurations.get_recent(&self.bucket.name).await.map_err(Stop::failed)?;
        let terms_of =
            |limit: &Limit<'static>| configured.configuration.as_ref().and_then(|of| of.limits.get(limit).copied());
        let is_unknown = |request: &TakeRequest| {
            let limit = request.amounts.keys().find(|limit| missing.contains(*limit) && terms_of(limit).is_none());
            limit.cloned()
        };
        let unknown: Vec<_> = requests.iter().map(is_unknown).collect();
        let selected = select(requests, &unknown.iter().map(Option::is_some).collect::<Vec<_>>());
        for (request, limit) in selected.into_iter().zip(unknown.into_iter().flatten()) {
            drop(request.reply.send(Reply::Failed(self.bucket.unknown(&limit))));
        }
        let added: BTreeMap<_, _> = missing
            .into_iter()
            .filter_map(|limit| {
                let terms = terms_of(&limit)?;
                let tokens = terms.share(&limit, state.shards).capacity;
                Some((limit, (terms, tokens)))
            })
            .collect();
        if !added.is_empty() {
            self.align(&seen.item, state, Alignment { terms: BTreeMap::new(), added, expiry: None }).await?;
        }
        Ok(true)
    }

    /// Compares an item with its configuration. Returns what a refill renews, or `None` if the item was brought in line
    /// first, so that it must be looked at again.
    ///
    /// What differs is read again before it is written, so that an old configuration is never restored.
    pub(crate) async fn renewal(
        &self,
        item: &BucketItem,
        state: &BucketState<'static>,
        moment: Moment,
    ) -> Result<Option<Renewal>, Stop> {
        let (name, cache) = (&self.bucket.name, &self.core.configurations);
        let mut configured = cache.get(name).await.map_err(Stop::failed)?;
        if !agrees(&configured, item, state) {
            let is_served = configured.configuration.is_some() && !configured.is_disabled;
            let again = if is_served { cache.refresh(name).await } else { cache.get_recent(name).await };
            configured = again.map_err(Stop::failed)?;
        }
        let Some(configuration) = &configured.configuration else {
            return Err(Stop::Failed(self.bucket.not_configured()));
        };
        if configuration.is_disabled {
            return Err(Stop::Failed(self.bucket.disabled()));
        }
        if let Some(attribute) = &configuration.unsupported {
            return Err(Stop::Failed(self.bucket.unsupported(attribute)));
        }
        self.bucket.compared(moment);
        let terms = changed_terms(state, &configuration.limits);
        if !terms.is_empty() && item.valid_until.is_none() {
            // Other functions take shard 0 for the truth.
            if self.shard != Shard::ZERO {
                let zero = Self::new(&self.core, &self.bucket, Shard::ZERO);
                zero.align_with(&configuration.limits).await?;
            }
            self.align(item, state, Alignment { terms, added: BTreeMap::new(), expiry: None }).await?;
            return Ok(None);
        }
        let owner = Some(configured.owner.clone()).filter(|owner| *owner != item.owner);
        Ok(Some(Renewal { expires: configuration.expires(moment.now), owner }))
    }

    /// Writes what is configured to the item, if it differs.
    async fn align_with(&self, limits: &BTreeMap<Limit<'static>, Terms>) -> Result<(), Stop> {
        let found = self.core.store.find(&self.key).await.map_err(Stop::failed)?;
        let Some((item, state)) = found.as_ref().and_then(|item| Some((item, plain(item)?))) else { return Ok(()) };
        let terms = changed_terms(state, limits);
        if terms.is_empty() {
            return Ok(());
        }
        self.align(item, state, Alignment { terms, added: BTreeMap::new(), expiry: None }).await
    }

    /// Writes an alignment, and looks at the item again.
    async fn align(
        &self,
        item: &BucketItem,
        state: &BucketState<'static>,
        alignment: Alignment<'static>,
    ) -> Result<(), Stop> {
        if item.valid_until.is_some() {
            // An alignment does not clamp the tokens.
            return self.settle(item, state).await;
        }
        self.core.store.align(&self.key, state, &alignment).await.map_err(Stop::failed)?;
        self.look().await
    }

    /// Refills a shard without taking tokens, which clamps them and removes a `vu` of 0.
    pub(crate) async fn settle(&self, item: &BucketItem, state: &BucketState<'static>) -> Result<(), Stop> {
        let moment = self.core.moment();
        if let Some(take) = admission::decide(state, &[Amounts::new()], moment.now).take
            && let Some(renewal) = Box::pin(self.renewal(item, state, moment)).await?
        {
            let seen = SeenShard { key: self.key.clone(), item, state, take, renewal };
            let id = self.core.operation_id();
            // Whatever becomes of it, the item is looked at again.
            drop(self.core.store.take(&seen, operation(&id, 1, moment.now)).await);
        }
        self.look().await
    }

    /// Reads the item.
    pub(crate) async fn look(&self) -> Result<(), Stop> {
        let moment = self.core.moment();
        self.remember(self.core.store.find(&self.key).await.map_err(Stop::failed)?, moment);
        Ok(())
    }

    /// Overcomes what has refused a speculative write, if a refill can help.
    pub(crate) async fn overcome(
        &self,
        item: &BucketItem,
        progress: &mut Progress,
        moment: Moment,
    ) -> Result<(), Stop> {
        let is_incomplete = item.image == BucketImage::Unfamiliar(Unfamiliar::Incomplete);
        if is_incomplete && !item.is_disabled && !progress.is_complete {
            progress.is_complete = true;
            return self.complete(moment).await;
        }
        self.bucket.obstacle(item).map_or(Ok(()), |error| Err(Stop::Failed(error)))
    }

    /// Gives an item the attributes that it lacks: older clients leave such items when they adjust a bucket that has
    /// expired.
    async fn complete(&self, moment: Moment) -> Result<(), Stop> {
        let configured = self.core.configurations.refresh(&self.bucket.name).await.map_err(Stop::failed)?;
        let mut state = self.bucket.new_state(&configured, moment.now).map_err(Stop::Failed)?;
        if self.shard != Shard::ZERO {
            // What the bucket holds is in its other shards.
            state.shards = ShardCount::new(self.bucket.count()).unwrap_or(ShardCount::ONE);
            state.limits.iter_mut().filter(|(limit, _)| !limit.is_write_units()).for_each(|(_, of)| {
                of.tokens = Millitokens::default();
            });
        }
        let id = self.core.operation_id();
        let completed = self.core.store.complete(&self.key, &state, &configured, operation(&id, 1, moment.now));
        // Whatever becomes of it, the item is looked at again.
        drop(completed.await);
        self.look().await
    }

    /// Creates the shard, and takes for the requests that a new one grants.
    pub(crate) async fn create(&self, requests: &mut Vec<TakeRequest>, moment: Moment) -> Result<(), Stop> {
        if self.shard != Shard::ZERO {
            return self.fill_shards().await;
        }
        let (name, cache) = (&self.bucket.name, &self.core.configurations);
        // What is remembered may be older than a change of the limits. That there are none is asked once a second. If the
        // table is a moment behind, the bucket is brought in line with a later refill.
        let configured = match cache.recent(name).filter(|recent| recent.configuration.is_none()) {
            Some(recent) => recent,
            None => cache.read_again(name, Consistency::Eventual).await.map_err(Stop::failed)?,
        };
        if configured.is_disabled {
            return Err(Stop::Failed(self.bucket.disabled()));
        }
        if let Some(configuration) = &configured.configuration {
            self.keep_known(requests, |limit| configuration.limits.contains_key(limit));
        } else {
            self.keep_known(requests, |_| false);
        }
        if requests.is_empty() {
            return Ok(());
        }
        let state = self.bucket.new_state(&configured, moment.now).map_err(Stop::Failed)?;
        let amounts: Vec<_> = requests.iter().map(|request| request.amounts.clone()).collect();
        let decision = admission::decide(&state, &amounts, moment.now);
        let unknown: Vec<_> = decision.outcomes.iter().map(|outcome| matches!(outcome, Outcome::Missing(_))).collect();
        if unknown.contains(&true) {
            let missing = decision.outcomes.into_iter().filter_map(|outcome| match outcome {
                Outcome::Missing(limit) => Some(limit),
                _ => None,
            });
            for (request, limit) in select(requests, &unknown).into_iter().zip(missing) {
                drop(request.reply.send(Reply::Failed(self.bucket.unknown(&limit))));
            }
            return Ok(());
        }
        let Some(take) = decision.take else {
            deny(requests, decision.outcomes, DecidedBy::Store, state.shards.get());
            return Ok(());
        };
        let is_granted: Vec<_> = decision.outcomes.iter().map(|outcome| *outcome == Outcome::Granted).collect();
        let count = is_granted.iter().filter(|is_granted| **is_granted).count();
        let id = self.core.operation_id();
        let state = take.applied_to(state);
        let operation = operation(&id, count, moment.now);
        let created = self.core.store.create(&self.key, &state, &configured, operation).await;
        Box::pin(self.finish(requests, &is_granted, created, &id, moment)).await
    }
}

impl Bucket {
    /// The bucket that the configuration describes: full, and with one shard.
    pub(crate) fn new_state(
        &self,
        configured: &Configured,
        now: EpochMillis,
    ) -> Result<BucketState<'static>, AcquireError> {
        let configuration = configured.configuration.as_ref().ok_or_else(|| self.not_configured())?;
        if configuration.is_disabled {
            return Err(self.disabled());
        }
        if let Some(attribute) = &configuration.unsupported {
            return Err(self.unsupported(attribute));
        }
        let full =
            |terms: &Terms| LimitState { tokens: terms.capacity, consumed: Millitokens::default(), terms: *terms };
        let mut limits: BTreeMap<_, _> =
            configuration.limits.iter().map(|(limit, terms)| (limit.clone(), full(terms))).collect();
        limits.extend(Limit::new(Limit::WRITE_UNITS).map(|limit| (limit, full(&Terms::WRITE_UNITS))));
        let expires = configuration.expires(now);
        Ok(BucketState { last_refill: now, shards: ShardCount::ONE, expires, bytes: 0, limits })
    }
}

/// Whether an item has the terms and the parent that are configured.
fn agrees(configured: &Configured, item: &BucketItem, state: &BucketState<'static>) -> bool {
    let is_plain = configured
        .configuration
        .as_ref()
        .is_some_and(|of| !of.is_disabled && of.unsupported.is_none() && changed_terms(state, &of.limits).is_empty());
    is_plain && configured.owner == item.owner
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
