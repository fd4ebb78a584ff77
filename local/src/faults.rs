//! Faults between an SDK client and its service: throttling, errors before and after the write,
//! dropped connections, and the death of the client's process.
//!
//! They are injected under the SDK, where the network would be, so that its retries are part of what
//! is tested. Only `UpdateItem`, `PutItem`, `DeleteItem` and `TransactWriteItems` meet faults.
//!
//! ```
//! # use tidegate_local::{dynamodb::EmbeddedDynamoDb, faults::{FaultRates, FaultyHttp, sdk_config}};
//! # async fn run() -> anyhow::Result<()> {
//! let embedded = EmbeddedDynamoDb::start(None).await?;
//! let faulty = FaultyHttp::new(FaultRates::spread(0.3), 42);
//! let client = tidegate_aws::client::dynamodb(&sdk_config(embedded.endpoint(), faulty.clone()));
//! // ... write with `client` ...
//! println!("{} writes were done twice", faulty.counts().unacknowledged());
//! # Ok(())
//! # }
//! ```

mod config;
mod connector;

pub use config::sdk_config;
pub use connector::FaultyHttp;

/// How often each fault befalls a write, each from 0 to 1. Together they are to be at most 1: what is
/// beyond never happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// 400, `ProvisionedThroughputExceededException` or `ThrottlingException`; nothing was written.
    pub throttled: f64,
    /// 500, `InternalServerError`; nothing was written.
    pub internal_before: f64,
    /// 500, `InternalServerError`; the write was done.
    pub internal_after: f64,
    /// The connection breaks before the service sees the call.
    pub dropped_before: f64,
    /// The connection breaks before the service's answer; the write was done.
    pub dropped_after: f64,
}

/// How often each fault befell a write. See [`FaultRates`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of `FaultRates`")]
pub struct FaultCounts {
    pub throttled: u64,
    pub internal_before: u64,
    pub internal_after: u64,
    pub dropped_before: u64,
    pub dropped_after: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Throttled,
    InternalBefore,
    InternalAfter,
    DroppedBefore,
    DroppedAfter,
}

impl Fault {
    fn is_after_write(self) -> bool {
        matches!(self, Self::InternalAfter | Self::DroppedAfter)
    }
}

impl FaultRates {
    /// All kinds of faults alike, so that this part of all writes, from 0 to 1, meets one.
    #[must_use]
    pub fn spread(total: f64) -> Self {
        let each = total / 5.0;
        Self { throttled: each, internal_before: each, internal_after: each, dropped_before: each, dropped_after: each }
    }

    /// The fault that a number drawn from 0 to 1 stands for.
    fn fault(&self, mut drawn: f64) -> Option<Fault> {
        let rates = [
            (self.throttled, Fault::Throttled),
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
    /// Faults of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    /// Writes that were done although the client was told that they had failed.
    #[must_use]
    pub fn unacknowledged(&self) -> u64 {
        self.internal_after + self.dropped_after
    }

    /// What happened, in words, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("call throttled", self.throttled),
            ("internal error before a write", self.internal_before),
            ("internal error after a write", self.internal_after),
            ("connection dropped before a write", self.dropped_before),
            ("connection dropped after a write", self.dropped_after),
        ]
        .into_iter()
    }

    fn add(&mut self, fault: Fault) {
        *match fault {
            Fault::Throttled => &mut self.throttled,
            Fault::InternalBefore => &mut self.internal_before,
            Fault::InternalAfter => &mut self.internal_after,
            Fault::DroppedBefore => &mut self.dropped_before,
            Fault::DroppedAfter => &mut self.dropped_after,
        } += 1;
    }
}

#[cfg(test)]
mod tests;
