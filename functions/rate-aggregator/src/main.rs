//! The Lambda function `rate-aggregator`.

use rate_aggregator::{RateAggregator, config::Config, report::METRICS};
use tidegate_aws::{client, rates::RateFiles, settings::variable};
use tidegate_lambda::{process, telemetry::Telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::read(variable)?;
    let sdk = client::config_from_env().await;
    let s3 = client::s3(&sdk, config.force_path_style);
    let files = RateFiles::new(s3, config.bucket.clone(), config.summary.clone());
    let aggregator = &RateAggregator::new(files, &config);
    process::run(telemetry, async |invocation| aggregator.invoke(invocation).await).await
}
