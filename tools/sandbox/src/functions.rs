//! The stream functions as Lambda runs them, on embedded services.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use bucket_keeper::{BucketKeeper, config::Config, handler::Handled, repair::Repaired, report::KeeperReport};
use tidegate_aws::{client, stream::StreamEvent};
use tidegate_domain::{time::EpochMillis, window::Window};
use tokio::time::Instant;
use usage_rollup::UsageRollup;

use crate::{
    faults::{FaultRates, FaultyHttp, sdk_config},
    pump::{Done, Function},
    services::Services,
};

const RETENTION_DAYS: u16 = 90;
const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Creates `usage-rollup` with all three windows and the services' dead-letter queue. It reaches the table through `http`.
pub fn usage_rollup(services: &Services, http: &FaultyHttp) -> Arc<UsageRollup> {
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http.clone()));
    let sqs = client::sqs(&sdk_config(services.queue.endpoint(), FaultyHttp::new(FaultRates::default(), 0)));
    let config = usage_rollup::config::Config {
        table: services.table.clone(),
        windows: Window::ALL.to_vec(),
        retention_days: RETENTION_DAYS,
        dead_letter_queue: Some(services.queue.url().to_owned()),
        concurrency: CONCURRENCY,
    };
    Arc::new(UsageRollup::new(config, dynamodb, sqs))
}

/// `bucket-keeper` at a simulated time.
#[derive(Debug)]
pub struct TimedKeeper {
    pub keeper: BucketKeeper,
    now: Mutex<EpochMillis>,
}

/// Creates `bucket-keeper` with its defaults and the services' dead-letter queue. It reaches the table through `http`, and
/// its time is `now`.
pub fn bucket_keeper(services: &Services, http: &FaultyHttp, now: EpochMillis) -> anyhow::Result<Arc<TimedKeeper>> {
    let config =
        Config::read(|name| (name == "TABLE_NAME").then(|| services.table.clone())).context("the keeper's defaults")?;
    let dynamodb = client::dynamodb(&sdk_config(&services.endpoint, http.clone()));
    let sqs = client::sqs(&sdk_config(services.queue.endpoint(), FaultyHttp::new(FaultRates::default(), 0)));
    let config = Config {
        dead_letter_queue: Some(services.queue.url().to_owned()),
        concurrency: CONCURRENCY,
        own_table: true,
        ..config
    };
    Ok(Arc::new(TimedKeeper { keeper: BucketKeeper::new(config, dynamodb, sqs), now: Mutex::new(now) }))
}

impl TimedKeeper {
    pub fn set_now(&self, now: EpochMillis) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Repairs the sharded buckets.
    pub async fn repair(&self, deadline: Instant) -> Repaired {
        Box::pin(self.keeper.repair(self.now(), deadline)).await
    }

    fn now(&self) -> EpochMillis {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Function for TimedKeeper {
    type Report = KeeperReport;

    async fn handle(&self, event: &StreamEvent, deadline: Instant) -> Done<KeeperReport> {
        let Handled { report, answer } = Box::pin(self.keeper.handle(event, self.now(), deadline)).await;
        (report, answer)
    }
}
