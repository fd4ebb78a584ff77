//! How SDK clients find services on this machine, and how they bear with faults.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, stalled_stream_protection::StalledStreamProtectionConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::HttpClient;
use tidegate_aws::client;

/// There is no busy service to be polite to, only injected faults.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
const LONGEST_BACKOFF: Duration = Duration::from_millis(8);

/// The SDK configuration for `endpoint`: region us-east-1, some credentials, and the functions' own retries and timeouts
/// with a shorter backoff. It reads nothing from the environment.
///
/// The SDK's quota of retries is part of a client, not of this configuration;
/// [`tidegate_aws::client::dynamodb`] makes clients without one. Under many faults, others run out.
pub fn sdk_config(endpoint: &str, http: impl HttpClient + 'static) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "local")))
        .http_client(http)
        .retry_config(
            // As in an account, but for the haste.
            client::retries().with_initial_backoff(FIRST_BACKOFF).with_max_backoff(LONGEST_BACKOFF),
        )
        .timeout_config(client::timeouts())
        // A call that hangs because its process "crashed" is to hang, not to end with an error.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build()
}
