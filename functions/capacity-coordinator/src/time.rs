//! The time of an invocation.

use std::time::Duration;

use tidegate_domain::time::EpochMillis;
use tokio::time::Instant;

/// The present moment of an invocation, which moves on while it runs, and its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    invoked: EpochMillis,
    begun: Instant,
    /// When the answer must begin.
    pub(crate) deadline: Instant,
}

impl Time {
    pub(crate) fn new(invoked: EpochMillis, deadline: Instant) -> Self {
        Self { invoked, begun: Instant::now(), deadline }
    }

    /// When the invocation began.
    pub(crate) const fn invoked(self) -> EpochMillis {
        self.invoked
    }

    pub(crate) fn now(self) -> EpochMillis {
        self.invoked.after(self.begun.elapsed())
    }

    /// Returns the earlier of the deadline and the end of `duration` from the moment `since`.
    pub(crate) fn within(self, since: EpochMillis, duration: Duration) -> Instant {
        self.deadline.min(self.begun + since.since(self.invoked) + duration)
    }
}
