//! The rates that a throttle allows from now on.

use std::time::Duration;

use crate::{lease::holder::SlowStart, rates::Rates};

/// A slow start rises once in this time.
const RISE: Duration = Duration::from_secs(1);

/// Rates that change at known moments, such as a lease's grant until its end, and then its safe share.
///
/// ```
/// use std::time::Duration;
/// use tidegate_domain::{lease::START, rates::Rates, throttle::limit::RateSteps};
///
/// let steps = RateSteps::constant(START).then(Duration::from_secs(15), Rates::default());
/// assert_eq!(steps.at(Duration::from_secs(14)), START);
/// assert_eq!(steps.next_change(Duration::from_secs(14)), Some(Duration::from_secs(15)));
/// assert_eq!(steps.at(Duration::from_secs(15)), Rates::default());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateSteps {
    first: Rates,
    /// From when on other rates apply, the earliest first.
    changes: Vec<(Duration, Rates)>,
}

impl RateSteps {
    /// Creates steps with the same rates at any time.
    #[must_use]
    pub const fn constant(rates: Rates) -> Self {
        Self { first: rates, changes: Vec::new() }
    }

    /// Adds rates that apply from a moment on. They replace later changes.
    #[must_use]
    pub fn then(mut self, from: Duration, rates: Rates) -> Self {
        self.changes.retain(|(change, _)| *change < from);
        self.changes.push((from, rates));
        self
    }

    /// Returns the rates at the moment `now`.
    #[must_use]
    pub fn at(&self, now: Duration) -> Rates {
        self.changes.iter().rfind(|(from, _)| *from <= now).map_or(self.first, |(_, rates)| *rates)
    }

    /// Returns the first change after the moment `now`.
    #[must_use]
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        self.changes.iter().map(|(from, _)| *from).find(|from| *from > now)
    }
}

/// What a throttle allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most at any time.
    pub maximum: Rates,
    /// The ramp to the maximum. It begins when the throttle is made, and rises once a second.
    pub slow_start: SlowStart,
    /// What may be used, up to the maximum.
    pub steps: RateSteps,
}

impl Limit {
    /// Creates a limit that never changes.
    #[must_use]
    pub fn constant(rates: Rates) -> Self {
        Self { maximum: rates, slow_start: SlowStart::default(), steps: RateSteps::constant(rates) }
    }

    /// Returns the rates at the moment `now`.
    #[must_use]
    pub fn at(&self, now: Duration) -> Rates {
        self.ramp(now).min(self.steps.at(now))
    }

    /// Returns the maximum at the moment `now`, under the slow start.
    #[must_use]
    pub fn ramp(&self, now: Duration) -> Rates {
        self.slow_start.limit(self.maximum, Duration::from_secs(now.as_secs()))
    }

    /// Returns the first moment after `now` at which the rates may change.
    #[must_use]
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let risen = Duration::from_secs(now.as_secs());
        let rise = (risen < self.slow_start.over).then(|| risen.saturating_add(RISE));
        [rise, self.steps.next_change(now)].into_iter().flatten().min()
    }
}
