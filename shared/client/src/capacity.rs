//! Announces work to the function `capacity-coordinator` before the work hits a table.
//!
//! A job that starts suddenly on a provisioned table is throttled until auto scaling reacts, which takes minutes. If the job
//! announces its work, the function raises the minimum of the table's scalable target, and the job starts when the capacity
//! is there.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::capacity::{CapacityError, CapacityKind, Coordinator};
//!
//! # async fn load() {}
//! # async fn example(lambda: aws_sdk_lambda::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let coordinator = Coordinator::new(lambda, "tidegate-capacity-coordinator");
//!
//! let announced = coordinator.announce("orders", CapacityKind::Write, 4_000).lasting(Duration::from_mins(30)).await;
//! match announced {
//!     Ok(announcement) => {
//!         load().await;
//!         announcement.release().await?;
//!     }
//!     Err(CapacityError::NotReady(missing)) => println!("start slowly: {missing}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What an announcement guarantees
//!
//! - An announcement that was dropped is released in the background, and so is one whose request was cancelled at any await
//!   point. The release never overtakes an invocation that announces: the invocations of an announcement run one after
//!   another, in tasks of their own. If an invocation was cut off and reaches the function after the release, the function
//!   refuses it.
//! - A process that dies releases nothing. Its announcements end by themselves after the [time](AnnounceBuilder::lasting)
//!   that they were made for.
//! - An invocation that fails or is cut off is repeated with the same id, and the same id is one announcement.
//!
//! # Invocations
//!
//! The client needs the permission `lambda:InvokeFunction` on the function. One invocation takes up to a minute, because the
//! function waits until the capacity is there. By default, an invocation is cut off after 70 seconds. If the client of the SDK
//! has timeouts of its own that are shorter, they cut invocations off earlier. They are repeated while the earlier ones still run,
//! so use a client without such timeouts.
//! The retries of the SDK are switched off, because this crate repeats invocations itself.

mod announcement;
mod answer;
mod builder;
mod error;
mod function;
mod queue;
mod request;

use std::{fmt, sync::Arc};

use aws_sdk_lambda::Client;
use tokio::runtime::Handle;

pub use self::{
    announcement::Announcement,
    answer::{AnnouncedTarget, ListedAnnouncement, StatusCapacity, TargetCapacity, TargetStatus},
    builder::AnnounceBuilder,
    error::{CapacityError, NotReady, RefusalReason, Refused},
};
use self::{
    answer::{Listed, Released},
    function::Function,
    queue::Shared,
    request::{Request, checked_id},
};
use crate::{background::Background, clock::Clock};
pub use tidegate_domain::throttle::CapacityKind;

/// The function `capacity-coordinator` of an account. Clones are cheap.
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<Shared>,
}

impl Coordinator {
    /// Creates a client of a function, which is given by its name or ARN. This makes no call.
    ///
    /// It invokes the function in tasks of the Tokio runtime in which this is called, so it must not outlive that runtime.
    ///
    /// # Panics
    /// If it is called outside of a Tokio runtime.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "all clients of this crate are made so")]
    pub fn new(client: Client, function_name: impl Into<String>) -> Self {
        let function = Function::new(&client, function_name.into());
        Self::of(Shared { function, clock: Clock::system(), background: Background::new(Handle::current()) })
    }

    /// Replaces the clock, for tests. Call this before you clone the coordinator.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn clock(self, clock: crate::ManualClock) -> Self {
        let Shared { function, background, .. } = &*self.shared;
        let (function, background) = (function.clone(), Arc::clone(background));
        Self::of(Shared { function, clock: Clock::Manual(clock), background })
    }

    fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Starts an announcement of so many capacity units a second on a table, beside what the table serves now. Await the
    /// builder to send it.
    pub fn announce(&self, table: impl Into<String>, kind: CapacityKind, units: u64) -> AnnounceBuilder {
        AnnounceBuilder::new(self.clone(), table.into(), kind, units)
    }

    /// Releases an announcement of this or another process. Returns whether it was in force.
    ///
    /// The invocation goes on if the future is dropped. It is repeated for up to a minute.
    ///
    /// # Errors
    /// [`CapacityError`], but not [`CapacityError::NotReady`].
    pub async fn release(&self, id: impl Into<String>) -> Result<bool, CapacityError> {
        let (shared, id) = (Arc::clone(&self.shared), checked_id(id.into())?);
        let released = async move { shared.call::<Released>(&Request::Release { id: &id, run: None }).await };
        let released = self.shared.in_background(released).await.map_err(|failed| failed.error)?;
        Ok(released.released)
    }

    /// Lists the announcements in force.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub async fn list(&self) -> Result<Vec<ListedAnnouncement>, CapacityError> {
        let listed = self.shared.call::<Listed>(&Request::List).await.map_err(|failed| failed.error)?;
        Ok(listed.announcements)
    }

    /// Returns what a table, or an index of it, provides and needs.
    ///
    /// # Errors
    /// As for [`release`](Self::release).
    pub async fn status(
        &self,
        table: &str,
        index: Option<&str>,
        kind: CapacityKind,
    ) -> Result<TargetStatus, CapacityError> {
        let request = Request::Status { table, index, dimension: kind };
        self.shared.call(&request).await.map_err(|failed| failed.error)
    }

    /// Waits until no invocation is running that announces or releases, such as that of a dropped announcement.
    ///
    /// Call it before the process ends. In a Lambda function, call it before the response. It takes up to 70 seconds while an
    /// invocation is running, and up to a minute more if its release fails and is repeated.
    pub async fn flush(&self) {
        self.shared.background.flush().await;
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("function", &self.shared.function.name()).finish_non_exhaustive()
    }
}
