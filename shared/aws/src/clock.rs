//! The one place that reads the time of day. Everything else is told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_domain::time::{EpochMillis, OutOfCalendar};
use tokio::time::Instant;

/// The present moment.
///
/// # Errors
/// [`OutOfCalendar`] if the system's clock is set before 1970 or after the year 9998.
pub fn now() -> Result<EpochMillis, OutOfCalendar> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let now = SystemTime::now();
    let millis =
        now.duration_since(UNIX_EPOCH).map_or(-1, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    EpochMillis::new(millis)
}

/// Kept back from an invocation's time for its answer: whoever is cut off cannot say what is done.
const RESERVE: Duration = Duration::from_millis(500);

/// The moment at which an invocation must begin to answer, if Lambda ends it `deadline` milliseconds
/// after the epoch.
///
/// # Errors
/// [`OutOfCalendar`] if the system's clock is set before 1970 or after the year 9998.
pub fn before(deadline: u64) -> Result<Instant, OutOfCalendar> {
    let now = u64::try_from(now()?.get()).unwrap_or_default();
    Ok(Instant::now() + Duration::from_millis(deadline.saturating_sub(now)).saturating_sub(RESERVE))
}
