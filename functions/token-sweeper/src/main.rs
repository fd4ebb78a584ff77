//! The Lambda function `token-sweeper`.

use lambda_runtime::{LambdaEvent, service_fn};
use tidegate_aws::{
    client,
    emr::Clusters,
    telemetry::{self, Metrics},
    tokens::Tokens,
};
use token_sweeper::{config::Config, event::Event, handler::TokenSweeper};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    telemetry::init_logs();
    let config = Config::from_env()?;
    let sdk = client::config_from_env().await;
    let tokens = Tokens::new(client::dynamodb(&sdk), &config.table, &config.index);
    let sweeper = &TokenSweeper::new(config, tokens, Clusters::new(client::emr(&sdk)));
    let metrics = &Metrics::to_stdout();
    lambda_runtime::run(service_fn(async move |event: LambdaEvent<Event>| sweeper.invoke(event, metrics).await))
        .await
        .map_err(anyhow::Error::from_boxed)
}
