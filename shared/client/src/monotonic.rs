//! A monotonic clock.
//!
//! With the feature `fleet`, it runs on Linux and macOS while the machine sleeps, because a lease ends meanwhile. Otherwise it is
//! the clock of [`std::time::Instant`], which stands still there while the machine sleeps.

use std::time::Duration;
#[cfg(not(all(feature = "fleet", any(target_os = "linux", target_vendor = "apple"))))]
use std::time::Instant as Moment;

#[cfg(all(feature = "fleet", any(target_os = "linux", target_vendor = "apple")))]
use self::boot::Moment;

/// When a clock was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started(Moment);

impl Started {
    /// Starts a clock.
    pub(crate) fn now() -> Self {
        Self(Moment::now())
    }

    /// Returns the time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(all(feature = "fleet", any(target_os = "linux", target_vendor = "apple")))]
mod boot {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    /// Apple's monotonic clock runs while the machine sleeps.
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::Monotonic;

    /// The time since the machine was booted, including the time in which it slept.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Moment(Duration);

    impl Moment {
        pub(super) fn now() -> Self {
            // It is never negative.
            Self(Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default())
        }

        pub(super) fn elapsed(self) -> Duration {
            Self::now().0.saturating_sub(self.0)
        }
    }
}
