//! What all stores in DynamoDB share: items, the outcome of a conditional write, reads of many items, and backoff where
//! the SDK does not retry.

use std::{collections::HashMap, error::Error, fmt::Debug, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{AttributeValue, KeysAndAttributes},
};

use crate::error::StoreError;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// What became of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Written,
    /// The item has changed since it was read, or a transaction holds it. Nothing was written.
    Lost,
}

impl WriteOutcome {
    /// Judges the response to a write. It is lost if its condition does not hold.
    pub(crate) fn of<T, E, R>(operation: &'static str, sent: Result<T, SdkError<E, R>>) -> Result<Self, StoreError>
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: Debug + Send + Sync + 'static,
    {
        match sent {
            Ok(_) => Ok(Self::Written),
            Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(Self::Lost),
            Err(error) => Err(StoreError::from_sdk(operation, error)),
        }
    }
}

/// Returns whether a transaction holds the item that a write is for.
pub(crate) fn is_transaction_conflict(error: &impl ProvideErrorMetadata) -> bool {
    error.code() == Some("TransactionConflictException")
}

/// Reads the items with these keys, at most 100, in any order; missing items are left out.
///
/// AWS: [BatchGetItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
pub(crate) async fn batch_get(
    client: &Client,
    table: &str,
    mut keys: Vec<Item>,
    is_consistent: bool,
) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    let mut backoff = Backoff::default();
    loop {
        let request = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(is_consistent).build();
        let request =
            request.map_err(|source| StoreError::Refused { operation: "BatchGetItem", source: source.into() })?;
        let sent = client.batch_get_item().request_items(table, request).send().await;
        let output = sent.map_err(|error| StoreError::from_sdk("BatchGetItem", error))?;
        items.extend(output.responses.into_iter().flatten().flat_map(|(_, items)| items));
        let unread = output.unprocessed_keys.and_then(|mut keys| keys.remove(table));
        keys = unread.map(|unread| unread.keys).unwrap_or_default();
        if keys.is_empty() {
            return Ok(items);
        }
        // The partition is busy. A response has at least one item, or is throttled as a whole, which the SDK retries.
        backoff.wait().await;
    }
}

/// Waits for a random time below a bound that doubles.
///
/// AWS: [exponential backoff and jitter](https://docs.aws.amazon.com/prescriptive-guidance/latest/cloud-design-patterns/retry-backoff.html).
pub(crate) struct Backoff {
    bound: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { bound: Duration::from_millis(25) }
    }
}

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.bound.mul_f64(fastrand::f64())).await;
        self.bound = (self.bound * 2).min(Self::LONGEST);
    }
}
