//! What a process knows of the slots of an account. It saves calls and decides nothing: every write has its condition.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tidegate_domain::reservation::Occupancy;

use crate::token_limits::LIMIT_LIFETIME;

/// How many slots are drawn at random before the free ones are listed.
const DRAWS: u32 = 8;

/// The slots of an account.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: Mutex<State>,
    /// One caller counts tokens; the others wait and use its count.
    counting: tokio::sync::Mutex<Option<(u64, Arc<Occupancy>)>>,
    counts: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Slots that were held when they were seen last, with their expiry in epoch seconds.
    held: BTreeMap<u32, i64>,
    /// Slots that callers of this process are about to take.
    claimed: BTreeSet<u32>,
    usable: Option<Usable>,
}

/// How many slots of a limit are usable.
#[derive(Clone, Copy, Debug)]
struct Usable {
    limit: u32,
    slots: u32,
    /// As [`Moment::elapsed`](crate::clock::Moment::elapsed).
    read_at: Duration,
}

impl Known {
    /// Returns how many slots of the limit are usable, if that was read in the last seconds.
    pub(super) fn usable(&self, limit: u32, elapsed: Duration) -> Option<u32> {
        let fresh = |of: &Usable| of.limit == limit && elapsed.saturating_sub(of.read_at) < LIMIT_LIFETIME;
        self.state().usable.filter(fresh).map(|of| of.slots)
    }

    /// Returns from which slot on to read, to learn how many are usable: no more were usable last time.
    pub(super) fn from(&self, limit: u32) -> u32 {
        self.state().usable.map_or(limit, |of| of.slots.min(limit))
    }

    /// Chooses a slot that is not known to be held, at random, so that processes rarely choose the same one. No other caller
    /// of this process chooses it before [`settle`](Self::settle).
    pub(super) fn claim(&self, usable: u32, now: i64) -> Option<u32> {
        let mut state = self.state();
        let is_held = |slot: &u32| state.held.get(slot).is_some_and(|expires| *expires > now);
        let is_free = |slot: &u32| !is_held(slot) && !state.claimed.contains(slot);
        let drawn = (0..DRAWS).filter(|_| usable > 0).map(|_| fastrand::u32(0..usable)).find(is_free);
        let slot = drawn.or_else(|| fastrand::choice((0..usable).filter(is_free).collect::<Vec<_>>()))?;
        state.claimed.insert(slot);
        Some(slot)
    }

    /// Ends a claim. The slot is held until `expires`, in epoch seconds, or may be free.
    pub(super) fn settle(&self, slot: u32, expires: Option<i64>) {
        let mut state = self.state();
        state.claimed.remove(&slot);
        match expires {
            Some(expires) => state.held.insert(slot, expires),
            None => state.held.remove(&slot),
        };
    }

    /// Remembers how many slots of a limit are usable.
    pub(super) fn set_usable(&self, limit: u32, slots: u32, elapsed: Duration) {
        self.state().usable = Some(Usable { limit, slots, read_at: elapsed });
    }

    /// Counts the live tokens, and shows the slots from `from` on. It makes a call, or waits for a call of another caller
    /// that begins after this one.
    pub(super) async fn count<E>(
        &self,
        from: u32,
        count: impl Future<Output = Result<Occupancy, E>>,
    ) -> Result<Arc<Occupancy>, E> {
        let first = self.counts.load(Ordering::Acquire);
        let mut last = self.counting.lock().await;
        if let Some((number, occupancy)) = &*last
            && *number >= first
            && occupancy.from <= from
        {
            return Ok(Arc::clone(occupancy));
        }
        let number = self.counts.fetch_add(1, Ordering::AcqRel);
        let occupancy = Arc::new(count.await?);
        *last = Some((number, Arc::clone(&occupancy)));
        let mut state = self.state();
        drop(state.held.split_off(&from));
        state.held.extend(&occupancy.slots);
        Ok(occupancy)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
