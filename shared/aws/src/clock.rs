//! The only module from which decisions get the time of day. All other code takes the time as an argument; only the time
//! stamps of logs are read elsewhere.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_domain::time::{EpochMillis, OutOfCalendar};
use tokio::time::Instant;

/// The present moment.
pub fn now() -> Result<EpochMillis, OutOfCalendar> {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let now = SystemTime::now();
    let millis =
        now.duration_since(UNIX_EPOCH).map_or(-1, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    EpochMillis::new(millis)
}

/// Reserved for the answer: an invocation that is cut off cannot report what it has done.
const RESERVE: Duration = Duration::from_millis(500);

/// The time of an invocation whose deadline is not known.
const WITHOUT_DEADLINE: Duration = Duration::from_secs(30);

/// The moment by which an invocation must begin to answer, if Lambda ends it `deadline` milliseconds
/// after the epoch.
///
/// A deadline in the past counts as missing, because cargo-lambda's emulator sends 1970. The invocation then has 30
/// seconds.
pub fn answer_by(deadline: u64) -> Result<Instant, OutOfCalendar> {
    Ok(Instant::now() + time_to_work(deadline, now()?))
}

fn time_to_work(deadline: u64, now: EpochMillis) -> Duration {
    match deadline.checked_sub(now.get().unsigned_abs()) {
        None | Some(0) => WITHOUT_DEADLINE,
        Some(left) => Duration::from_millis(left).saturating_sub(RESERVE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invocation_keeps_time_for_its_answer() {
        let now = EpochMillis::new(1_767_225_600_000).unwrap();
        let check = |deadline, expect| assert_eq!(time_to_work(deadline, now).as_millis(), expect, "{deadline}");
        check(1_767_225_600_000 + 3_000, 2_500);
        check(1_767_225_600_000 + 100, 0);
        check(1_767_225_600_000, 30_000);
        check(600, 30_000);
    }
}
