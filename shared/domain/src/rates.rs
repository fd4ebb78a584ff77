//! The rates of a fleet: each worker reports what it reads and writes, and all of them are told the sums.
//!
//! A worker overwrites its report every few seconds, and what it last wrote stays when it is gone. So a report
//! counts for as long as it is [fresh](Judgement::Fresh), and what no worker would write is
//! [rejected](Judgement::Rejected) with a reason; neither stops the others from being summed up.
//!
//! | module | holds |
//! |---|---|
//! | [`cadence`] | when to aggregate again |
//! | [`coverage`] | whether enough of a fleet is known to speak for all of it |
//! | [`reading`] | which reports must be fetched, and which are known |
//! | [`rest`] | how often to list an idle job |
//! | [`replacement`] | which summary replaces which |
//! | [`summary`] | what a fleet is told |
//! | [`tally`] | [`tally::Tally`]: judgements, summed up in any order |

pub mod cadence;
pub mod coverage;
pub mod reading;
pub mod replacement;
pub mod rest;
pub mod summary;
pub mod tally;

use std::{num::NonZeroU32, time::Duration};

use crate::time::EpochMillis;

/// The age up to which a report is fresh; also, how far ahead of our clock a worker's may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutoff(Duration);

impl Cutoff {
    /// As the workers' own programs have it: 15 seconds.
    pub const DEFAULT: Self = Self(Duration::from_secs(15));

    /// A whole number of seconds.
    #[must_use]
    pub fn from_seconds(seconds: NonZeroU32) -> Self {
        Self(Duration::from_secs(seconds.get().into()))
    }

    /// The age.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }
}

/// A field of a report, as it was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    /// There is no such field, or it holds nothing, such as null.
    Missing,
    /// A number, maybe none that is finite.
    Number(f64),
    /// Something else, such as a text.
    Other,
}

/// What a worker wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// When, in seconds since the epoch.
    pub timestamp: Field,
    /// Read capacity units a second; counts as 0 if it is missing.
    pub read_rate: Field,
    /// Write capacity units a second; counts as 0 if it is missing.
    pub write_rate: Field,
}

/// Capacity units a second, in millionths.
///
/// Sums of integers are the same in whatever order they are taken, which those of floats are not. A rate is
/// rounded to the nearest millionth, so the sum of `n` rates is within `n / 2` millionths of the exact one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Millionths in one capacity unit a second.
    pub const UNIT: u64 = 1_000_000;

    /// Ten million capacity units a second. A report that says more is [`Reason::Absurd`].
    ///
    /// For one worker that would be tens of gigabytes a second, and it is 250 times what a whole table may be given
    /// unless AWS has raised the [quota](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html).
    pub const MAX: Self = Self(10_000_000 * Self::UNIT);

    /// A number of capacity units a second, rounded to the nearest millionth.
    ///
    /// # Errors
    /// [`Reason`], if no worker can have such a rate.
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

    /// The number of millionths.
    #[must_use]
    pub const fn millionths(self) -> u64 {
        self.0
    }
}

/// What a worker reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    /// Read capacity units.
    pub read: Rate,
    /// Write capacity units.
    pub write: Rate,
}

/// What a report is worth at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It counts.
    Fresh {
        /// With these rates.
        rates: Rates,
        /// The time that it bears.
        at: EpochMillis,
    },
    /// Its worker has not reported for longer than the cutoff.
    Stale,
    /// It cannot be what a worker meant to say.
    Rejected(Reason),
}

/// Why a report does not count, although it is not stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Reason {
    /// It is larger than [`reading::MAX_SIZE`], and was not read.
    #[error("it is larger than any report")]
    TooLarge,
    /// It is no JSON object.
    #[error("it is no JSON object")]
    NotJson,
    /// Nobody can say when it was written.
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
}

/// What a report is worth at the moment `now`. Its age comes first: what is stale is not looked at.
///
/// A report is stale once it is older than the cutoff, to the millisecond; one that is just as old is fresh.
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

/// A moment given in seconds since the epoch, to the nearest millisecond.
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

#[expect(clippy::cast_precision_loss, reason = "the unit and the bound are far below 2^53")]
const fn to_f64(number: u64) -> f64 {
    number as f64
}
