//! When an aggregation must be done with what.

use std::time::Duration;

use tokio::time::Instant;

/// An aggregation may take as long as the interval, or this long if that is shorter.
const LEAST: Duration = Duration::from_secs(5);

/// The time of one aggregation. What hangs costs a part of it, not the summary.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it began.
    pub start: Instant,
    /// Stop reading at this time.
    pub read_by: Instant,
    /// Stop writing at this time.
    pub write_by: Instant,
}

/// How long an aggregation may take.
pub(crate) fn longest(interval: Duration) -> Duration {
    interval.max(LEAST)
}

impl Times {
    /// The times of an aggregation that starts at `start`, in an invocation that must answer by `deadline`: three
    /// quarters are for reading.
    pub fn new(start: Instant, interval: Duration, deadline: Instant) -> Self {
        let write_by = deadline.min(start + longest(interval));
        let time = write_by.saturating_duration_since(start);
        Self { start, read_by: start + time / 4 * 3, write_by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregation_ends_before_the_next_one_and_with_the_invocation() {
        let check = |interval, left, read, write| {
            let start = Instant::now();
            let [interval, left, read, write] = [interval, left, read, write].map(Duration::from_millis);
            let times = Times::new(start, interval, start + left);
            assert_eq!((times.read_by - start, times.write_by - start), (read, write), "{interval:?} {left:?}");
        };
        check(5_000, 60_000, 3_750, 5_000);
        check(8_000, 60_000, 6_000, 8_000);
        check(1_000, 60_000, 3_750, 5_000);
        check(5_000, 400, 300, 400);
        check(5_000, 0, 0, 0);
    }
}
