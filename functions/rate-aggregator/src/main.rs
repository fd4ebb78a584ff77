//! The Lambda function `rate-aggregator`.

use lambda_runtime::{LambdaEvent, service_fn};
use rate_aggregator::{config::Config, event::Event, handler::RateAggregator};
use tidegate_aws::{
    client,
    rates::RateFiles,
    telemetry::{self, Metrics},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    telemetry::init_logs();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let s3 = client::s3(&sdk, config.force_path_style);
    let files = RateFiles::new(s3, config.bucket.clone(), config.summary.clone());
    let aggregator = &RateAggregator::new(files, &config);
    let metrics = &Metrics::to_stdout();
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Event>| aggregator.invoke(event, metrics).await))
        .await
        .map_err(anyhow::Error::from_boxed)
}
