//! The Lambda function `usage-rollup`.

use tidegate_aws::{client, settings::variable};
use tidegate_lambda::{process, telemetry::Telemetry};
use usage_rollup::{UsageRollup, config::Config, report::METRICS};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::read(variable)?;
    let sdk = client::config_from_env().await;
    let function = &UsageRollup::new(config, client::dynamodb(&sdk), client::sqs(&sdk));
    process::run(telemetry, async |invocation| function.invoke(invocation).await).await
}
