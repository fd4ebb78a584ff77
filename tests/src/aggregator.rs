//! `rate-aggregator` on an embedded S3, with workers' reports and summaries.

use rate_aggregator::{
    RateAggregator,
    config::Config,
    outcome::{Aggregated, Aggregation},
    publication::Times,
};
use tidegate_aws::{client, rates::RateFiles, schema::rates::worker_key};
use tidegate_sandbox::s3::{BUCKET, Bucket, EmbeddedS3, workers::report};

use crate::prelude::*;

/// What the scenarios of `rate-aggregator` use.
pub mod prelude {
    pub use rate_aggregator::outcome::Aggregated;
    pub use tidegate_aws::{error::causes, schema::rates::worker_key};
    pub use tidegate_sandbox::s3::{Bucket, Call, Calls, Fault, workers::report};

    pub use super::{AggregatorScene, NOW, PREFIX, aggregate, aggregate_within, only, summary, write};
    pub use crate::prelude::*;
}

/// The simulated time: 2026-01-01T00:00:00Z.
pub const NOW: i64 = 1_767_225_600_000;

/// Where the workers' files are.
pub const PREFIX: &str = "fleet/";

/// `rate-aggregator` on an embedded S3 of its own.
#[derive(Debug)]
pub struct AggregatorScene {
    pub s3: EmbeddedS3,
    pub aggregator: RateAggregator,
}

impl AggregatorScene {
    /// The function with its defaults; the bucket's clock stands at [`NOW`].
    pub async fn new() -> anyhow::Result<Self> {
        Self::with(&[]).await
    }

    /// The same with these variables.
    pub async fn with(variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let s3 = EmbeddedS3::start(None).await?;
        s3.bucket().set_time(time(NOW));
        let aggregator = process(&s3, variables)?;
        Ok(Self { s3, aggregator })
    }

    pub fn another_process(&self, variables: &[(&str, &str)]) -> anyhow::Result<RateAggregator> {
        process(&self.s3, variables)
    }

    /// The bucket, past the protocol.
    pub fn bucket(&self) -> &Bucket {
        self.s3.bucket()
    }

    /// Writes a worker's report, and its file's time with it.
    pub fn write(&self, worker: &str, at: i64, read_rate: f64, write_rate: f64) {
        write(self.bucket(), worker, at, read_rate, write_rate);
    }

    /// Aggregates what is under [`PREFIX`].
    pub async fn aggregate(&self, now: i64) -> Aggregated {
        only(aggregate(&self.aggregator, now).await)
    }

    /// The summary under [`PREFIX`].
    pub fn summary(&self) -> anyhow::Result<Value> {
        summary(self.bucket(), PREFIX)
    }
}

/// Writes a worker's report under [`PREFIX`].
pub fn write(bucket: &Bucket, worker: &str, at: i64, read_rate: f64, write_rate: f64) {
    bucket.put(worker_key(PREFIX, worker), report(worker, time(at), read_rate, write_rate), time(at));
}

/// One aggregation with more time than it needs.
pub async fn aggregate(aggregator: &RateAggregator, now: i64) -> Aggregation {
    aggregate_within(aggregator, now, Duration::from_mins(1)).await
}

/// One aggregation with this much time.
pub async fn aggregate_within(aggregator: &RateAggregator, now: i64, limit: Duration) -> Aggregation {
    let start = Instant::now();
    Box::pin(aggregator.aggregate(time(now), Times::new(start, limit, start + limit))).await
}

/// The one job of an aggregation.
pub fn only(aggregation: Aggregation) -> Aggregated {
    let jobs: [Aggregated; 1] = aggregation.jobs.try_into().expect("one job");
    let [job] = jobs;
    job
}

/// The summary under a prefix.
pub fn summary(bucket: &Bucket, prefix: &str) -> anyhow::Result<Value> {
    let summary = bucket.get(&format!("{prefix}summary.json")).context("no summary")?;
    Ok(serde_json::from_slice(&summary.content)?)
}

pub(crate) fn process(s3: &EmbeddedS3, variables: &[(&str, &str)]) -> anyhow::Result<RateAggregator> {
    // Few calls at the same time: on a busy machine, each of a hundred would take longer than an attempt may.
    let defaults = [("BUCKET", BUCKET), ("PREFIX", PREFIX), ("S3_FORCE_PATH_STYLE", "true"), ("MAX_CONCURRENCY", "16")];
    let lookup = |name: &str| variables.iter().chain(&defaults).find(|(key, _)| *key == name);
    let config = Config::read(|name| lookup(name).map(|(_, value)| (*value).to_owned()))?;
    let sdk = sdk_config(&s3.endpoint(), FaultyHttp::undisturbed());
    let files =
        RateFiles::new(client::s3(&sdk, config.force_path_style), config.bucket.clone(), config.summary.clone());
    Ok(RateAggregator::new(files, &config))
}
