//! The Lambda function `usage-rollup`.

use std::{error::Error, time::Instant};

use lambda_runtime::{Diagnostic, LambdaEvent, service_fn};
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
        let deadline = clock::answer_by(event.context.deadline).map_err(|error| diagnostic("ClockError", &error))?;
        let handled = function.handle(&event.payload, deadline).await;
        measured.emit(&metrics::invocation(&event.context.request_id, started.elapsed(), handled.report));
        handled.answer.map_err(|error| diagnostic("Unreportable", &error))
    }))
    .await
    .map_err(anyhow::Error::from_boxed)
}

fn diagnostic(error_type: &str, error: &impl Error) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: error.to_string() }
}
