//! The error of a call to the bucket of a fleet.

use std::time::Duration;

use tidegate_aws::error::{StoreError, causes};

/// A call to the bucket of a fleet that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// S3 answered with an error, or not at all.
    #[error("{}", causes(&**.0))]
    Call(Box<dyn std::error::Error + Send + Sync>),
    /// The call took too long, with all its attempts.
    #[error("a call to S3 took longer than {0:?}")]
    TimedOut(Duration),
    /// The task of the worker ended early, because it panicked or its Tokio runtime has ended.
    #[error("the task of the worker ended early, because it panicked or its Tokio runtime has ended")]
    TaskEnded,
}

impl From<StoreError> for FilesError {
    fn from(error: StoreError) -> Self {
        Self::Call(Box::new(error))
    }
}
