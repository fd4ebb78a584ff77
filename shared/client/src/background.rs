//! Tasks that write. They go on if their caller goes away, and `flush` waits for them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::FutureExt as _;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};

pub(crate) struct Background {
    running: AtomicUsize,
    idle: Notify,
    runtime: Handle,
}

/// The runtime has ended before the task.
#[derive(Debug, thiserror::Error)]
#[error("the Tokio runtime in which the client was built has ended")]
pub(crate) struct RuntimeEnded;

impl Background {
    pub(crate) fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self { running: AtomicUsize::new(0), idle: Notify::new(), runtime })
    }

    /// Starts a task that writes. [`flush`](Self::flush) waits for it.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(self));
        // An async block around the task would hold it twice.
        self.runtime.spawn(task.inspect(move |()| drop(running)));
    }

    /// Starts a task that writes, and waits for its result. If the caller goes away, the result is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, RuntimeEnded> {
        let (result, received) = oneshot::channel();
        self.spawn(task.map(|done| drop(result.send(done))));
        received.await.map_err(|_| RuntimeEnded)
    }

    /// Waits until no task writes.
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

/// A task that runs, whether it ends or panics.
struct Running(Arc<Background>);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
