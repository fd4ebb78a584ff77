//! A worker of either kind: what it consumes, what it may consume, and the rate that it reports.

use std::time::Duration;

use tidegate_domain::time::EpochMillis;

use super::{
    leasing::Leasing,
    python::{Python, Rule},
};

/// What a worker's limit follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// AWS's rule.
    Python,
    Leasing,
}

#[derive(Clone, Debug)]
pub(crate) enum Control {
    Python(Python),
    Leasing(Leasing),
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) control: Control,
    /// The time up to which consumption is counted, and the amount.
    at: EpochMillis,
    consumed: f64,
    /// When it reported last, and what it had consumed by then.
    reported: Option<(EpochMillis, f64)>,
}

impl Worker {
    pub(crate) fn new(kind: Kind, rule: Rule, now: EpochMillis) -> Self {
        let control = match kind {
            Kind::Python => Control::Python(Python::new(rule)),
            Kind::Leasing => Control::Leasing(Leasing::new(now)),
        };
        Self { control, at: now, consumed: 0.0, reported: None }
    }

    /// The limit at this moment, in capacity units a second.
    pub(crate) fn limit(&self, now: EpochMillis) -> f64 {
        match &self.control {
            Control::Python(python) => python.allowance.limit(),
            Control::Leasing(leasing) => leasing.limit(now),
        }
    }

    /// Consumes until now. Returns how much.
    pub(crate) fn consume(&mut self, demand: f64, now: EpochMillis) -> f64 {
        let consumed = match &mut self.control {
            Control::Python(python) => python.allowance.consume(demand, now.since(self.at)),
            Control::Leasing(leasing) => leasing.consumption(demand, self.at, now),
        };
        self.at = now;
        self.consumed += consumed;
        consumed
    }

    /// Measures the rate since the last report. Call [`Self::consume`] first.
    pub(crate) fn measure_rate(&mut self) -> f64 {
        let rate = self.reported.map_or(0.0, |(last, consumed)| {
            let elapsed = self.at.since(last).max(Duration::from_millis(1));
            ((self.consumed - consumed) / elapsed.as_secs_f64()).max(0.0)
        });
        self.reported = Some((self.at, self.consumed));
        rate
    }
}
