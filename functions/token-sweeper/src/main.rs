//! The Lambda function `token-sweeper`.

use tidegate_aws::{client, emr::Clusters, settings::variable, tokens::Tokens};
use tidegate_lambda::{process, telemetry::Telemetry};
use token_sweeper::{TokenSweeper, config::Config, report::METRICS};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::read(variable)?;
    let sdk = client::config_from_env().await;
    let tokens = Tokens::new(client::dynamodb(&sdk), &config.table, &config.index);
    let sweeper = &TokenSweeper::new(config, tokens, Clusters::new(client::emr(&sdk)));
    process::run(telemetry, async |invocation| sweeper.invoke(invocation).await).await
}
