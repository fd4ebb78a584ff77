//! Buckets in this process, for tests of applications. Each has one shard and all its write units.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tidegate_aws::{
    acquires::{Adjustment, Operation, SeenShard, SpeculativeWrite, Written},
    bucket_item::{BucketItem, Owner},
    buckets::{Consistency, Shards, WriteOutcome},
    configurations::Configured,
};
use tidegate_domain::{
    bucket::{BucketKey, Entity, Limit, Namespace, Resource, Shard},
    configuration::{self, LevelConfiguration},
    repair::Alignment,
    split::Plan,
    state::{BucketImage, BucketState, Terms},
    tokens::Millitokens,
};

/// Buckets that all have the same limits. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    limits: BTreeMap<Limit<'static>, Terms>,
    items: Arc<Mutex<HashMap<BucketKey<'static>, BucketItem>>>,
}

impl Memory {
    pub(crate) fn new(limits: BTreeMap<Limit<'static>, Terms>) -> Self {
        Self { limits, items: Arc::default() }
    }

    pub(crate) fn speculate(
        &self,
        key: &BucketKey<'_>,
        write: &SpeculativeWrite,
        amounts: &[Millitokens],
        operation: Operation<'_>,
    ) -> Written {
        self.change(key, operation, |state| {
            let taken = || write.limits().iter().zip(amounts);
            let is_stored =
                taken().all(|(limit, amount)| state.limits.get(limit).is_some_and(|of| of.tokens >= *amount));
            if !is_stored || state.is_expired(operation.now) {
                return false;
            }
            taken().for_each(|(limit, amount)| add(state, limit, -amount.get(), amount.get()));
            true
        })
    }

    pub(crate) fn take(&self, seen: &SeenShard<'_, '_>, operation: Operation<'_>) -> Written {
        self.change(&seen.key, operation, |state| {
            if state != seen.state {
                return false;
            }
            *state = seen.take.applied_to(state.clone());
            state.expires = seen.renewal.expires;
            if let Some(units) = state.limits.get_mut(Limit::WRITE_UNITS) {
                units.tokens = units.terms.capacity;
            }
            true
        })
    }

    pub(crate) fn create(
        &self,
        key: &BucketKey<'_>,
        state: &BucketState<'static>,
        _: &Configured,
        operation: Operation<'_>,
    ) -> Written {
        let mut items = self.items();
        if let Some(item) = items.get(&key.clone().into_owned()) {
            return Written::Refused(Some(item.clone()));
        }
        let item = BucketItem {
            image: BucketImage::Plain(state.clone()),
            owner: Owner::default(),
            is_disabled: false,
            is_soft: false,
            valid_until: None,
            bypass_until: None,
            operation: Some(operation.id.to_owned()),
        };
        items.insert(key.clone().into_owned(), item.clone());
        Written::Applied(Some(item))
    }

    pub(crate) fn adjust(
        &self,
        key: &BucketKey<'_>,
        adjustments: &[Adjustment<'_>],
        operation: Operation<'_>,
    ) -> Written {
        self.change(key, operation, |state| {
            let holds = |Adjustment { limit, at_most, at_least, .. }: &Adjustment<'_>| {
                let stored = state.limits.get(limit.as_str()).map(|of| of.tokens.get());
                stored.is_some_and(|stored| {
                    at_most.is_none_or(|most| stored <= most) && at_least.is_none_or(|least| stored >= least)
                })
            };
            if !adjustments.iter().all(holds) {
                return false;
            }
            for of in adjustments {
                add(state, &of.limit, of.tokens, of.consumed);
            }
            true
        })
    }

    pub(crate) fn find(&self, key: &BucketKey<'_>) -> Option<BucketItem> {
        self.items().get(&key.clone().into_owned()).cloned()
    }

    pub(crate) fn find_all(&self, key: &BucketKey<'_>, shards: Range<u32>) -> BTreeMap<Shard, BucketItem> {
        shards.map(Shard::new).filter_map(|shard| Some((shard, self.find(&key.at(shard))?))).collect()
    }

    pub(crate) fn resolve(&self, _: &Namespace<'_>, _: &Entity<'_>, _: &Resource<'_>, _: Consistency) -> Configured {
        let system = LevelConfiguration { limits: self.limits.clone(), ..LevelConfiguration::default() };
        let configuration = configuration::resolve(&[None, None, None, Some(system)]);
        Configured { configuration, is_disabled: false, owner: Owner::default() }
    }

    /// Changes an item, unless `change` returns that a condition does not hold.
    fn change(
        &self,
        key: &BucketKey<'_>,
        operation: Operation<'_>,
        change: impl FnOnce(&mut BucketState<'static>) -> bool,
    ) -> Written {
        let mut items = self.items();
        let Some(item) = items.get_mut(&key.clone().into_owned()) else { return Written::Refused(None) };
        let BucketImage::Plain(state) = &mut item.image else { return Written::Refused(Some(item.clone())) };
        if !change(state) {
            return Written::Refused(Some(item.clone()));
        }
        item.operation = Some(operation.id.to_owned());
        Written::Applied(Some(item.clone()))
    }

    fn items(&self) -> MutexGuard<'_, HashMap<BucketKey<'static>, BucketItem>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writes that a table needs for several shards and for changed limits. A bucket in memory has one shard, and its
/// limits do not change, so nothing is written.
#[expect(clippy::unused_self, reason = "the methods are those of a table")]
impl Memory {
    pub(crate) fn take_together(&self, _: &[SeenShard<'_, '_>], _: Operation<'_>) -> WriteOutcome {
        WriteOutcome::Lost
    }

    pub(crate) fn complete(
        &self,
        key: &BucketKey<'_>,
        _: &BucketState<'static>,
        _: &Configured,
        _: Operation<'_>,
    ) -> Written {
        Written::Refused(self.find(key))
    }

    pub(crate) fn read(&self, _: &BucketKey<'_>, _: Range<u32>, _: Consistency) -> Shards {
        Shards::default()
    }

    pub(crate) fn align(&self, _: &BucketKey<'_>, _: &BucketState<'_>, _: &Alignment<'_>) -> WriteOutcome {
        WriteOutcome::Lost
    }

    pub(crate) fn increase_shards(&self, _: &BucketKey<'_>, _: &Shards, _: &Plan<'_>) -> WriteOutcome {
        WriteOutcome::Lost
    }
}

fn add(state: &mut BucketState<'static>, limit: &Limit<'_>, tokens: i64, consumed: i64) {
    if let Some(of) = state.limits.get_mut(limit.as_str()) {
        of.tokens = Millitokens::new(of.tokens.get().saturating_add(tokens));
        of.consumed = Millitokens::new(of.consumed.get().saturating_add(consumed));
    }
}
