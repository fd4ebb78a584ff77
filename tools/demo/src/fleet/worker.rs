//! A worker: it consumes, reports what it has consumed, and sets its limit by what it is told.

use std::time::Duration;

use super::{allowance::Allowance, course::Reported, rule::Rule};
use tidegate_domain::time::EpochMillis;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId {
    /// The member's place in the scenario; reports that were left behind have places after the last.
    pub member: usize,
    /// How many workers the member has had before.
    pub life: u32,
}

pub(super) struct Worker {
    pub(super) id: WorkerId,
    rule: Rule,
    allowance: Allowance,
    /// Up to when it has consumed, and how much.
    at: EpochMillis,
    consumed: f64,
    /// When it reported last, and what it had consumed by then.
    reported: Option<(EpochMillis, f64)>,
}

impl Worker {
    pub(super) fn new(id: WorkerId, rule: Rule, now: EpochMillis) -> Self {
        Self { id, rule, allowance: Allowance::new(rule.initial()), at: now, consumed: 0.0, reported: None }
    }

    pub(super) const fn limit(&self) -> f64 {
        self.allowance.limit()
    }

    /// Consumes until now; returns how much.
    pub(super) fn consume(&mut self, demand: f64, now: EpochMillis) -> f64 {
        let consumed = self.allowance.consume(demand, now.since(self.at));
        self.at = now;
        self.consumed += consumed;
        consumed
    }

    /// What it reports, having consumed until now; `clock` is what it takes for now.
    pub(super) fn report(&mut self, clock: EpochMillis) -> Reported {
        let rate = self.reported.map_or(0.0, |(last, consumed)| {
            let elapsed = self.at.since(last).max(Duration::from_millis(1));
            ((self.consumed - consumed) / elapsed.as_secs_f64()).max(0.0)
        });
        self.reported = Some((self.at, self.consumed));
        Reported { worker: self.id, at: clock, rate }
    }

    /// Reads a sum, having consumed until now.
    pub(super) fn adjust(&mut self, sum: f64) {
        self.allowance.set_limit(self.rule.adjust(self.limit(), sum));
    }
}
