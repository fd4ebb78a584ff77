//! The time of day, as a limiter sees it.

#![cfg_attr(not(feature = "test-util"), allow(dead_code, reason = "only tests make a manual clock"))]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_domain::time::EpochMillis;
use tokio::sync::watch;

use crate::monotonic::Started;

/// Where a limiter gets the time from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// With the moment at which the limiter was built.
    System(Started),
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
/// use std::time::Duration;
/// use tidegate::ManualClock;
///
/// let clock = ManualClock::new(1_767_225_600_000);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(clock.epoch_millis(), 1_767_225_601_000);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: watch::Sender<i64>,
    /// Until when each caller waits.
    sleepers: Arc<Mutex<Vec<i64>>>,
}

impl ManualClock {
    /// Creates a clock that shows a time, in milliseconds since 1970.
    #[must_use]
    pub fn new(epoch_millis: i64) -> Self {
        Self { millis: watch::Sender::new(epoch_millis), sleepers: Arc::default() }
    }

    /// Returns the time that the clock shows, in milliseconds since 1970.
    #[must_use]
    pub fn epoch_millis(&self) -> i64 {
        *self.millis.borrow()
    }

    /// Moves the clock forward. Callers that wait for the new time go on.
    pub fn advance(&self, time: Duration) {
        self.millis.send_modify(|now| *now = now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    }

    /// Returns how many callers wait for a later time than the clock shows. When all that a test has started wait, nothing
    /// happens until the clock is moved.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let now = self.epoch_millis();
        self.sleepers().iter().filter(|until| **until > now).count()
    }

    async fn sleep(&self, time: Duration) {
        let until = self.epoch_millis().saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        let _sleeper = Sleeper::new(self, until);
        // The clock itself is the sender, so the channel is open.
        drop(self.millis.subscribe().wait_for(|now| *now >= until).await);
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<i64>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits, until this is dropped.
struct Sleeper<'a> {
    clock: &'a ManualClock,
    until: i64,
}

impl<'a> Sleeper<'a> {
    fn new(clock: &'a ManualClock, until: i64) -> Self {
        clock.sleepers().push(until);
        Self { clock, until }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.clock.sleepers();
        if let Some(place) = sleepers.iter().position(|until| *until == self.until) {
            sleepers.swap_remove(place);
        }
    }
}

impl Clock {
    /// Creates the machine's clock.
    pub(crate) fn system() -> Self {
        Self::System(Started::now())
    }

    /// Returns the present moment.
    pub(crate) fn moment(&self) -> Moment {
        let now = match self {
            Self::System(_) => tidegate_aws::clock::now(),
            Self::Manual(clock) => EpochMillis::new(clock.epoch_millis()),
        };
        // To a clock before 1970 or after 9998, nothing has accrued in any bucket.
        Moment { now: now.unwrap_or(EpochMillis::EPOCH), elapsed: self.elapsed() }
    }

    /// Returns the time since the clock was made, or since 1970 if it is manual.
    pub(crate) fn elapsed(&self) -> Duration {
        match self {
            Self::System(started) => started.elapsed(),
            Self::Manual(clock) => Duration::from_millis(clock.epoch_millis().unsigned_abs()),
        }
    }

    /// Waits.
    pub(crate) async fn sleep(&self, time: Duration) {
        match self {
            Self::System(_) => tokio::time::sleep(time).await,
            Self::Manual(clock) => clock.sleep(time).await,
        }
    }
}
