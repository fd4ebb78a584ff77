//! Runs writes in tasks that continue when the caller is cancelled.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};

pub(crate) struct Background {
    running: AtomicUsize,
    idle: Notify,
    runtime: Handle,
}

/// A task ended without a result.
#[derive(Debug, thiserror::Error)]
#[error("the task that writes ended early, because it panicked or its Tokio runtime has ended")]
pub(crate) struct TaskEnded;

impl Background {
    pub(crate) fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self { running: AtomicUsize::new(0), idle: Notify::new(), runtime })
    }

    /// Starts a task that writes. [`flush`](Self::flush) waits for it.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(self));
        // An async block would store the task twice and double its size.
        self.runtime.spawn(task.inspect(move |()| drop(running)));
    }

    /// Starts a task that writes, at once, and returns a future of its result. Dropping the future drops the result. The task
    /// continues.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, TaskEnded>> {
        let (result, received) = oneshot::channel();
        self.spawn(task.map(|done| drop(result.send(done))));
        received.map_err(|_| TaskEnded).boxed()
    }

    /// Waits until no task is running.
    pub(crate) async fn flush(&self) {
        loop {
            let idle = self.idle.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// Counts a running task until it ends or panics.
struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
