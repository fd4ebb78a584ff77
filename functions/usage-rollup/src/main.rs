//! The Lambda function `usage-rollup`.

use tidegate_aws::{client, dead_letters::DeadLetterQueue, snapshots::Snapshots};
use tidegate_lambda::{process, telemetry::Telemetry};
use usage_rollup::{config::Config, handler::UsageRollup, report::METRICS};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let function = &UsageRollup {
        windows: config.windows,
        snapshots: Snapshots::new(client::dynamodb(&sdk), config.table, config.retention_days),
        dead_letters: config
            .dead_letter_queue
            .map(|url| DeadLetterQueue::new(client::sqs(&sdk), url, env!("CARGO_PKG_NAME"))),
        concurrency: config.concurrency,
    };
    process::run(telemetry, async |invocation| function.invoke(invocation).await).await
}
