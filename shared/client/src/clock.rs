//! The time of day, as a limiter sees it.

#![cfg_attr(not(feature = "test-util"), allow(dead_code, reason = "only tests make a manual clock"))]

use std::time::{Duration, Instant};

use tidegate_domain::time::EpochMillis;
use tokio::sync::watch;

/// Where a limiter gets the time from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// With the moment at which the limiter was built.
    System(Instant),
    Manual(ManualClock),
}

/// A moment by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The time of day, which buckets store. It may be set back.
    pub(crate) now: EpochMillis,
    /// The time since the limiter was built, by which caches expire.
    pub(crate) elapsed: Duration,
}

/// A clock for tests. Its time changes only in [`advance`](Self::advance). Clones show the same time.
///
/// ```
/// # #[cfg(feature = "test-util")] {
/// use std::time::{Duration, Instant};
/// use tidegate::ManualClock;
///
/// let clock = ManualClock::new(1_767_225_600_000);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.epoch_millis(), 1_767_225_601_000);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(watch::Sender<i64>);

impl ManualClock {
    /// Creates a clock that shows a time, in milliseconds since 1970.
    #[must_use]
    pub fn new(epoch_millis: i64) -> Self {
        Self(watch::Sender::new(epoch_millis))
    }

    /// Returns the time that the clock shows, in milliseconds since 1970.
    #[must_use]
    pub fn epoch_millis(&self) -> i64 {
        *self.0.borrow()
    }

    /// Moves the clock forward. Callers that wait for the new time go on.
    pub fn advance(&self, time: Duration) {
        self.0.send_modify(|now| *now = now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    }
}

impl Clock {
    /// Returns the present moment.
    pub(crate) fn moment(&self) -> Moment {
        let (now, elapsed) = match self {
            Self::System(built) => (tidegate_aws::clock::now(), built.elapsed()),
            Self::Manual(clock) => {
                let millis = clock.epoch_millis();
                (EpochMillis::new(millis), Duration::from_millis(millis.unsigned_abs()))
            }
        };
        // To a clock before 1970 or after 9998, nothing has accrued in any bucket.
        Moment { now: now.unwrap_or(EpochMillis::EPOCH), elapsed }
    }

    /// Waits.
    pub(crate) async fn sleep(&self, time: Duration) {
        match self {
            Self::System(_) => tokio::time::sleep(time).await,
            Self::Manual(clock) => {
                let until = clock.epoch_millis().saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
                // The clock itself is the sender, so the channel is open.
                drop(clock.0.subscribe().wait_for(|now| *now >= until).await);
            }
        }
    }
}
