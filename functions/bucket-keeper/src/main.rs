//! The Lambda function `bucket-keeper`.

use bucket_keeper::{BucketKeeper, config::Config, report::METRICS};
use tidegate_aws::{buckets::Buckets, client, dead_letters::DeadLetterQueue, registry::Registry};
use tidegate_lambda::{process, telemetry::Telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let dynamodb = client::dynamodb(&sdk);
    let keeper = &BucketKeeper {
        buckets: Buckets::new(dynamodb.clone(), &config.table),
        registry: Registry::new(dynamodb, &config.table),
        dead_letters: config
            .dead_letter_queue
            .map(|url| DeadLetterQueue::new(client::sqs(&sdk), url, env!("CARGO_PKG_NAME"))),
        pressure: config.pressure,
        concurrency: config.concurrency,
        own_table: config.own_table,
    };
    process::run(telemetry, async |invocation| keeper.invoke(invocation).await).await
}
