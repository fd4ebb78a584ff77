//! Where the table is, and how the command talks to it.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use aws_config::{SdkConfig, retry::RetryConfig};
use aws_sdk_dynamodb::Client;
use tidegate::{BuildError, Limiter};
use tidegate_aws::client;

/// An operator waits for the result, so unlike a function the command stops trying.
const ATTEMPTS: u32 = 6;
/// There is no deadline, and the operator may be far away.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the table is.
#[derive(Clone, Debug)]
pub struct Connection {
    pub table: String,
    /// The options and variables that name the table.
    pub named_by: &'static str,
    /// Where DynamoDB is, if not at AWS.
    pub endpoint: Option<String>,
    /// Whether results are printed as JSON.
    pub json: bool,
}

/// Which part of the table the command works on, and for whom.
#[derive(Clone, Debug, clap::Args)]
pub struct NamespaceOptions {
    /// The namespace
    #[arg(long, value_name = "NAME", env = "TIDEGATE_NAMESPACE", default_value = "default", global = true)]
    #[arg(hide_env_values = true)]
    pub namespace: String,
    /// Who makes the change, for the audit event; the user of the environment if not given
    #[arg(long, value_name = "NAME", global = true)]
    pub principal: Option<String>,
}

impl Connection {
    /// The SDK's configuration, from the environment.
    pub async fn sdk(&self) -> SdkConfig {
        operator_config().await
    }

    /// A client of the table.
    pub fn dynamodb(&self, sdk: &SdkConfig) -> Client {
        let mut sdk = sdk.clone().into_builder();
        if let Some(endpoint) = &self.endpoint {
            sdk = sdk.endpoint_url(endpoint);
        }
        client::dynamodb(&sdk.build())
    }

    /// A limiter of a namespace of the table.
    pub async fn limiter(&self, options: &NamespaceOptions) -> anyhow::Result<Limiter> {
        let mut limiter = Limiter::builder(self.dynamodb(&self.sdk().await), &self.table).namespace(&options.namespace);
        let is_name = |user: &String| {
            let others = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-@".contains(&byte);
            user.starts_with(|first: char| first.is_ascii_alphanumeric()) && user.bytes().all(others)
        };
        let user = || std::env::var("USER").ok().filter(is_name);
        if let Some(principal) = options.principal.clone().or_else(user) {
            limiter = limiter.principal(principal);
        }
        limiter.build().await.map_err(|error| match error {
            BuildError::UnknownNamespace { namespace, .. } => self.unknown_namespace(&namespace),
            error => error.into(),
        })
    }

    /// The error for a namespace that the table does not know.
    pub fn unknown_namespace(&self, name: &str) -> anyhow::Error {
        let table = &self.table;
        anyhow!(
            "namespace {name:?} is not registered in table {table:?}: `tidegate namespace register {name}` does that"
        )
    }

    /// Says what to do about an error of AWS.
    pub fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let Self { table, named_by, .. } = self;
        let says = |code: &str| error.chain().any(|cause| cause.to_string().contains(code));
        if says("ResourceNotFoundException") {
            return error
                .context(format!("table {table:?} does not exist: check {named_by}, --endpoint and AWS_REGION"));
        }
        if says("AccessDeniedException") {
            return error.context(format!("table {table:?}: your credentials do not allow this call"));
        }
        error
    }
}

/// The SDK's configuration for an operator, from the environment.
pub(crate) async fn operator_config() -> SdkConfig {
    with_operator_timeouts(client::config_from_env().await)
}

/// The configuration with timeouts for an operator instead of a function.
fn with_operator_timeouts(sdk: SdkConfig) -> SdkConfig {
    let timeouts = client::timeouts().to_builder();
    let timeouts = timeouts.connect_timeout(CONNECT_TIMEOUT).operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
    let retries = RetryConfig::standard().with_max_attempts(ATTEMPTS);
    sdk.into_builder().retry_config(retries).timeout_config(timeouts).build()
}

/// The present moment.
pub fn now() -> anyhow::Result<tidegate_domain::time::EpochMillis> {
    tidegate_aws::clock::now().context("this machine's clock")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redrive;

    #[test]
    fn attempts_outlast_long_polling() {
        let sdk = with_operator_timeouts(SdkConfig::builder().build());
        let timeouts = sdk.timeout_config().unwrap();
        assert!(timeouts.operation_attempt_timeout().unwrap() > 2 * redrive::WAIT, "{timeouts:?}");
        assert_eq!(timeouts.operation_timeout(), None);
    }
}
