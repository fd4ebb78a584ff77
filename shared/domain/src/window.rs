//! Calendar windows in UTC: the periods over which usage is counted.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::Offset};

use crate::time::EpochMillis;

/// A kind of period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// From a full hour to the next.
    Hourly,
    /// From midnight UTC to the next.
    Daily,
    /// From midnight UTC of a month's first day to that of the next month's.
    Monthly,
}

/// A text that names no window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown window {value:?}: expected hourly, daily or monthly")]
pub struct UnknownWindow {
    value: String,
}

impl Window {
    /// All kinds, shortest first.
    pub const ALL: [Self; 3] = [Self::Hourly, Self::Daily, Self::Monthly];

    /// Returns the name: `hourly`, `daily` or `monthly`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Monthly => "monthly",
        }
    }

    /// Returns the period of this kind that contains `at`.
    ///
    /// ```
    /// use tidegate_domain::{time::EpochMillis, window::Window};
    ///
    /// let period = Window::Hourly.containing(EpochMillis::new(1_767_276_180_000)?);
    /// assert_eq!(period.to_string(), "2026-01-01T14:00:00Z");
    /// # Ok::<(), tidegate_domain::time::OutOfCalendar>(())
    /// ```
    #[must_use]
    pub fn containing(self, at: EpochMillis) -> Period {
        let at = at.civil();
        let start = match self {
            Self::Hourly => at.date().at(at.hour(), 0, 0, 0),
            Self::Daily => at.date().at(0, 0, 0, 0),
            Self::Monthly => at.date().first_of_month().at(0, 0, 0, 0),
        };
        Period { window: self, start }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Window {
    type Err = UnknownWindow;

    fn from_str(text: &str) -> Result<Self, UnknownWindow> {
        Self::ALL
            .into_iter()
            .find(|window| window.as_str() == text)
            .ok_or_else(|| UnknownWindow { value: text.to_owned() })
    }
}

/// One period: a window and where it starts. Displays as its start, `2026-01-01T14:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period {
    window: Window,
    start: DateTime,
}

impl Period {
    /// Returns the kind of period.
    #[must_use]
    pub const fn window(self) -> Window {
        self.window
    }

    /// Returns the first moment after the period, in epoch **seconds**.
    #[must_use]
    pub fn end_seconds(self) -> i64 {
        let length = match self.window {
            Window::Hourly => 1.hour(),
            Window::Daily => 1.day(),
            Window::Monthly => 1.month(),
        };
        // Never saturates: the year after the last `EpochMillis` is within the calendar's range.
        let end = self.start.saturating_add(length);
        Offset::UTC.to_timestamp(end).unwrap_or(Timestamp::MAX).as_second()
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}Z", self.start.strftime("%Y-%m-%dT%H:%M:%S"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(at: &str, window: Window, start: &str, end: &str) {
        let millis = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
        let period = window.containing(EpochMillis::new(millis(at)).unwrap());
        assert_eq!(period.to_string(), start, "{window} of {at}");
        assert_eq!(period.end_seconds() * 1000, millis(end), "end of {window} of {at}");
    }

    #[test]
    fn periods_at_the_edges_of_the_calendar() {
        use Window::{Daily, Hourly, Monthly};
        check("2025-12-31T23:59:59.999Z", Hourly, "2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z");
        check("2025-12-31T23:59:59.999Z", Daily, "2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z");
        check("2025-12-31T23:59:59.999Z", Monthly, "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z");
        check("2026-01-01T00:00:00Z", Hourly, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        check("2026-01-01T00:00:00Z", Monthly, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
        check("2024-02-29T12:30:00Z", Daily, "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z");
        check("2024-02-29T12:30:00Z", Monthly, "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z");
        check("1970-01-01T00:00:00Z", Monthly, "1970-01-01T00:00:00Z", "1970-02-01T00:00:00Z");
        check("9998-12-31T23:59:59.999Z", Monthly, "9998-12-01T00:00:00Z", "9999-01-01T00:00:00Z");
    }

    #[test]
    fn names_parse_and_others_are_quoted() {
        for window in Window::ALL {
            assert_eq!(window.as_str().parse(), Ok(window));
        }
        for name in ["", "Hourly", "weekly", "hourly "] {
            let error = name.parse::<Window>().unwrap_err();
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
    }

    proptest! {
        /// A period holds its moment, and so does every longer one around it.
        #[test]
        fn periods_nest(millis in 0..253_000_000_000_000_i64) {
            let at = EpochMillis::new(millis).unwrap();
            let [hour, day, month] = Window::ALL.map(|window| window.containing(at));
            prop_assert!(month.start <= day.start && day.start <= hour.start && hour.start <= at.civil());
            prop_assert!(millis < hour.end_seconds() * 1000);
            prop_assert!(hour.end_seconds() <= day.end_seconds() && day.end_seconds() <= month.end_seconds());
            for period in [hour, day, month] {
                prop_assert_eq!(period.window().containing(at), period);
            }
        }
    }
}
