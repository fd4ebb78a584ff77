//! The result of a write that is sent once.

use std::{error::Error, io::ErrorKind};

use aws_sdk_dynamodb::{
    Client,
    config::retry::RetryConfig,
    error::{ProvideErrorMetadata, SdkError},
    operation::update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    types::{ReturnValue, ReturnValuesOnConditionCheckFailure, ThrottlingReason},
};

use crate::{bucket_item::BucketItem, dynamodb::Item, error::StoreError};

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<T = BucketItem> {
    /// The write was applied. Holds the new item, or `None` if it cannot be read.
    Applied(Option<T>),
    /// A condition failed, so nothing was written. Holds the item, or `None` if the item does not exist.
    Refused(Option<T>),
}

/// A write that failed, or whose result is unknown.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The write was throttled. Nothing was written.
    #[error("{error}")]
    Throttled {
        error: StoreError,
        /// Whether the item's own partition is too hot, so that more shards help.
        is_hot_partition: bool,
    },
    /// Nothing was written.
    #[error("{0}")]
    NotWritten(StoreError),
    /// The response was lost: the write may have happened.
    #[error("the response was lost: {0}")]
    Lost(StoreError),
}

/// Why the service rejected a write.
pub(super) enum Refusal {
    /// A condition failed. Holds the item, or `None` if it does not exist.
    Condition(Option<Item>),
    /// The write was throttled.
    Throttled {
        is_hot_partition: bool,
    },
    Other,
}

/// A function that reads an operation's error. The SDK has one type for each operation.
macro_rules! refusal {
    ($error:ident) => {
        |error| match error {
            $error::ConditionalCheckFailedException(failed) => Refusal::Condition(failed.item.clone()),
            $error::ProvisionedThroughputExceededException(error) => throttled(error.throttling_reasons()),
            $error::ThrottlingException(error) => throttled(error.throttling_reasons()),
            // A transaction that holds the item is over in milliseconds.
            $error::TransactionConflictException(_) | $error::RequestLimitExceeded(_) => throttled(&[]),
            _ => Refusal::Other,
        }
    };
}
pub(super) use refusal;

pub(super) fn throttled(reasons: &[ThrottlingReason]) -> Refusal {
    Refusal::Throttled { is_hot_partition: reasons.iter().any(|reason| reason.reason() == Some(HOT_PARTITION)) }
}

/// A client that sends each call once.
pub(crate) fn without_retries(client: &Client) -> Client {
    Client::from_conf(client.config().to_builder().retry_config(RetryConfig::disabled()).build())
}

/// Sends an update once. `read` parses the item.
pub(crate) async fn send<T>(
    update: UpdateItemFluentBuilder,
    read: fn(Item) -> Result<T, StoreError>,
) -> Result<Written<T>, WriteError> {
    let sent = update
        .return_values(ReturnValue::AllNew)
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await;
    match sent {
        // The write has happened, whatever the item looks like.
        Ok(output) => Ok(Written::Applied(read(output.attributes.unwrap_or_default()).ok())),
        Err(error) => judge("UpdateItem", error, refusal!(UpdateItemError), read),
    }
}

/// Judges the error of a write that is sent once.
pub(super) fn judge<E, T>(
    operation: &'static str,
    error: SdkError<E>,
    refusal: fn(&E) -> Refusal,
    read: fn(Item) -> Result<T, StoreError>,
) -> Result<Written<T>, WriteError>
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let kind = match &error {
        SdkError::ServiceError(service) => match refusal(service.err()) {
            Refusal::Condition(item) => {
                return Ok(Written::Refused(item.map(read).transpose().map_err(WriteError::NotWritten)?));
            }
            Refusal::Throttled { is_hot_partition } => {
                return Err(WriteError::Throttled { error: StoreError::from_sdk(operation, error), is_hot_partition });
            }
            Refusal::Other if service.raw().status().is_server_error() => WriteError::Lost,
            Refusal::Other => WriteError::NotWritten,
        },
        SdkError::ConstructionFailure(_) => WriteError::NotWritten,
        SdkError::DispatchFailure(failure) if failure.is_user() || never_connected(&error) => WriteError::NotWritten,
        _ => WriteError::Lost,
    };
    Err(kind(StoreError::from_sdk(operation, error)))
}

/// The throttling reason for a partition that exceeds its write throughput.
///
/// AWS: [throttling reasons](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/throttling-diagnosing.html).
const HOT_PARTITION: &str = "TableWriteKeyRangeThroughputExceeded";

/// Whether no connection was made, so that the request was never sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            return true;
        }
        source = cause.source();
    }
    false
}
