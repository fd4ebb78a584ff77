//! The Lambda function `usage-rollup`.

use lambda_runtime::{LambdaEvent, service_fn};
use tidegate_aws::{
    client, clock, dead_letters::DeadLetterQueue, snapshots::Snapshots, stream::StreamEvent, telemetry,
};
use usage_rollup::{config::Config, handler::UsageRollup};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_runtime::Error> {
    telemetry::init();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let function = &UsageRollup {
        windows: config.windows,
        snapshots: Snapshots::new(client::dynamodb(&sdk), config.table, config.retention_days),
        dead_letters: config.dead_letter_queue.map(|url| DeadLetterQueue::new(client::sqs(&sdk), url)),
        concurrency: config.concurrency,
    };
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<StreamEvent>| {
        let deadline = clock::before(event.context.deadline)?;
        let handled = function.handle(&event.payload, deadline).await;
        tracing::info!(report = ?handled.report, "batch handled");
        Ok::<_, lambda_runtime::Error>(handled.answer?)
    }))
    .await
}
