//! The rates that a throttle allows from now on.

use std::time::Duration;

use super::CapacityKind;
use crate::{
    lease::holder::SlowStart,
    rates::{Rate, Rates},
};

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

/// When the ramp of one kind of capacity begins.
///
/// ```
/// use std::time::Duration;
/// use tidegate_domain::{
///     lease::holder::SlowStart,
///     rates::{Rate, Rates},
///     throttle::{CapacityKind::Write, limit::{Limit, RampStart}},
/// };
///
/// let units = |units| Rates { write: Rate::from_millionths(units * Rate::UNIT), ..Rates::default() };
/// let slow_start = SlowStart { from: units(1), over: Duration::from_secs(100) };
/// let mut limit = Limit { slow_start, ..Limit::constant(units(201)) };
/// limit.set_ramp_start(Write, RampStart::Pending);
/// assert_eq!(limit.at(Duration::from_secs(200)), units(1));
/// limit.set_ramp_start(Write, RampStart::At(Duration::from_secs(200)));
/// assert_eq!(limit.at(Duration::from_secs(250)), units(101));
/// limit.set_ramp_start(Write, RampStart::Skipped);
/// assert_eq!(limit.at(Duration::from_secs(250)), units(201));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampStart {
    /// At a moment. Before it, the first rate of the ramp applies.
    At(Duration),
    /// It has not begun: the first rate of the ramp applies.
    Pending,
    /// There is no ramp: the maximum applies.
    Skipped,
}

impl Default for RampStart {
    /// The ramp begins when the throttle is made.
    fn default() -> Self {
        Self::At(Duration::ZERO)
    }
}

/// What a throttle allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most at any time.
    pub maximum: Rates,
    /// The ramp to the maximum. It rises once a second.
    pub slow_start: SlowStart,
    /// When the ramp of reads begins.
    pub read_ramp: RampStart,
    /// When the ramp of writes begins.
    pub write_ramp: RampStart,
    /// What may be used, up to the maximum.
    pub steps: RateSteps,
}

impl Limit {
    /// Creates a limit that never changes.
    #[must_use]
    pub fn constant(rates: Rates) -> Self {
        Self {
            maximum: rates,
            slow_start: SlowStart::default(),
            read_ramp: RampStart::default(),
            write_ramp: RampStart::default(),
            steps: RateSteps::constant(rates),
        }
    }

    /// Returns the rates at the moment `now`.
    #[must_use]
    pub fn at(&self, now: Duration) -> Rates {
        self.ramp(now).min(self.steps.at(now))
    }

    /// Returns the maximum at the moment `now`, under the slow start.
    #[must_use]
    pub fn ramp(&self, now: Duration) -> Rates {
        Rates { read: self.ramp_of(CapacityKind::Read, now), write: self.ramp_of(CapacityKind::Write, now) }
    }

    /// Returns when the ramp of a kind begins.
    #[must_use]
    pub const fn ramp_start(&self, kind: CapacityKind) -> RampStart {
        match kind {
            CapacityKind::Read => self.read_ramp,
            CapacityKind::Write => self.write_ramp,
        }
    }

    /// Sets when the ramp of a kind begins.
    pub const fn set_ramp_start(&mut self, kind: CapacityKind, start: RampStart) {
        match kind {
            CapacityKind::Read => self.read_ramp = start,
            CapacityKind::Write => self.write_ramp = start,
        }
    }

    /// Returns the first moment after `now` at which the rates may change.
    #[must_use]
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        let rises = [CapacityKind::Read, CapacityKind::Write].map(|kind| self.next_rise(kind, now));
        rises.into_iter().chain([self.steps.next_change(now)]).flatten().min()
    }

    fn ramp_of(&self, kind: CapacityKind, now: Duration) -> Rate {
        let maximum = kind.of(self.maximum);
        match self.ramp_start(kind) {
            RampStart::Skipped => maximum,
            RampStart::Pending => kind.of(self.slow_start.from).min(maximum),
            RampStart::At(start) => kind.of(self.slow_start.limit(self.maximum, risen(start, now))),
        }
    }

    fn next_rise(&self, kind: CapacityKind, now: Duration) -> Option<Duration> {
        let RampStart::At(start) = self.ramp_start(kind) else { return None };
        let risen = risen(start, now);
        (risen < self.slow_start.over).then(|| start.saturating_add(risen).saturating_add(RISE))
    }
}

/// How long a ramp has risen at a moment, in whole seconds.
fn risen(start: Duration, now: Duration) -> Duration {
    Duration::from_secs(now.saturating_sub(start).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(units: u64) -> Rates {
        let rate = Rate::from_millionths(units * Rate::UNIT);
        Rates { read: rate, write: rate }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_kind_has_a_ramp_of_its_own() {
        let slow_start = SlowStart { from: units(1), over: seconds(10) };
        let read_ramp = RampStart::At(seconds(30) + Duration::from_millis(500));
        let mut limit = Limit { slow_start, read_ramp, write_ramp: RampStart::Pending, ..Limit::constant(units(101)) };
        for (now, expect) in [(0, 1), (31, 1), (32, 11), (40, 91), (41, 101)] {
            assert_eq!(
                (limit.at(seconds(now)).read, limit.at(seconds(now)).write),
                (units(expect).read, units(1).write)
            );
        }
        assert_eq!(limit.next_change(seconds(0)), Some(seconds(31) + Duration::from_millis(500)));
        assert_eq!(limit.next_change(seconds(32)), Some(seconds(32) + Duration::from_millis(500)));
        assert_eq!(limit.next_change(seconds(41)), None);
        limit.set_ramp_start(CapacityKind::Write, RampStart::At(seconds(41)));
        assert_eq!(limit.next_change(seconds(41)), Some(seconds(42)));
        limit.set_ramp_start(CapacityKind::Write, RampStart::Skipped);
        assert_eq!((limit.at(seconds(41)), limit.next_change(seconds(41))), (units(101), None));
    }

    #[test]
    fn rates_change_only_when_announced() {
        let slow_start = SlowStart { from: units(1), over: seconds(7) };
        for (start, write_ramp) in [(0, RampStart::Pending), (3, RampStart::At(seconds(5))), (9, RampStart::Skipped)] {
            let read_ramp = RampStart::At(Duration::from_millis(start * 900));
            let limit = Limit { slow_start, read_ramp, write_ramp, ..Limit::constant(units(50)) };
            let moments: Vec<_> = (0..200).map(|tenth| Duration::from_millis(tenth * 100)).collect();
            for pair in moments.windows(2) {
                let is_change = limit.next_change(pair[0]).is_some_and(|change| change <= pair[1]);
                assert!(is_change || limit.at(pair[0]) == limit.at(pair[1]), "{limit:?} at {:?}", pair[1]);
            }
        }
    }
}
