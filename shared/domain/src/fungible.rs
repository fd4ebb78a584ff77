//! Decides whether a row of fungible tokens grants a take, and computes the write.
//!
//! A row is a token bucket. It holds at most `limit` tokens, and `limit` tokens accrue in each window. Accrual writes nothing.
//! A **refill** credits it later, and stores the moment up to which it has credited, `refilled`.
//!
//! - A refill credits whole tokens. It moves `refilled` by the time in which they accrued, rounded up to a nanosecond, so
//!   it loses less than a nanosecond of accrual. What has accrued beyond the limit is forfeited: then `refilled` moves to
//!   the present. It never moves back, so nothing accrues for a clock that is behind it.
//! - A take of stored tokens does not change `refilled`, so clients can take at the same time. It is valid only while the
//!   stored and the accrued tokens together are at most the limit. Otherwise the next refill would credit what should be
//!   forfeited. So a full bucket is refilled by the write that takes from it.
//! - rate-limiter-py takes stored tokens at any time. `left` is the value of `tokens` after our last write, so `left - tokens`
//!   is what it has taken since. The rule assumes that it took this at the time of its last take, so that a bucket that was
//!   full by then has forfeited what accrued before. Takes below zero are an exception: the fail-safe makes them one after
//!   another, and what accrues between them is not forfeited.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//! use tidegate_domain::{
//!     fungible::{Denial, EpochNanos, Ours, Rate, Row, Step, decide},
//!     time::EpochMillis,
//! };
//!
//! // Ten tokens a minute: one in six seconds.
//! let rate = Rate::new(10, Duration::from_secs(60)).expect("neither is zero");
//! let start = EpochMillis::new(1_767_225_600_000)?;
//! let row = Row {
//!     tokens: 1,
//!     last_refill: None,
//!     last_token: None,
//!     is_sealed: false,
//!     ours: Some(Ours { refilled: EpochNanos::from(start), left: 1 }),
//! };
//!
//! // Half of a token has accrued.
//! let now = start.after(Duration::from_secs(3));
//! assert!(matches!(decide(Some(&row), rate, 1, now, false), Step::Take(_)));
//! let denial = Denial { available: 1, retry_after: Duration::from_secs(3) };
//! assert_eq!(decide(Some(&row), rate, 2, now, false), Step::Deny(denial));
//!
//! let now = start.after(Duration::from_secs(6));
//! let Step::Refill(refill) = decide(Some(&row), rate, 2, now, false) else { panic!("a second token has accrued") };
//! assert_eq!((refill.change, refill.left), (-1, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use crate::time::EpochMillis;

const NANOS_PER_MILLI: i128 = 1_000_000;

/// A moment, in nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochNanos(i128);

impl EpochNanos {
    /// Creates the moment `nanos` nanoseconds after the epoch.
    #[must_use]
    pub const fn new(nanos: i128) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the epoch.
    #[must_use]
    pub const fn get(self) -> i128 {
        self.0
    }

    fn of_millis(millis: i64) -> Self {
        Self(i128::from(millis) * NANOS_PER_MILLI)
    }
}

impl From<EpochMillis> for EpochNanos {
    fn from(moment: EpochMillis) -> Self {
        Self::of_millis(moment.get())
    }
}

/// The capacity of a bucket, and the window in which that many tokens accrue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    limit: i128,
    /// In nanoseconds.
    window: i128,
}

impl Rate {
    /// Creates a rate. `None` if the limit or the window is zero.
    ///
    /// A limit above `i64::MAX` counts as `i64::MAX`, and a window above 292 years as 292 years.
    #[must_use]
    pub fn new(limit: u64, window: Duration) -> Option<Self> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let window = i64::try_from(window.as_nanos()).unwrap_or(i64::MAX);
        (limit > 0 && window > 0).then(|| Self { limit: limit.into(), window: window.into() })
    }

    /// Returns the tokens that accrue in these nanoseconds, rounded down. If the product saturates, they fill any bucket.
    fn accrued(self, nanos: i128) -> i128 {
        nanos.saturating_mul(self.limit) / self.window
    }

    /// Returns the tokens that accrue in these nanoseconds, rounded up.
    fn accrued_at_most(self, nanos: i128) -> i128 {
        div_ceil(nanos.saturating_mul(self.limit), self.window)
    }

    /// Returns the tokens that accrue while the fail-safe of rate-limiter-py takes tokens below zero: it waits for the time of
    /// a token, in whole milliseconds, between two takes.
    fn accrued_between_fail_safe_takes(self, left: i128, stored: i128) -> i128 {
        let gaps = ((-stored).max(0) - (-left).max(0) - 1).max(0);
        let gap = (self.window / NANOS_PER_MILLI / self.limit).max(1) * NANOS_PER_MILLI;
        self.accrued(gaps.saturating_mul(gap)).min(gaps)
    }

    /// Returns the nanoseconds in which these tokens accrue, rounded up. It cannot overflow: a bucket is less than `1 << 64`
    /// tokens below its limit, and a window is shorter than `1 << 63` nanoseconds.
    fn time_for(self, tokens: i128) -> i128 {
        div_ceil(tokens * self.window, self.limit)
    }
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value / by + i128::from(value % by > 0)
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Stored tokens. Negative after fail-safe takes of rate-limiter-py.
    pub tokens: i64,
    /// When a client of rate-limiter-py refilled the row, in milliseconds since 1970.
    pub last_refill: Option<i64>,
    /// When any client last took a token, in milliseconds since 1970.
    pub last_token: Option<i64>,
    /// Whether `last_refill` keeps clients of rate-limiter-py from refilling.
    pub is_sealed: bool,
    /// The attributes that our clients write. `None` if they have not written to the row.
    pub ours: Option<Ours>,
}

/// The attributes that our clients write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The moment up to which accrued tokens are in [`Row::tokens`].
    pub refilled: EpochNanos,
    /// The value of [`Row::tokens`] after the last write of our clients.
    pub left: i64,
}

/// What to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take stored tokens.
    Take(Take),
    /// Create the row, or credit what has accrued, and take, in one write.
    Refill(Refill),
    /// Deny: the row has too few tokens.
    Deny(Denial),
    /// Deny: the request asks for more than the limit.
    Never,
}

/// A write that takes stored tokens. Its conditions: the row has the requested tokens and at most [`at_most`](Self::at_most),
/// its tokens are equal to [`Ours::left`], and [`Ours::refilled`] is not before [`since`](Self::since).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// What is taken.
    pub tokens: u64,
    /// The largest number of stored tokens at which the bucket is not over the limit.
    pub at_most: i64,
    /// [`Ours::refilled`] is not before this moment.
    pub since: EpochNanos,
}

/// A write that creates a row, or refills it and takes from it. It depends on the row that it was computed from: its
/// tokens, and [`Ours::refilled`] or, if our clients have not written to it, [`Row::last_refill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// What is added to the stored tokens: the credit less what is taken.
    pub change: i128,
    /// The new [`Ours::left`]: the stored tokens after the write.
    pub left: i64,
    /// The new [`Ours::refilled`].
    pub until: EpochNanos,
    /// What is taken.
    pub tokens: u64,
}

/// Why a row does not grant a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The stored and the accrued tokens. Negative in debt.
    pub available: i64,
    /// The time until the row has the requested tokens if no other client takes any, rounded up to a millisecond.
    pub retry_after: Duration,
}

/// Decides on a request. `row` is `None` if the row does not exist. With `seals`, each refill seals the row, and stored tokens
/// are taken from sealed rows only.
#[must_use]
pub fn decide(row: Option<&Row>, rate: Rate, tokens: u64, now: EpochMillis, seals: bool) -> Step {
    let wanted = i128::from(tokens);
    if wanted > rate.limit {
        return Step::Never;
    }
    let level = Level::of(row, rate, now);
    if level.available < wanted {
        return Step::Deny(level.denial(rate, wanted, now));
    }
    if let Some(row) = row
        && let Some(Ours { refilled, left }) = row.ours
        && row.tokens == left
        && (row.is_sealed || !seals)
    {
        let elapsed = (EpochNanos::from(now).0 - refilled.0).max(0);
        let at_most = rate.limit - rate.accrued_at_most(elapsed);
        if (wanted..=at_most).contains(&row.tokens.into()) {
            return Step::Take(Take { tokens, at_most: saturate(at_most), since: refilled });
        }
    }
    Step::Refill(level.refill(tokens))
}

/// Returns the write that credits what has accrued in a row and takes nothing. It creates a missing row. `None` if the
/// write would change nothing.
#[must_use]
pub fn refill(row: Option<&Row>, rate: Rate, now: EpochMillis, seals: bool) -> Option<Refill> {
    let refill = Level::of(row, rate, now).refill(0);
    let is_current = |row: &Row| row.is_managed(seals) && row.ours.is_some_and(|ours| ours.left == row.tokens);
    (!row.is_some_and(is_current) || refill.change != 0).then_some(refill)
}

impl Row {
    /// Returns whether our clients credit what accrues in the row. With `seals`, the row must be sealed, too. Otherwise a
    /// write of [`refill`] must adopt the row: nothing accrues in it before.
    #[must_use]
    pub fn is_managed(&self, seals: bool) -> bool {
        self.ours.is_some() && (self.is_sealed || !seals)
    }
}

/// What a row holds at a moment.
struct Level {
    /// The stored tokens; 0 if there is no row.
    stored: i128,
    /// The tokens at a moment from which on accrual is added.
    base: i128,
    base_at: i128,
    /// The tokens at the moment of the decision.
    available: i128,
    /// The moment up to which accrued tokens are in `available`.
    until: i128,
}

impl Level {
    fn of(row: Option<&Row>, rate: Rate, now: EpochMillis) -> Self {
        let now = EpochNanos::from(now);
        let Some(row) = row else {
            return Self { stored: 0, base: rate.limit, base_at: now.0, available: rate.limit, until: now.0 };
        };
        let stored = i128::from(row.tokens);
        let adopted = || {
            let refilled = row.last_refill.map(EpochNanos::of_millis).filter(|refilled| *refilled <= now);
            Ours { refilled: refilled.unwrap_or(now), left: row.tokens }
        };
        let Ours { refilled: EpochNanos(refilled), left } = row.ours.unwrap_or_else(adopted);
        // A clock that is behind the last refill sees nothing accrue.
        let now = now.0.max(refilled);
        let taken_by_others = i128::from(left) - stored;
        // If others have taken since, their last take is later than the refill, or their clock is behind.
        let last_token = row.last_token.map(|time| EpochNanos::of_millis(time).0).filter(|time| *time > refilled);
        let last_token = if taken_by_others == 0 { refilled } else { last_token.map_or(now, |time| time.min(now)) };
        let until_last = last_token - refilled;
        let was_full = i128::from(left).saturating_add(rate.accrued_at_most(until_last)) > rate.limit;
        let (base, base_at) = if was_full {
            let paid = rate.accrued_between_fail_safe_takes(i128::from(left), stored);
            let nothing_forfeited = stored.saturating_add(rate.accrued(until_last));
            ((rate.limit - taken_by_others + paid).min(nothing_forfeited), last_token)
        } else {
            (stored, refilled)
        };
        let accrued = rate.accrued(now - base_at);
        let (available, until) = if accrued >= rate.limit - base {
            (rate.limit, now)
        } else {
            (base + accrued, base_at + rate.time_for(accrued))
        };
        Self { stored, base, base_at, available, until }
    }

    fn refill(&self, tokens: u64) -> Refill {
        let left = self.available - i128::from(tokens);
        Refill { change: left - self.stored, left: saturate(left), until: EpochNanos(self.until), tokens }
    }

    fn denial(&self, rate: Rate, wanted: i128, now: EpochMillis) -> Denial {
        let granted_at = self.base_at.saturating_add(rate.time_for(wanted - self.base));
        let millis = div_ceil(granted_at - EpochNanos::from(now).0, NANOS_PER_MILLI);
        let retry_after = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        Denial { available: saturate(self.available), retry_after }
    }
}

fn saturate(tokens: i128) -> i64 {
    i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
}
