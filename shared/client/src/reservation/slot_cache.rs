//! Caches which slots of an account were held. It only saves calls: each write has its own condition, so a stale entry cannot
//! exceed the limit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_domain::reservation::Occupancy;
use tokio::sync::{Notify, futures::Notified};

use crate::{limit_cache::LIMIT_LIFETIME, shared_call::SharedCall, table_error::TableError};

/// How many slots are drawn at random before the free ones are listed.
const DRAWS: u32 = 8;

/// How long callers that wait share the denial of another caller.
const DENIAL_LIFETIME: Duration = Duration::from_secs(1);

/// The slots of an account.
#[derive(Debug, Default)]
pub(super) struct SlotCache {
    state: Mutex<State>,
    counting: SharedCall<Result<Arc<Occupancy>, TableError>>,
    /// Wakes callers that wait for the end of a claim.
    claim_ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Slots that were held when they were seen last, with their expiry in epoch seconds.
    held: BTreeMap<u32, i64>,
    /// Slots that callers of this process are about to take.
    claimed: BTreeSet<u32>,
    usable: Option<Usable>,
    denial: Option<Denial>,
    /// How many takes have failed, and the last error.
    failures: u64,
    failure: Option<TableError>,
}

/// How many slots of a limit are usable.
#[derive(Clone, Copy, Debug)]
struct Usable {
    limit: u32,
    slots: u32,
    /// As [`Moment::elapsed`](crate::clock::Moment::elapsed).
    read_at: Duration,
}

/// A count that has reached the limit.
#[derive(Clone, Copy, Debug)]
struct Denial {
    limit: u32,
    held: u64,
    /// As [`Moment::elapsed`](crate::clock::Moment::elapsed).
    counted_at: Duration,
}

/// A slot that no other caller of this process tries to take.
#[derive(Debug)]
pub(super) struct Claim {
    known: Arc<SlotCache>,
    pub(super) slot: u32,
}

impl SlotCache {
    /// Returns how many slots of the limit are usable, if that was read in the last seconds.
    pub(super) fn usable(&self, limit: u32, elapsed: Duration) -> Option<u32> {
        let fresh = |of: &Usable| of.limit == limit && elapsed.saturating_sub(of.read_at) < LIMIT_LIFETIME;
        self.state().usable.filter(fresh).map(|of| of.slots)
    }

    /// Returns where the next count starts: the last known bound. After a denial, a count of all tokens is needed anyway.
    pub(super) fn count_start(&self, limit: u32) -> u32 {
        let state = self.state();
        let is_denied = state.denial.is_some_and(|denial| denial.limit == limit);
        if is_denied { 0 } else { state.usable.map_or(limit, |of| of.slots.min(limit)) }
    }

    /// Remembers how many slots of a limit are usable.
    pub(super) fn set_usable(&self, limit: u32, slots: u32, elapsed: Duration) {
        self.state().usable = Some(Usable { limit, slots, read_at: elapsed });
    }

    /// Returns how many tokens were held, if a count of the last second has reached the limit.
    pub(super) fn denied(&self, limit: u32, elapsed: Duration) -> Option<u64> {
        let fresh = |of: &Denial| of.limit == limit && elapsed.saturating_sub(of.counted_at) < DENIAL_LIFETIME;
        self.state().denial.filter(fresh).map(|of| of.held)
    }

    /// Remembers a count that has reached the limit.
    pub(super) fn set_denial(&self, limit: u32, held: u64, elapsed: Duration) {
        self.state().denial = Some(Denial { limit, held, counted_at: elapsed });
    }

    /// Remembers that a count has not reached the limit.
    pub(super) fn clear_denial(&self) {
        self.state().denial = None;
    }

    /// Chooses at random a slot that the cache does not show as held, and that no other caller of this process tries.
    pub(super) fn claim(self: &Arc<Self>, usable: u32, now: i64) -> Option<Claim> {
        let mut state = self.state();
        let is_held = |slot: &u32| state.held.get(slot).is_some_and(|expires| *expires > now);
        let is_free = |slot: &u32| !is_held(slot) && !state.claimed.contains(slot);
        let drawn = (0..DRAWS).filter(|_| usable > 0).map(|_| fastrand::u32(0..usable)).find(is_free);
        let slot = drawn.or_else(|| fastrand::choice((0..usable).filter(is_free).collect::<Vec<_>>()))?;
        state.claimed.insert(slot);
        Some(Claim { known: Arc::clone(self), slot })
    }

    /// Returns whether callers of this process are about to take slots.
    pub(super) fn has_claims(&self) -> bool {
        !self.state().claimed.is_empty()
    }

    /// Returns a future that is ready after the next end of a claim.
    pub(super) fn claim_ended(&self) -> Notified<'_> {
        self.claim_ended.notified()
    }

    /// Returns how many takes have failed.
    pub(super) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Returns the last error of a take, if more takes than `failures` have failed. Callers that wait for a claim share its error.
    pub(super) fn failure_since(&self, failures: u64) -> Option<TableError> {
        let state = self.state();
        state.failure.clone().filter(|_| state.failures > failures)
    }

    /// Remembers that a slot is held until a moment in epoch seconds.
    pub(super) fn set_held(&self, slot: u32, expires: i64) {
        self.state().held.insert(slot, expires);
    }

    /// Remembers that a slot is free.
    pub(super) fn set_free(&self, slot: u32) {
        let mut state = self.state();
        state.held.remove(&slot);
        state.denial = None;
    }

    /// Counts live tokens, including slots from `from` on. Callers share their counts.
    pub(super) async fn count(
        &self,
        from: u32,
        count: impl Future<Output = Result<Occupancy, TableError>>,
    ) -> Result<Arc<Occupancy>, TableError> {
        let is_enough = |counted: &Result<Arc<Occupancy>, _>| counted.as_ref().map_or(true, |all| all.from <= from);
        let count = async {
            let occupancy = Arc::new(count.await?);
            let mut state = self.state();
            drop(state.held.split_off(&from));
            state.held.extend(&occupancy.slots);
            Ok(occupancy)
        };
        self.counting.get(is_enough, count).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Remembers why the slot could not be taken.
    pub(super) fn fail(&self, error: TableError) {
        let mut state = self.known.state();
        state.failures += 1;
        state.failure = Some(error);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.known.state().claimed.remove(&self.slot);
        self.known.claim_ended.notify_waiters();
    }
}
