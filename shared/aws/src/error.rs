//! What a failed call means for the one who made it.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

/// A call to a store that did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The service will refuse the same request for ever, for instance because an item is too large.
    #[error("{operation} was rejected and will not succeed on retry")]
    Refused {
        /// The operation's name.
        operation: &'static str,
        /// What the service said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The service could not be reached, was busy, or does not let us in (yet): the same request may
    /// succeed later.
    #[error("{operation} failed")]
    Unavailable {
        /// The operation's name.
        operation: &'static str,
        /// What went wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The table does not exist, or its policy does not allow the operation. It may succeed when an operator has corrected
    /// that.
    #[error("{operation} is not possible: the table or a permission is missing")]
    Misconfigured {
        /// The operation's name.
        operation: &'static str,
        /// What the service said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An item holds a value that its writers do not write.
    #[error("attribute {attribute} of {item} has the invalid value {value}")]
    Corrupt {
        /// The item's key.
        item: String,
        /// The attribute's name.
        attribute: String,
        value: String,
    },
    /// A condition failed, but the item that came back fulfils it.
    #[error("a condition on {item} failed, but the returned item satisfies it")]
    Unexplained {
        /// The item's key.
        item: String,
    },
}

impl StoreError {
    /// Whether the same request may succeed later. If not, it must be parked, or it blocks its shard.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Misconfigured { .. } | Self::Unexplained { .. })
    }

    /// Judges an SDK error by its code. Unknown errors are retryable: an operator can fix
    /// a permission or a table name while the stream keeps the records.
    pub(crate) fn from_sdk<E, R>(operation: &'static str, error: SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        let is_permanent = match error.as_service_error() {
            Some(answer) => is_permanent(code, answer.message()),
            None => matches!(error, SdkError::ConstructionFailure(_)),
        };
        let is_misconfigured = code.is_some_and(|code| MISCONFIGURED.contains(&code));
        let source = Box::new(error);
        if is_permanent {
            Self::Refused { operation, source }
        } else if is_misconfigured {
            Self::Misconfigured { operation, source }
        } else {
            Self::Unavailable { operation, source }
        }
    }
}

/// Why one call of a handler did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There was no time left.
    #[error("the deadline passed")]
    Deadline,
    /// There is nowhere to park a record.
    #[error("there is no dead-letter queue")]
    NoQueue,
    /// Our own code panicked; it would again.
    #[error("our code panicked")]
    Panicked,
    /// Our own code panicked, and what the snapshot holds could not be read: to park a record might count it twice.
    #[error("our code panicked, and what is counted could not be read")]
    Unproven,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CallError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Deadline | Self::NoQueue | Self::Unproven => true,
            Self::Panicked => false,
            Self::Store(error) => error.is_retryable(),
        }
    }
}

/// An error and what caused it, in one line.
pub fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        source = cause.source();
    }
    line
}

/// Errors that last until an operator acts.
///
/// AWS: [errors of DynamoDB](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html).
const MISCONFIGURED: [&str; 4] = [
    "AccessDeniedException",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "UnrecognizedClientException",
];

/// Whether the same request will get this answer for ever.
///
/// AWS: [errors of DynamoDB](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html).
fn is_permanent(code: Option<&str>, message: Option<&str>) -> bool {
    match code {
        Some("ItemCollectionSizeLimitExceededException") => true,
        // An item that would be too large, or an attribute of another type than ours. But a table with
        // other keys is the wrong table: an operator can correct that, so no record is parked for it.
        Some("ValidationException") => !message.is_some_and(|message| message.contains("key element")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permanent_errors_are_parked() {
        let check = |code, message, expect| assert_eq!(is_permanent(code, message), expect, "{code:?} {message:?}");
        check(Some("ValidationException"), Some("Item size to update has exceeded the maximum allowed size"), true);
        check(Some("ValidationException"), Some("The provided key element does not match the schema"), false);
        check(Some("ItemCollectionSizeLimitExceededException"), None, true);
        check(Some("ResourceNotFoundException"), None, false);
        check(Some("AccessDeniedException"), None, false);
        check(Some("ThrottlingException"), None, false);
        check(None, None, false);
    }
}
