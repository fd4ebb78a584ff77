//! The functions that the table's stream feeds, beside the clients.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use futures::future::{Either, select};
use tidegate_sandbox::{
    faults::FaultyHttp,
    functions::{TimedKeeper, bucket_keeper, usage_rollup},
    pump::Pump,
    services::Services,
    stream::StreamReader,
};
use usage_rollup::UsageRollup;

/// The most records of a batch.
const BATCH: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99);
/// How often the stream is read.
const POLL: Duration = Duration::from_millis(100);

/// `usage-rollup` and `bucket-keeper`, each with an event source mapping of its own.
pub(crate) struct Functions {
    stream: StreamReader,
    rollup: Arc<UsageRollup>,
    keeper: Arc<TimedKeeper>,
    /// By stream shard.
    pumps: BTreeMap<String, (Pump<UsageRollup>, Pump<TimedKeeper>)>,
}

impl Functions {
    pub(crate) async fn new(services: &Services) -> anyhow::Result<Self> {
        let http = FaultyHttp::undisturbed();
        Ok(Self {
            stream: StreamReader::new(services.streams.clone(), services.stream_arn().await?),
            rollup: usage_rollup(services, &http),
            keeper: bucket_keeper(services, &http, tidegate_aws::clock::now()?)?,
            pumps: BTreeMap::new(),
        })
    }

    /// Delivers the stream until the work is done, and then what is left.
    pub(crate) async fn run_beside<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let mut work = Box::pin(work);
        let done = loop {
            let poll = Box::pin(async {
                tokio::time::sleep(POLL).await;
                self.deliver().await
            });
            match select(work, poll).await {
                Either::Left((done, poll)) => {
                    // A delivery that has begun is not cut off.
                    poll.await?;
                    break done?;
                }
                Either::Right((delivered, rest)) => {
                    delivered?;
                    work = rest;
                }
            }
        };
        while self.deliver().await? > 0 {}
        Ok(done)
    }

    /// Delivers the records that the stream has by now. Returns how many they are.
    async fn deliver(&mut self) -> anyhow::Result<usize> {
        let now = tidegate_aws::clock::now()?;
        self.keeper.set_now(now);
        let mut count = 0;
        for (shard, records) in self.stream.drain(now).await? {
            count += records.len();
            let (rollup, keeper) = self.pumps.entry(shard).or_insert_with(|| {
                let rollup = Pump::new(Arc::clone(&self.rollup), BATCH, None);
                (rollup, Pump::new(Arc::clone(&self.keeper), BATCH, None))
            });
            rollup.deliver(records.clone(), |_| {}).await?;
            keeper.deliver(records, |_| {}).await?;
            rollup.finish().await?;
            keeper.finish().await?;
        }
        Ok(count)
    }
}
