//! The worker of a fleet: it holds a lease, and its throttle keeps to it.

#[cfg(feature = "capacity")]
mod announcing;
mod builder;
mod status;
mod task;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    task::JoinHandle,
};

pub use self::{
    builder::{BuildError, WorkerBuilder},
    status::{AnnouncementState, CapacityStatus, LimitedBy, WorkerStatus},
};
use self::{status::View, task::Task};
use super::{FilesError, throttle::Throttle};

/// A member of a fleet whose workers share the capacity of a table.
///
/// All workers of a fleet use one prefix of a bucket. Each has a file there, and `rate-aggregator` writes `summary.json` beside
/// them. From the summary, each worker knows its lease: its share of the cap. The leases together never exceed 98 % of the
/// cap, whatever calls fail, and whatever worker starts, stops or dies. The workers of Bulk Executor can take part: they
/// follow their own rule, on the same files.
///
/// Without a lease, a worker may use one capacity unit a second, of reads and of writes, beside the cap. It gets a lease
/// within seconds if `rate-aggregator` runs on the prefix, and within a minute if the function has to find the prefix again.
///
/// A lease ends 15 seconds after the report that it answers. Then the worker uses the lowest of its lease, an equal share of
/// the cap, and what its later reports said that it held. If only the function fails, it keeps that share. After 45 seconds
/// without the bucket, it may use one unit a second again.
///
/// ```no_run
/// use tidegate::fleet::Worker;
///
/// # async fn example(config: aws_config::SdkConfig, s3: aws_sdk_s3::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let worker = Worker::builder(s3, "my-bucket", "rates/").caps(20_000.0, 5_000.0).max(1_500.0, 500.0).start()?;
/// let dynamodb = worker.throttle().client(&config);
/// dynamodb.scan().table_name("orders").send().await?;
/// println!("{:?}", worker.status());
/// worker.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// [Stop](Self::stop) the worker when its work is done: then the others get its share at once. Otherwise it stops when the
/// worker, its throttle and all clients of the throttle are dropped. A process that dies, or whose runtime ends, blocks its
/// share for a minute. Run a worker in a process that stays, not in Lambda, which freezes a process between two invocations.
pub struct Worker {
    id: Arc<str>,
    throttle: Throttle,
    view: Arc<Mutex<View>>,
    stop: watch::Sender<bool>,
    /// `None` after it was stopped.
    task: AsyncMutex<Option<JoinHandle<Result<(), FilesError>>>>,
}

impl Worker {
    /// Starts to build a worker whose fleet uses a prefix of a bucket. A `/` is added to the prefix if it ends otherwise.
    ///
    /// The client needs the permissions `s3:GetObject` on `{prefix}summary.json`, and `s3:PutObject` and `s3:DeleteObject`
    /// on `{prefix}worker-*.json`.
    pub fn builder(client: aws_sdk_s3::Client, bucket: impl Into<String>, prefix: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder::new(client, bucket.into(), prefix.into())
    }

    /// Returns the worker's id: the name of its file is `worker-{id}.json`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the throttle that keeps to the lease.
    #[must_use]
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Returns what the worker may use, and what limits it.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).status(&self.throttle)
    }

    /// Stops the worker: its throttle lets nothing pass any more, and its file is deleted. A caller that still waits in
    /// [`Throttle::admit`] waits for ever.
    ///
    /// The task of the worker goes on if the future is dropped. Another call does nothing.
    ///
    /// # Errors
    /// [`FilesError`] if the file could not be deleted. The share of the worker is then free after a
    /// minute.
    pub async fn stop(&self) -> Result<(), FilesError> {
        self.stop.send_replace(true);
        let mut task = self.task.lock().await;
        let Some(running) = task.as_mut() else { return Ok(()) };
        let stopped = running.await;
        *task = None;
        stopped.map_err(|_| FilesError::TaskEnded)?
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).finish_non_exhaustive()
    }
}
