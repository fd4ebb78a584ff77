//! An announcement in force, and its release.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    answer::{Announced, AnnouncedTarget},
    error::CapacityError,
    queue::{InvocationQueue, Shared},
    request::Work,
};

/// An announcement whose capacity is ready. It is released when it is dropped.
///
/// Made by [`AnnounceBuilder`](super::AnnounceBuilder).
#[must_use = "the announcement is released when it is dropped"]
pub struct Announcement {
    held: Held,
    work: Work,
    /// How long a renewal is repeated.
    deadline: Duration,
    answer: Announced,
}

impl Announcement {
    pub(super) const fn new(held: Held, work: Work, deadline: Duration, answer: Announced) -> Self {
        Self { held, work, deadline, answer }
    }

    /// Returns the id, by which [`Coordinator::release`](super::Coordinator::release) finds the announcement in another
    /// process.
    #[must_use]
    pub fn id(&self) -> &str {
        self.held.queue.id()
    }

    /// Returns what the table provides, in capacity units a second, or the index if one was named. `None` for an on-demand
    /// table.
    #[must_use]
    pub fn provisioned(&self) -> Option<u64> {
        self.answer.provisioned
    }

    /// Returns when the announcement ends, by the function's clock.
    #[must_use]
    pub fn until(&self) -> SystemTime {
        self.answer.until
    }

    /// Returns what the tables and indexes had and needed when the announcement was made or [renewed](Self::renew).
    #[must_use]
    pub fn targets(&self) -> &[AnnouncedTarget] {
        &self.answer.targets
    }

    /// Returns whether the capacity was ready when the announcement was made or [renewed](Self::renew). It is ready when it is
    /// made. At a renewal, it may not be: more may be consumed meanwhile, and need more capacity.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.answer.ready
    }

    /// Returns whether the function makes a dry run: it has changed nothing.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.answer.dry_run
    }

    /// Lets the announcement last for a time from now on. It never ends earlier than before. If it has ended already, it is
    /// made again.
    ///
    /// An invocation that fails is repeated for up to the [deadline](super::AnnounceBuilder::deadline) of the request. One
    /// invocation takes up to a minute if the table needs more capacity than it has. An invocation goes on if the future is
    /// dropped.
    ///
    /// # Errors
    /// [`CapacityError`], but not [`CapacityError::NotReady`]. The announcement then lasts as long as before, or longer if an
    /// answer was lost.
    pub async fn renew(&mut self, lasting: Duration) -> Result<(), CapacityError> {
        let work = Work { for_seconds: whole_seconds(lasting), ..self.work.clone() };
        work.check()?;
        let end = self.held.queue.shared().clock.elapsed().saturating_add(self.deadline);
        self.answer = self.held.queue.announce(&work, end).await?;
        Ok(())
    }

    /// Releases the announcement, and waits until the function has answered. The release goes on if the future is dropped.
    ///
    /// # Errors
    /// [`CapacityError`], but not [`CapacityError::NotReady`], if the function could not be invoked within a minute. The
    /// announcement then ends [by itself](Self::until).
    pub async fn release(self) -> Result<(), CapacityError> {
        self.held.release().await
    }

    /// Keeps the announcement until it ends by itself, or is released by its id.
    pub fn keep(mut self) {
        self.held.is_settled = true;
    }
}

impl fmt::Debug for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, answer, .. } = self;
        f.debug_struct("Announcement")
            .field("id", &self.id())
            .field("work", work)
            .field("answer", answer)
            .finish_non_exhaustive()
    }
}

/// An announcement that may be in force. It is released when it is dropped.
pub(super) struct Held {
    pub(super) queue: Arc<InvocationQueue>,
    is_settled: bool,
}

impl Held {
    pub(super) fn new(shared: &Arc<Shared>, id: String) -> Self {
        Self { queue: InvocationQueue::new(shared, id), is_settled: false }
    }

    pub(super) async fn release(mut self) -> Result<(), CapacityError> {
        let released = self.queue.release();
        self.is_settled = true;
        released.await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_settled {
            self.queue.release_in_background();
        }
    }
}

/// Rounds up to seconds.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
