//! What all stores in DynamoDB share: items, the outcome of a conditional write, reads of many items, and backoff where
//! the SDK does not retry.

use std::{collections::HashMap, error::Error, fmt::Debug, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{BuildError, ProvideErrorMetadata, SdkError},
    operation::query::builders::QueryFluentBuilder,
    types::{AttributeValue, DeleteRequest, KeysAndAttributes, WriteRequest},
};

use crate::error::StoreError;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The most writes of one `BatchWriteItem`.
const BATCH: usize = 25;

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

/// Sends a write, and again while a transaction holds its item: the SDK does not retry that.
pub(crate) async fn through_conflicts<T, E, R, F>(send: impl Fn() -> F) -> Result<T, SdkError<E, R>>
where
    F: Future<Output = Result<T, SdkError<E, R>>>,
    SdkError<E, R>: ProvideErrorMetadata,
{
    let mut backoff = Backoff::default();
    loop {
        match send().await {
            Err(error) if is_transaction_conflict(&error) => backoff.wait().await,
            done => return done,
        }
    }
}

/// Reads all items of a query, page by page.
pub(crate) async fn query_all(query: QueryFluentBuilder) -> Result<Vec<Item>, StoreError> {
    let pages = query.into_paginator().items().send();
    pages.try_collect().await.map_err(|error| StoreError::from_sdk("Query", error))
}

/// Deletes the items with these keys, and again those that DynamoDB leaves unprocessed.
///
/// AWS: [BatchWriteItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html).
pub(crate) async fn batch_delete(client: &Client, table: &str, keys: &[Item]) -> Result<(), StoreError> {
    const OPERATION: &str = "BatchWriteItem";
    let refused = |source: BuildError| StoreError::Refused { operation: OPERATION, source: source.into() };
    for keys in keys.chunks(BATCH) {
        let delete = |key: &Item| DeleteRequest::builder().set_key(Some(key.clone())).build();
        let write = |key| Ok(WriteRequest::builder().delete_request(delete(key)?).build());
        let mut writes: Vec<_> = keys.iter().map(write).collect::<Result<_, _>>().map_err(refused)?;
        let mut backoff = Backoff::default();
        loop {
            let sent = client.batch_write_item().request_items(table, writes).send().await;
            let output = sent.map_err(|error| StoreError::from_sdk(OPERATION, error))?;
            writes = output.unprocessed_items.and_then(|mut left| left.remove(table)).unwrap_or_default();
            if writes.is_empty() {
                break;
            }
            backoff.wait().await;
        }
    }
    Ok(())
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
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    bound: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { bound: Duration::from_millis(25) }
    }
}

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(1);

    /// Waits, and doubles the bound, up to a second.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.bound.mul_f64(fastrand::f64())).await;
        self.bound = (self.bound * 2).min(Self::LONGEST);
    }
}
