//! The rates of a fleet: each worker reports what it reads and writes, and all workers read the sums.
//!
//! A worker overwrites its report every few seconds, and its last report stays after its end. So a report counts while
//! it is [fresh](Judgement::Fresh). A report that no worker would write is [rejected](Judgement::Rejected) with a
//! reason. Neither a stale nor a rejected report stops the sum over the others.
//!
//! | module | holds |
//! |---|---|
//! | [`reading`] | which reports must be fetched, and whether enough of them are known |
//! | [`rest`] | how often to list an idle job |
//! | [`summary`] | the sums as they are published, and which summary replaces which |
//! | [`tally`] | [`tally::Tally`]: judgements, summed up in any order |
//!
//! [`wait`] and [`Pace`] time the aggregations.

pub mod reading;
pub mod rest;
pub mod summary;
pub mod tally;

use std::{num::NonZeroU32, time::Duration};

use crate::{lease::LeaseKeys, time::EpochMillis};

/// The maximum age of a fresh report, and the most by which a worker's clock may be ahead of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoff(Duration);

impl Cutoff {
    /// 15 seconds, as in the workers' own programs.
    pub const DEFAULT: Self = Self(Duration::from_secs(15));

    /// Creates a cutoff of a whole number of seconds.
    #[must_use]
    pub fn from_seconds(seconds: NonZeroU32) -> Self {
        Self(Duration::from_secs(seconds.get().into()))
    }

    /// Returns the age.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// A field of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// The field is missing or null.
    Missing,
    /// A number. It may be infinite or NaN.
    Number(f64),
    /// Any other value, such as a text.
    Other,
}

/// A worker's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// When it was written, in seconds since the epoch.
    pub timestamp: Field,
    /// Read capacity units a second; counts as 0 if it is missing.
    pub read_rate: Field,
    /// Write capacity units a second; counts as 0 if it is missing.
    pub write_rate: Field,
    /// What a leasing worker reports about its lease. `None` for a worker of another program.
    pub lease: Option<LeaseKeys>,
    /// Whether no earlier report of the worker is known. The first report of Bulk Executor's workers says 0, whatever they use.
    pub is_first: bool,
}

/// Capacity units a second, in millionths.
///
/// Integers have the same sum in any order, unlike floats. A rate is rounded to the nearest millionth, so the sum of `n`
/// rates is within `n / 2` millionths of the exact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// The number of millionths in one capacity unit a second.
    pub const UNIT: u64 = 1_000_000;

    /// Ten million capacity units a second. A higher rate is [`Reason::Absurd`].
    ///
    /// For one worker that would be tens of gigabytes a second. It is 250 times AWS's default for a whole table:
    /// [quota](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html).
    pub const MAX: Self = Self(10_000_000 * Self::UNIT);

    /// Creates a rate from capacity units a second, rounded to the nearest millionth.
    ///
    /// # Errors
    /// [`Reason`] if no worker can have such a rate.
    pub fn new(units: f64) -> Result<Self, Reason> {
        if units.is_nan() {
            return Err(Reason::NotANumber);
        }
        if units.is_infinite() {
            return Err(Reason::Infinite);
        }
        if units < 0.0 {
            return Err(Reason::Negative);
        }
        let millionths = (units * to_f64(Self::UNIT)).round();
        if millionths > to_f64(Self::MAX.0) {
            return Err(Reason::Absurd);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and MAX")]
        Ok(Self(millionths as u64))
    }

    /// Creates a rate from millionths, at most [`Rate::MAX`].
    #[must_use]
    pub const fn from_millionths(millionths: u64) -> Self {
        Self(if millionths < Self::MAX.0 { millionths } else { Self::MAX.0 })
    }

    /// Returns the number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// Returns capacity units a second: the nearest float. [`Rate::new`] gives the same rate again.
    #[must_use]
    pub const fn units(self) -> f64 {
        to_f64(self.0) / to_f64(Self::UNIT)
    }
}

/// What a worker reads and writes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Read capacity units.
    pub read: Rate,
    /// Write capacity units.
    pub write: Rate,
}

impl Rates {
    /// Converts the read rate and the write rate.
    pub(crate) fn map(self, convert: impl Fn(Rate) -> Rate) -> Self {
        Self { read: convert(self.read), write: convert(self.write) }
    }

    /// Combines the read rates of both, and the write rates of both.
    pub(crate) fn zip(self, other: Self, combine: impl Fn(Rate, Rate) -> Rate) -> Self {
        Self { read: combine(self.read, other.read), write: combine(self.write, other.write) }
    }

    /// Returns the lower read rate and the lower write rate of both.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.zip(other, Ord::min)
    }

    /// Returns the higher read rate and the higher write rate of both.
    pub(crate) fn max(self, other: Self) -> Self {
        self.zip(other, Ord::max)
    }
}

/// The value of a report at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The report counts.
    Fresh {
        /// The worker's rates.
        rates: Rates,
        /// The timestamp of the report.
        at: EpochMillis,
    },
    /// The report is older than the cutoff.
    Stale,
    /// No worker would write such a report.
    Rejected(Reason),
}

/// Why a report is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Reason {
    /// It is larger than [`reading::MAX_SIZE`], and was not read.
    #[error("it is larger than any report")]
    TooLarge,
    /// It is no JSON object.
    #[error("it is no JSON object")]
    NotJson,
    /// It has no timestamp.
    #[error("it has no timestamp")]
    NoTimestamp,
    /// A field holds a text, or the like.
    #[error("a field that must be a number is something else")]
    NotNumeric,
    /// A number is NaN.
    #[error("a number is NaN")]
    NotANumber,
    /// A number is infinite.
    #[error("a number is infinite")]
    Infinite,
    /// A number is below zero.
    #[error("a number is negative")]
    Negative,
    /// A rate is above [`Rate::MAX`].
    #[error("a rate is above 10000000 capacity units a second")]
    Absurd,
    /// Its timestamp lies more than the cutoff in the future.
    #[error("the timestamp lies too far in the future")]
    Future,
    /// It has the number of a leasing worker's report, and another key of the lease is missing or invalid.
    #[error("a key of the lease is missing or invalid")]
    Lease,
}

/// Judges a report at the moment `now`. The age comes first: the rates of a stale report do not matter.
///
/// A report is stale if it is older than the cutoff, to the millisecond.
///
/// ```
/// use tidegate_domain::{
///     rates::{Cutoff, Field, Judgement, Report, judge},
///     time::EpochMillis,
/// };
///
/// let report =
///     Report { timestamp: Field::Number(100.0), read_rate: Field::Number(2.5), write_rate: Field::Missing, lease: None, is_first: false };
/// let judged_at = |millis| judge(&report, EpochMillis::new(millis).unwrap(), Cutoff::DEFAULT);
/// assert!(matches!(judged_at(115_000), Judgement::Fresh { .. }));
/// assert_eq!(judged_at(115_001), Judgement::Stale);
/// ```
#[must_use]
pub fn judge(report: &Report, now: EpochMillis, cutoff: Cutoff) -> Judgement {
    let at = match report.timestamp {
        Field::Missing => return Judgement::Rejected(Reason::NoTimestamp),
        Field::Other => return Judgement::Rejected(Reason::NotNumeric),
        Field::Number(seconds) => match moment(seconds) {
            Ok(at) => at,
            Err(reason) => return Judgement::Rejected(reason),
        },
    };
    if now.since(at) > cutoff.get() {
        return Judgement::Stale;
    }
    if at.since(now) > cutoff.get() {
        return Judgement::Rejected(Reason::Future);
    }
    match (rate(report.read_rate), rate(report.write_rate)) {
        (Ok(read), Ok(write)) => Judgement::Fresh { rates: Rates { read, write }, at },
        (Err(reason), _) | (_, Err(reason)) => Judgement::Rejected(reason),
    }
}

/// Converts seconds since the epoch to a moment, rounded to the nearest millisecond.
///
/// # Errors
/// [`Reason`] if the value is not a time. A time after the end of the calendar counts as in the future.
pub fn moment(seconds: f64) -> Result<EpochMillis, Reason> {
    if seconds.is_nan() {
        return Err(Reason::NotANumber);
    }
    if seconds.is_infinite() {
        return Err(Reason::Infinite);
    }
    if seconds < 0.0 {
        return Err(Reason::Negative);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a cast saturates, and the calendar ends long before")]
    EpochMillis::new((seconds * 1000.0).round() as i64).map_err(|_| Reason::Future)
}

fn rate(field: Field) -> Result<Rate, Reason> {
    match field {
        Field::Missing => Ok(Rate::default()),
        Field::Number(units) => Rate::new(units),
        Field::Other => Err(Reason::NotNumeric),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the unit and all rates are far below 2^53")]
const fn to_f64(number: u64) -> f64 {
    number as f64
}

/// The most by which a wait differs from the interval: a tenth of it, in both directions. So aggregators that start
/// together do not stay together.
pub const JITTER: f64 = 0.1;

/// Returns the time from the start of one aggregation to the next. `chance` is a random number from 0 to 1.
#[must_use]
pub fn wait(interval: Duration, chance: f64) -> Duration {
    interval.mul_f64(1.0 + JITTER * (2.0 * chance.clamp(0.0, 1.0) - 1.0))
}

/// The duration of the longest aggregation so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    longest: Duration,
}

impl Pace {
    /// The next aggregation may take longer than the longest so far, by this factor.
    const MARGIN: f64 = 1.5;
    /// The least time for an aggregation, also before the first one.
    const LEAST: Duration = Duration::from_millis(500);

    /// Records the duration of an aggregation.
    pub fn took(&mut self, elapsed: Duration) {
        self.longest = self.longest.max(elapsed);
    }

    /// Returns whether another aggregation fits into the time `left`.
    #[must_use]
    pub fn has_room(&self, left: Duration) -> bool {
        left >= self.longest.mul_f64(Self::MARGIN).max(Self::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_within_a_tenth_of_the_interval() {
        let check = |chance, expect| {
            assert_eq!(wait(Duration::from_secs(5), chance), Duration::from_millis(expect), "{chance}");
        };
        check(0.0, 4_500);
        check(0.5, 5_000);
        check(1.0, 5_500);
        check(7.0, 5_500);
    }

    #[test]
    fn another_one_starts_only_if_it_can_end() {
        let check = |took: &[u64], left, expect| {
            let mut pace = Pace::default();
            for millis in took {
                pace.took(Duration::from_millis(*millis));
            }
            assert_eq!(pace.has_room(Duration::from_millis(left)), expect, "{took:?}, {left} ms left");
        };
        check(&[], 499, false);
        check(&[], 500, true);
        check(&[10], 500, true);
        check(&[2_000, 100], 2_999, false);
        check(&[2_000, 100], 3_000, true);
    }
}
