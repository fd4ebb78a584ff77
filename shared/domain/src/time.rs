//! Moments as integers.

use std::{fmt, time::Duration};

use jiff::{Timestamp, civil::DateTime, tz::Offset};

/// A moment, in milliseconds since 1970-01-01T00:00:00Z, up to the end of the year 9998.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochMillis(i64);

/// A moment before 1970 or after the year 9998.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{millis} ms is not between 1970 and the end of 9998")]
pub struct OutOfCalendar {
    millis: i64,
}

impl EpochMillis {
    /// 9998-12-31T23:59:59.999Z. The end of any period that contains it has a four-digit year.
    const MAX: i64 = 253_370_764_799_999;

    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// Creates the moment `millis` milliseconds after the epoch.
    ///
    /// # Errors
    /// [`OutOfCalendar`] when `millis` is negative or past the year 9998.
    pub const fn new(millis: i64) -> Result<Self, OutOfCalendar> {
        if millis < 0 || millis > Self::MAX {
            return Err(OutOfCalendar { millis });
        }
        Ok(Self(millis))
    }

    /// Returns seconds since the epoch.
    #[must_use]
    pub const fn seconds(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the calendar ends far below 2^53 milliseconds")]
        let millis = self.0 as f64;
        millis / 1000.0
    }

    /// Returns the moment `elapsed` later, at most the last one of the year 9998.
    #[must_use]
    pub fn after(self, elapsed: Duration) -> Self {
        let elapsed = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(elapsed).min(Self::MAX))
    }

    /// Parses a moment in RFC 3339, like `2026-01-01T14:00:00Z`. `None` if the text is not one, or is outside of 1970 to
    /// 9998.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let moment: Timestamp = text.parse().ok()?;
        Self::new(moment.as_millisecond()).ok()
    }

    /// Returns the moment as RFC 3339 writes it in UTC, in whole seconds, like `2026-01-01T14:00:00Z`.
    #[must_use]
    pub fn rfc3339(self) -> String {
        self.civil().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns the time that has passed since an earlier moment. Zero if that moment is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }

    /// Returns milliseconds since the epoch.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The date and time of day in UTC.
    pub(crate) fn civil(self) -> DateTime {
        // Never saturates: the range of an `EpochMillis` lies within that of a `Timestamp`.
        Offset::UTC.to_datetime(Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::MAX))
    }
}

impl fmt::Display for EpochMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_outside_the_calendar_cannot_be_built() {
        assert!(EpochMillis::new(0).is_ok());
        assert!(EpochMillis::new(EpochMillis::MAX).is_ok());
        for millis in [-1, EpochMillis::MAX + 1, i64::MIN, i64::MAX] {
            let error = EpochMillis::new(millis).unwrap_err();
            assert!(error.to_string().contains(&millis.to_string()), "{error}");
        }
    }

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        let check = |text, expect| assert_eq!(EpochMillis::parse(text).map(EpochMillis::get), expect, "{text}");
        check("2026-01-01T00:00:00Z", Some(1_767_225_600_000));
        check("2026-01-01T00:00:00.123Z", Some(1_767_225_600_123));
        check("2026-01-01T01:00:00+01:00", Some(1_767_225_600_000));
        check("1969-12-31T23:59:59Z", None);
        check("2026-01-01", None);
        check("2026-01-01T00:00:00", None);
        check("", None);
    }

    #[test]
    fn no_time_has_passed_since_a_later_moment() {
        let check = |now, earlier, expect| {
            assert_eq!(EpochMillis(now).since(EpochMillis(earlier)).as_millis(), expect, "{now} since {earlier}");
        };
        check(1_500, 500, 1_000);
        check(500, 500, 0);
        check(500, 1_500, 0);
    }

    #[test]
    fn the_last_moment_is_the_last_of_9998() {
        assert_eq!(EpochMillis(EpochMillis::MAX).civil().to_string(), "9998-12-31T23:59:59.999");
    }
}
