//! The Lambda function `token-sweeper`.

use lambda_runtime::{LambdaEvent, service_fn};
use tidegate_aws::{
    client,
    emr::Clusters,
    telemetry::{self, Metrics},
    tokens::Tokens,
};
use token_sweeper::{config::Config, event::Event, handler::TokenSweeper, reconcile::Memory};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    telemetry::init_logs();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let sweeper = &TokenSweeper {
        tokens: Tokens::new(client::dynamodb(&sdk), config.table, config.index),
        clusters: config.reconcile_emr.then(|| Clusters::new(client::emr(&sdk))),
        processors: config.processors,
        grace: config.grace,
        dry_run: config.dry_run,
        concurrency: config.concurrency,
        memory: Memory::default(),
    };
    let metrics = &Metrics::to_stdout();
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Event>| sweeper.invoke(event, metrics).await))
        .await
        .map_err(anyhow::Error::from_boxed)
}
