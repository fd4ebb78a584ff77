//! The Lambda function `capacity-coordinator`.

use capacity_coordinator::{CapacityCoordinator, Services, config::Config, report::METRICS};
use tidegate_aws::{client, settings::variable};
use tidegate_lambda::{process, telemetry::Telemetry};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let telemetry = &Telemetry::start(env!("CARGO_PKG_NAME"), &METRICS);
    let config = Config::read(variable)?;
    let sdk = client::config_from_env().await;
    let coordinator = &CapacityCoordinator::new(config, &Services::new(&sdk));
    process::run(telemetry, async |invocation| coordinator.invoke(invocation).await).await
}
