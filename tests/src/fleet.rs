//! Workers of a fleet and `rate-aggregator`, on an embedded S3 and by one manual clock.

use tidegate::{
    ManualClock,
    fleet::{Cost, Worker, WorkerBuilder},
};
use tidegate_aws::client;
use tidegate_sandbox::s3::BUCKET;
use tokio::{
    task::{JoinSet, yield_now},
    time::timeout_at,
};

use crate::aggregator::prelude::*;

/// What the scenarios of fleets use.
pub mod prelude {
    pub use tidegate::fleet::{LimitedBy, Worker, WorkerStatus};

    pub use super::{FleetScene, Reader};
    pub use crate::aggregator::prelude::*;
}

/// The steps of the clock in a second. A throttle holds what accrues in two steps.
const STEPS: u32 = 20;

/// The bucket of a fleet. The clocks of its workers, of the store and of the aggregator stand still between the steps of a
/// scenario.
#[derive(Debug)]
pub struct FleetScene {
    pub aggregator: AggregatorScene,
    pub clock: ManualClock,
    s3: aws_sdk_s3::Client,
}

impl FleetScene {
    pub async fn new() -> anyhow::Result<Self> {
        let aggregator = AggregatorScene::new().await?;
        // Each call is tried once: what fails is tried again by the manual clock.
        let sdk = sdk_config(&aggregator.s3.endpoint(), FaultyHttp::undisturbed()).to_builder();
        let sdk = sdk.retry_config(aws_sdk_s3::config::retry::RetryConfig::disabled()).build();
        Ok(Self { aggregator, clock: ManualClock::new(NOW), s3: client::s3(&sdk, true) })
    }

    pub const fn s3(&self) -> &aws_sdk_s3::Client {
        &self.s3
    }

    /// A worker whose fleet may read 1,000 units a second, and write 100.
    pub fn worker(&self) -> WorkerBuilder {
        Worker::builder(self.s3.clone(), BUCKET, PREFIX).caps(1_000.0, 100.0).clock(self.clock.clone())
    }

    /// Lets so many seconds pass in small steps. In each, `waiting` callers of the clock do what is due, and wait again. The
    /// aggregator runs every five seconds.
    pub async fn pass(&self, seconds: u32, waiting: usize) -> anyhow::Result<()> {
        for _ in 0..seconds {
            self.pass_alone(1, waiting).await?;
            if (self.clock.epoch_millis() - NOW) % 5_000 == 0 {
                self.aggregator.aggregate(self.clock.epoch_millis()).await;
            }
        }
        Ok(())
    }

    /// The same without the aggregator.
    pub async fn pass_alone(&self, seconds: u32, waiting: usize) -> anyhow::Result<()> {
        self.settled(waiting).await?;
        for _ in 0..seconds * STEPS {
            self.clock.advance(Duration::from_secs(1) / STEPS);
            self.aggregator.bucket().set_time(time(self.clock.epoch_millis()));
            self.settled(waiting).await?;
        }
        Ok(())
    }

    async fn settled(&self, waiting: usize) -> anyhow::Result<()> {
        let settled = async {
            while self.clock.waiting() != waiting {
                yield_now().await;
            }
        };
        let has_settled = timeout_at(in_time(), settled).await;
        has_settled.with_context(|| format!("{} callers wait, not {waiting}", self.clock.waiting()))
    }

    /// A worker's file.
    pub fn file(&self, worker: &Worker) -> Option<Value> {
        let file = self.aggregator.bucket().get(&worker_key(PREFIX, worker.id()))?;
        serde_json::from_slice(&file.content).ok()
    }
}

/// A caller that reads as much as a worker's throttle lets it, one unit at a time. It ends when it is dropped.
#[derive(Debug)]
pub struct Reader(#[expect(dead_code, reason = "its drop ends the task")] JoinSet<()>);

impl Reader {
    pub fn start(worker: &Worker) -> anyhow::Result<Self> {
        let (throttle, cost) = (worker.throttle().clone(), Cost::read(1.0)?);
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let _ = throttle.admit(cost).await.settle(1.0);
            }
        });
        Ok(Self(task))
    }
}
