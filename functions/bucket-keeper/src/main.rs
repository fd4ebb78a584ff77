//! The Lambda function `bucket-keeper`.

use bucket_keeper::{BucketKeeper, config::Config, report::METRICS};
use tidegate_aws::{client, settings::variable};
use tidegate_lambda::{process, telemetry::Telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::read(variable)?;
    let sdk = client::config_from_env().await;
    let keeper = &BucketKeeper::new(config, client::dynamodb(&sdk), client::sqs(&sdk));
    process::run(telemetry, async |invocation| keeper.invoke(invocation).await).await
}
