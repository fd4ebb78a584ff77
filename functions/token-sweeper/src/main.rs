//! The Lambda function `token-sweeper`.

use tidegate_aws::{client, emr::Clusters, tokens::Tokens};
use tidegate_lambda::{process, telemetry::Telemetry};
use token_sweeper::{config::Config, handler::TokenSweeper, reconcile::Memory};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"));
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
    process::run(telemetry, async |invocation| sweeper.invoke(invocation).await).await
}
