//! The invocations of one announcement, one after another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::{
    answer::{Announced, Released},
    error::CapacityError,
    function::{Failed, Function, PossibleEffect},
    request::{Request, Work},
};
use crate::{background::Background, clock::Clock, operation_ids::random_id};

/// How long a call other than an announcement is repeated if it fails.
const RETRY_TIME: Duration = Duration::from_mins(1);

/// The shortest and the longest time until an invocation that failed is repeated.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));

/// What all clones of a coordinator share.
pub(super) struct Shared {
    pub(super) function: Function,
    pub(super) clock: Clock,
    pub(super) background: Arc<Background>,
}

impl Shared {
    /// Invokes the function, and repeats an invocation that fails for [`RETRY_TIME`] at most.
    pub(super) async fn call<A: DeserializeOwned>(&self, request: &Request<'_>) -> Result<A, Failed> {
        let mut attempts = Attempts::until(self.clock.elapsed().saturating_add(RETRY_TIME));
        loop {
            match self.function.invoke(request).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => attempts.wait_after(failed, &self.clock).await?,
            }
        }
    }

    /// Starts an invocation in a task of its own at once. It continues if the caller is dropped.
    pub(super) fn in_background<A: Send + 'static>(
        self: &Arc<Self>,
        invocation: impl Future<Output = Result<A, Failed>> + Send + 'static,
    ) -> BoxFuture<'static, Result<A, Failed>> {
        let (shared, running) = (Arc::clone(self), self.background.run(invocation));
        running.map(move |ended| ended.unwrap_or_else(|error| Err(shared.function.ended(error)))).boxed()
    }
}

/// The attempts of one call.
struct Attempts {
    /// When the last one must have begun, by the clock of the coordinator.
    end: Duration,
    backoff: Duration,
}

impl Attempts {
    const fn until(end: Duration) -> Self {
        Self { end, backoff: BACKOFF.0 }
    }

    /// Waits until the next attempt. Returns the error if there is none.
    async fn wait_after(&mut self, failed: Failed, clock: &Clock) -> Result<(), Failed> {
        // At least half of the backoff, so that callers that failed together do not come back together.
        let wait = self.backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
        if !failed.is_retryable || clock.elapsed().saturating_add(wait) >= self.end {
            return Err(failed);
        }
        tracing::debug!(error = %failed.error, "an invocation has failed and is repeated");
        clock.sleep(wait).await;
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
        Ok(())
    }
}

/// Runs the invocations of one announcement one after another.
pub(super) struct InvocationQueue {
    shared: Arc<Shared>,
    id: String,
    /// A random text. The function refuses an invocation of this run that arrives after its release.
    run: String,
    /// Nothing is announced any more.
    is_released: AtomicBool,
    /// Whether an invocation so far may have announced the work, or may still do so. Locked during an invocation.
    may_be_in_force: Mutex<bool>,
}

/// The announcement was released before it was sent again.
#[derive(Debug, thiserror::Error)]
#[error("the announcement has been released")]
struct IsReleased;

impl InvocationQueue {
    pub(super) fn new(shared: &Arc<Shared>, id: String) -> Arc<Self> {
        let (run, is_released, may_be_in_force) = (random_id(), AtomicBool::new(false), Mutex::default());
        Arc::new(Self { shared: Arc::clone(shared), id, run, is_released, may_be_in_force })
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Announces the work, and repeats an invocation that fails until a time of the clock. Each invocation goes on if the
    /// future is dropped.
    pub(super) async fn announce(self: &Arc<Self>, work: &Work, end: Duration) -> Result<Announced, CapacityError> {
        let mut attempts = Attempts::until(end);
        loop {
            let (queue, work) = (Arc::clone(self), work.clone());
            let announced = self.shared.in_background(async move { queue.announce_once(&work).await });
            match announced.await {
                Ok(answer) => return Ok(answer),
                Err(failed) => attempts.wait_after(failed, &self.shared.clock).await.map_err(|failed| failed.error)?,
            }
        }
    }

    async fn announce_once(&self, work: &Work) -> Result<Announced, Failed> {
        let mut may_be_in_force = self.may_be_in_force.lock().await;
        if self.is_released.load(Ordering::Acquire) {
            return Err(self.shared.function.ended(IsReleased));
        }
        let request = Request::Announce { id: &self.id, run: &self.run, work };
        let announced = self.shared.function.invoke(&request).await;
        match announced.as_ref().map_err(|failed| failed.effect) {
            Ok(_) | Err(PossibleEffect::Announcement) => *may_be_in_force = true,
            Err(PossibleEffect::IdTaken) => *may_be_in_force = false,
            Err(PossibleEffect::Nothing) => {}
        }
        announced
    }

    /// Releases the announcement, unless no invocation can have made it. The release waits for an invocation that is running,
    /// and goes on if the future is dropped.
    pub(super) fn release(self: &Arc<Self>) -> BoxFuture<'static, Result<(), CapacityError>> {
        self.is_released.store(true, Ordering::Release);
        let queue = Arc::clone(self);
        let released = self.shared.in_background(async move { queue.release_in_order().await });
        released.map_err(|failed| failed.error).boxed()
    }

    /// The same, for a caller that does not wait.
    pub(super) fn release_in_background(self: &Arc<Self>) {
        self.is_released.store(true, Ordering::Release);
        let queue = Arc::clone(self);
        self.shared.background.spawn(async move {
            if let Err(failed) = Arc::clone(&queue).release_in_order().await {
                warn_of(&queue.id, &failed.error);
            }
        });
    }

    async fn release_in_order(self: Arc<Self>) -> Result<(), Failed> {
        let mut may_be_in_force = self.may_be_in_force.lock().await;
        if *may_be_in_force {
            let Released { .. } = self.shared.call(&Request::Release { id: &self.id, run: Some(&self.run) }).await?;
            *may_be_in_force = false;
        }
        Ok(())
    }
}

/// Logs that an announcement could not be released.
pub(super) fn warn_of(id: &str, error: &CapacityError) {
    tracing::warn!(id, %error, "could not release an announcement: it ends by itself");
}
