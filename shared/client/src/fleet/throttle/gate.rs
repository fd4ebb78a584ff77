//! The state that all callers of a throttle share, and how they wait.

use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::select;
use quick_cache::sync::Cache;
#[cfg(feature = "capacity")]
use tidegate_domain::throttle::limit::RampStart;
use tidegate_domain::throttle::{
    self, CapacityKind, Place, Turn, Units, Usage, estimate,
    limit::{Limit, RateSteps},
};
use tokio::sync::Notify;

use super::{charge::Charge, operations::Call};
use crate::clock::Clock;

/// A caller that is not the first one asks again after this time, and lets callers before it pass that are due. So a task
/// that is not polled, for instance because its runtime has ended, stops the others for a second at most.
const RECHECK: Duration = Duration::from_secs(1);

/// How many kinds of calls have an average.
const AVERAGES: usize = 10_000;

type Rule = throttle::Throttle<Arc<Notify>>;

pub(crate) struct Gate {
    rule: Mutex<Rule>,
    /// What a call of a kind costs for each of its entries.
    averages: Cache<u64, Units>,
    clock: Clock,
    started: Duration,
}

impl Gate {
    pub(super) fn new(limit: Limit, clock: Clock) -> Self {
        let started = clock.elapsed();
        Self { rule: Mutex::new(Rule::new(limit)), averages: Cache::new(AVERAGES), clock, started }
    }

    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn limit(&self) -> Limit {
        self.rule().limit().clone()
    }

    pub(super) fn usage(&self, kind: CapacityKind) -> Usage {
        self.rule().usage(kind)
    }

    pub(super) fn set_steps(&self, steps: RateSteps) {
        let woken = self.rule().set_steps(steps, self.now());
        wake(woken);
    }

    #[cfg(feature = "capacity")]
    pub(super) fn set_ramp_start(&self, kind: CapacityKind, start: RampStart) {
        let woken = self.rule().set_ramp_start(kind, start, self.now());
        wake(woken);
    }

    /// Waits until the units may be used, and charges them.
    pub(super) async fn charge(self: &Arc<Self>, kind: CapacityKind, units: Units) -> Charge {
        if let Some(waiting) = Waiting::enter(self, kind, units) {
            waiting.passed().await;
        }
        Charge::new(self, kind, units)
    }

    /// Charges the units if they may be used now.
    pub(super) fn charge_now(self: &Arc<Self>, kind: CapacityKind, units: Units) -> Option<Charge> {
        let passes = self.rule().take(kind, units, self.now());
        passes.then(|| Charge::new(self, kind, units))
    }

    /// Corrects a charge to what was consumed.
    pub(super) fn settle(&self, kind: CapacityKind, charged: Units, consumed: Units) {
        let woken = self.rule().settle(kind, charged, consumed, self.now());
        wake(woken);
    }

    /// Estimates what a call costs.
    pub(super) fn estimate(&self, call: &Call) -> Units {
        estimate::cost(self.averages.get(&call.key).unwrap_or(call.first), call.entries)
    }

    /// Learns what a call has cost.
    pub(super) fn learn(&self, call: &Call, cost: Units) {
        let before = self.averages.get(&call.key);
        let average = estimate::updated(before, cost, call.entries);
        if before != Some(average) {
            self.averages.insert(call.key, average);
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.started)
    }

    fn rule(&self) -> MutexGuard<'_, Rule> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

/// A caller in the line. It leaves the line when it is dropped before it has passed.
struct Waiting<'a> {
    gate: &'a Gate,
    kind: CapacityKind,
    units: Units,
    place: Place,
    notify: Arc<Notify>,
    has_passed: bool,
}

impl<'a> Waiting<'a> {
    /// Adds a caller to the line. `None` if it does not have to wait, and is charged.
    fn enter(gate: &'a Gate, kind: CapacityKind, units: Units) -> Option<Self> {
        let mut rule = gate.rule();
        if rule.take(kind, units, gate.now()) {
            return None;
        }
        let notify = Arc::new(Notify::new());
        let place = rule.enter(kind, units, Arc::clone(&notify));
        Some(Self { gate, kind, units, place, notify, has_passed: false })
    }

    async fn passed(mut self) {
        loop {
            let now = self.gate.now();
            let (turn, woken) = self.gate.rule().turn(self.kind, self.place, now);
            wake(woken);
            let Turn::Wait(due) = turn else { break };
            let pause = due.map_or(RECHECK, |due| whole_millis(due.saturating_sub(now)));
            select(pin!(self.notify.notified()), pin!(self.gate.clock.sleep(pause))).await;
        }
        self.has_passed = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.has_passed {
            let woken = self.gate.rule().leave(self.kind, self.place, self.units, self.gate.now());
            wake(woken);
        }
    }
}

fn wake(callers: Vec<Arc<Notify>>) {
    for caller in callers {
        caller.notify_one();
    }
}

/// Rounds up to milliseconds, the resolution of timers. A caller that wakes up too early would ask again and again.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
