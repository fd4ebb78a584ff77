//! What a fleet is told.

use std::time::Duration;

use super::tally::Tally;
use crate::time::EpochMillis;

/// A summary of a fleet's reports, as it stands for all of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// When its aggregation began, which is before the first report was looked for: of two summaries, the one that
    /// began later knows no less.
    pub began: EpochMillis,
    /// The sums, and how many workers there are.
    pub tally: Tally,
    /// The time from the start of one aggregation to the next, as it is meant to be.
    pub interval: Duration,
    /// Which one it is.
    pub sequence: u64,
}

impl Summary {
    /// When it began, in seconds since the epoch.
    #[must_use]
    pub const fn timestamp(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the calendar ends far below 2^53 milliseconds")]
        let millis = self.began.get() as f64;
        millis / 1000.0
    }

    /// When it began, to the whole second, in UTC without saying so: `2026-01-01T12:00:05`.
    #[must_use]
    pub fn time_utc(&self) -> String {
        self.began.civil().strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_beginning() {
        let began = EpochMillis::new(1_767_268_805_999).unwrap();
        let (tally, interval) = (Tally::default(), Duration::from_secs(5));
        let summary = Summary { began, tally, interval, sequence: 1 };
        assert_eq!(summary.time_utc(), "2026-01-01T12:00:05");
        assert_eq!(summary.timestamp().to_string(), "1767268805.999");
    }
}
