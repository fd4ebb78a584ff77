//! Faults between an SDK client and its service: throttling, errors before and after the write, dropped connections, and
//! the death of the client's process.
//!
//! They are injected below the SDK, where the network would be, so that the tests cover the SDK's retries. [`FaultRates`]
//! apply to writes (`UpdateItem`, `PutItem`, `DeleteItem`, `TransactWriteItems`) and reads (`GetItem`, `BatchGetItem`,
//! `Query`). [`FaultyHttp::on_call`] picks faults of any call.
//!
//! ```
//! # use tidegate_sandbox::{dynamodb::EmbeddedDynamoDb, faults::{FaultRates, FaultyHttp, sdk_config}};
//! # async fn run() -> anyhow::Result<()> {
//! let embedded = EmbeddedDynamoDb::start(None).await?;
//! let faulty = FaultyHttp::new(FaultRates::spread(0.3), 42);
//! let client = tidegate_aws::client::dynamodb(&sdk_config(embedded.endpoint(), faulty.clone()));
//! // ... write with `client` ...
//! println!("{} writes were done twice", faulty.counts().unacknowledged());
//! # Ok(())
//! # }
//! ```

mod connector;

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig, stalled_stream_protection::StalledStreamProtectionConfig};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::HttpClient;
pub use connector::FaultyHttp;
use tidegate_aws::client;

/// Retries wait for injected faults only, not for a busy service, so they may be quick.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
const LONGEST_BACKOFF: Duration = Duration::from_millis(8);

/// The SDK configuration for `endpoint`: region us-east-1, some credentials, and the functions' own retries and timeouts
/// with a shorter backoff. It reads nothing from the environment.
///
/// The SDK's quota of retries is part of a client, not of this configuration;
/// [`tidegate_aws::client::dynamodb`] makes clients without one. Other clients run out of retries under many faults.
pub fn sdk_config(endpoint: &str, http: impl HttpClient + 'static) -> SdkConfig {
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "local")))
        .http_client(http)
        .retry_config(client::retries().with_initial_backoff(FIRST_BACKOFF).with_max_backoff(LONGEST_BACKOFF))
        .timeout_config(client::timeouts())
        // A call whose process "crashed" hangs. Without this, it would end with an error.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .build()
}

/// The probability of each fault per call, from 0 to 1. The probabilities must add up to at most 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// [`Fault::Throttled`].
    pub throttled: f64,
    /// [`Fault::Conflict`].
    pub conflict: f64,
    /// [`Fault::InternalBefore`].
    pub internal_before: f64,
    /// [`Fault::InternalAfter`].
    pub internal_after: f64,
    /// [`Fault::DroppedBefore`].
    pub dropped_before: f64,
    /// [`Fault::DroppedAfter`].
    pub dropped_after: f64,
}

/// How often each fault of [`FaultRates`] occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub throttled: u64,
    pub conflict: u64,
    pub internal_before: u64,
    pub internal_after: u64,
    pub dropped_before: u64,
    pub dropped_after: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 400, `ProvisionedThroughputExceededException` or `ThrottlingException`; a transaction is cancelled for such a reason
    /// instead. Nothing was written.
    Throttled,
    /// 400, `ProvisionedThroughputExceededException`, because the item's partition is too hot. Nothing was written. Only a
    /// hook picks it.
    HotPartition,
    /// 400, `TransactionConflictException`; a transaction is cancelled for such a reason instead. Nothing was written.
    /// Reads do not meet it.
    Conflict,
    /// 500, `InternalServerError`; nothing was written.
    InternalBefore,
    /// 500, `InternalServerError`; the write was done.
    InternalAfter,
    /// The connection breaks before the service sees the call.
    DroppedBefore,
    /// The connection breaks before the service's answer; the write was done.
    DroppedAfter,
    /// There is no answer; the service does not see the call.
    Hang,
    /// 400, `AccessDeniedException`: a permission is missing. Nothing was written. Only a hook picks it.
    AccessDenied,
}

impl Fault {
    fn is_after_write(self) -> bool {
        matches!(self, Self::InternalAfter | Self::DroppedAfter)
    }
}

impl FaultRates {
    /// Splits `total`, the probability that a call fails, evenly over all faults.
    pub fn spread(total: f64) -> Self {
        let each = total / 6.0;
        Self {
            throttled: each,
            conflict: each,
            internal_before: each,
            internal_after: each,
            dropped_before: each,
            dropped_after: each,
        }
    }

    /// Maps a random number from 0 to 1 to a fault.
    fn fault(&self, mut drawn: f64) -> Option<Fault> {
        let rates = [
            (self.throttled, Fault::Throttled),
            (self.conflict, Fault::Conflict),
            (self.internal_before, Fault::InternalBefore),
            (self.internal_after, Fault::InternalAfter),
            (self.dropped_before, Fault::DroppedBefore),
            (self.dropped_after, Fault::DroppedAfter),
        ];
        for (rate, fault) in rates {
            if drawn < rate {
                return Some(fault);
            }
            drawn -= rate;
        }
        None
    }
}

impl FaultCounts {
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Calls that the service has done although the client received an error.
    pub fn unacknowledged(&self) -> u64 {
        self.internal_after + self.dropped_after
    }

    /// Each fault in words, and how often it occurred.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("call throttled", self.throttled),
            ("conflict with a transaction", self.conflict),
            ("internal error before a call", self.internal_before),
            ("internal error after a call", self.internal_after),
            ("connection dropped before a call", self.dropped_before),
            ("connection dropped after a call", self.dropped_after),
        ]
        .into_iter()
    }

    fn add(&mut self, fault: Fault) {
        *match fault {
            Fault::Throttled | Fault::HotPartition => &mut self.throttled,
            Fault::Conflict => &mut self.conflict,
            Fault::InternalBefore => &mut self.internal_before,
            Fault::InternalAfter => &mut self.internal_after,
            Fault::DroppedBefore => &mut self.dropped_before,
            Fault::DroppedAfter => &mut self.dropped_after,
            Fault::Hang | Fault::AccessDenied => return,
        } += 1;
    }
}

#[cfg(test)]
mod tests;
