//! The Lambda function `usage-rollup`.

use std::time::Instant;

use lambda_runtime::{LambdaEvent, service_fn};
use tidegate_aws::{
    client, clock,
    dead_letters::DeadLetterQueue,
    snapshots::Snapshots,
    stream::StreamEvent,
    telemetry::{self, Metrics},
};
use usage_rollup::{config::Config, handler::UsageRollup, metrics};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    telemetry::init_logs();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let function = &UsageRollup {
        windows: config.windows,
        snapshots: Snapshots::new(client::dynamodb(&sdk), config.table, config.retention_days),
        dead_letters: config.dead_letter_queue.map(|url| DeadLetterQueue::new(client::sqs(&sdk), url)),
        concurrency: config.concurrency,
    };
    let measured = &Metrics::to_stdout();
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<StreamEvent>| {
        let started = Instant::now();
        let handled = function.handle(&event.payload, clock::answer_by(event.context.deadline)?).await;
        measured.emit(&metrics::invocation(&event.context.request_id, started.elapsed(), handled.report));
        Ok::<_, lambda_runtime::Error>(handled.answer?)
    }))
    .await
    .map_err(anyhow::Error::from_boxed)
}
