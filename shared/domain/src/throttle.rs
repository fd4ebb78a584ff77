//! A throttle: when each of many callers may use capacity units, so that all of them together keep a limit.
//!
//! | module | holds |
//! |---|---|
//! | [`estimate`] | the moving average of what a kind of call costs |
//! | [`limit`] | [`limit::Limit`]: the rates from now on, in [`limit::RateSteps`], under a slow start |
//! | `line` | one token bucket, and the callers that wait for it in order |
//!
//! # The rule
//!
//! Reads and writes have a token bucket each. A bucket accrues units at the rate of the [limit](limit::Limit), and holds what
//! accrues in [`BURST`]. Before a call, its caller pays an estimate of what the call costs. When the cost is known, the
//! difference is [settled](Throttle::settle), so a bucket may go below zero.
//!
//! - A caller passes when the bucket holds its estimate, or is full. Callers pass in the order in which they came.
//! - In any time, the callers together pay at most what accrues in it, plus the larger of what accrues in [`BURST`] and
//!   the largest estimate. It is the sum of both if the rate falls meanwhile, and a burst more if tasks wake up late: a caller
//!   then passes as of the moment at which it was due, or of [`BURST`] ago.
//! - While callers wait, nothing that accrues is lost, unless all of them are late by more than [`BURST`]. What a caller gets
//!   back may be lost above the bucket's size.
//! - Nothing passes while the rate is 0.
//!
//! All times are those since the throttle was made. A change returns the callers that must be woken up.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tidegate_domain::{
//!     rates::{Rate, Rates},
//!     throttle::{CapacityKind::Read, Throttle, Turn, Units, limit::Limit},
//! };
//!
//! let ten = Rate::from_millionths(10 * Rate::UNIT);
//! let mut throttle = Throttle::new(Limit::constant(Rates { read: ten, write: ten }));
//! let unit = Units::from_millionths(Units::ONE);
//!
//! // The bucket is full: it holds one unit, which accrues in a tenth of a second.
//! assert!(throttle.take(Read, unit, Duration::ZERO));
//! assert!(!throttle.take(Read, unit, Duration::ZERO));
//!
//! let place = throttle.enter(Read, unit, "caller");
//! let (turn, _) = throttle.turn(Read, place, Duration::ZERO);
//! assert_eq!(turn, Turn::Wait(Some(Duration::from_millis(100))));
//! let (turn, _) = throttle.turn(Read, place, Duration::from_millis(100));
//! assert_eq!(turn, Turn::Passed);
//! ```

pub mod estimate;
pub mod limit;
mod line;

use std::{fmt, time::Duration};

use self::{
    limit::{Limit, RampStart, RateSteps},
    line::Line,
};
use crate::rates::{Rate, Rates};

/// A bucket holds what accrues in this time: a tenth of a second. If a task wakes up at most this late, no capacity is
/// lost.
pub const BURST: Duration = Duration::from_millis(100);

/// Capacity units, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(u64);

impl Units {
    /// The number of millionths in one capacity unit.
    pub const ONE: u64 = Rate::UNIT;

    /// Creates an amount from capacity units, rounded to the nearest millionth. Returns `None` if it is negative, not a
    /// number, or above 10 million, which no call costs.
    #[must_use]
    pub fn new(units: f64) -> Option<Self> {
        Rate::new(units).ok().map(|rate| Self(rate.millionths()))
    }

    /// Creates an amount from millionths.
    #[must_use]
    pub const fn from_millionths(millionths: u64) -> Self {
        Self(millionths)
    }

    /// Returns the number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Returns the number of capacity units.
    #[must_use]
    pub fn get(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "it is exact up to 9 billion units")]
        let millionths = self.0 as f64;
        millionths / 1e6
    }

    /// Returns the sum. It stops at the largest amount, 18 trillion units.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The two kinds of capacity, which are limited separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CapacityKind {
    /// Read capacity units.
    Read,
    /// Write capacity units.
    Write,
}

impl CapacityKind {
    /// Returns the other kind.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }

    /// Returns the rate of this kind.
    #[must_use]
    pub const fn of(self, rates: Rates) -> Rate {
        match self {
            Self::Read => rates.read,
            Self::Write => rates.write,
        }
    }
}

impl fmt::Display for CapacityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// The place of a caller that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(u64);

/// Whether a caller may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The caller has passed, and has paid.
    Passed,
    /// The caller waits. The first one must ask again at the given time, or earlier if it is woken up. It is `None` for the
    /// others, and while nothing accrues.
    Wait(Option<Duration>),
}

/// What the callers of a throttle have used of one kind of capacity since the throttle was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The units that were consumed: as settled.
    pub consumed: Units,
    /// How many callers had to wait.
    pub delayed: u64,
    /// How many callers wait now.
    pub waiting: usize,
}

/// A limit, its buckets, and the callers that wait. A caller is whatever `W` wakes it up.
#[derive(Clone, Debug)]
pub struct Throttle<W> {
    limit: Limit,
    reads: Line<W>,
    writes: Line<W>,
}

impl<W: Clone> Throttle<W> {
    /// Creates a throttle whose buckets are full.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let line = |kind| Line::new(kind, &limit);
        Self { reads: line(CapacityKind::Read), writes: line(CapacityKind::Write), limit }
    }

    /// Returns the limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Replaces the steps of the limit. Returns the callers to wake up.
    #[must_use]
    pub fn set_steps(&mut self, steps: RateSteps, now: Duration) -> Vec<W> {
        self.change(now, |limit| limit.steps = steps)
    }

    /// Sets when the ramp of a kind begins. Returns the callers to wake up.
    #[must_use]
    pub fn set_ramp_start(&mut self, kind: CapacityKind, start: RampStart, now: Duration) -> Vec<W> {
        self.change(now, |limit| limit.set_ramp_start(kind, start))
    }

    /// Changes the limit from now on. What has accrued until now has accrued under the old one.
    fn change(&mut self, now: Duration, change: impl FnOnce(&mut Limit)) -> Vec<W> {
        let mut woken = self.reads.admit(&self.limit, now);
        woken.append(&mut self.writes.admit(&self.limit, now));
        change(&mut self.limit);
        woken.append(&mut self.reads.recheck(&self.limit, now));
        woken.append(&mut self.writes.recheck(&self.limit, now));
        woken
    }

    /// Lets a caller pass that does not have to wait, and charges `units`. Returns whether it has passed.
    #[must_use]
    pub fn take(&mut self, kind: CapacityKind, units: Units, now: Duration) -> bool {
        let (line, limit) = self.line(kind);
        line.take(units, limit, now)
    }

    /// Adds a caller that waits to pay `units`.
    pub fn enter(&mut self, kind: CapacityKind, units: Units, caller: W) -> Place {
        self.line(kind).0.enter(units, caller)
    }

    /// Returns whether the caller at a place has passed. Also returns the callers to wake up.
    #[must_use]
    pub fn turn(&mut self, kind: CapacityKind, place: Place, now: Duration) -> (Turn, Vec<W>) {
        let (line, limit) = self.line(kind);
        let woken = line.admit(limit, now);
        (line.turn(place, limit), woken)
    }

    /// Removes a caller that waits to pay `units`. If it has passed without using them, it gets them back. Returns the
    /// callers to wake up.
    #[must_use]
    pub fn leave(&mut self, kind: CapacityKind, place: Place, units: Units, now: Duration) -> Vec<W> {
        let (line, limit) = self.line(kind);
        if line.remove(place) { line.recheck(limit, now) } else { line.settle(units, Units::default(), limit, now) }
    }

    /// Corrects a charge to what was consumed. Returns the callers to wake up.
    #[must_use]
    pub fn settle(&mut self, kind: CapacityKind, charged: Units, consumed: Units, now: Duration) -> Vec<W> {
        let (line, limit) = self.line(kind);
        line.settle(charged, consumed, limit, now)
    }

    /// Returns what was used of a kind.
    #[must_use]
    pub fn usage(&self, kind: CapacityKind) -> Usage {
        match kind {
            CapacityKind::Read => self.reads.usage(),
            CapacityKind::Write => self.writes.usage(),
        }
    }

    fn line(&mut self, kind: CapacityKind) -> (&mut Line<W>, &Limit) {
        let line = match kind {
            CapacityKind::Read => &mut self.reads,
            CapacityKind::Write => &mut self.writes,
        };
        (line, &self.limit)
    }
}
