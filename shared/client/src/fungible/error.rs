//! Errors of fungible tokens.

use std::{fmt, time::Duration};

use tidegate_domain::{fungible::Denial, token_limits::LimitKey};

use crate::{error::InvalidRequest, table_error::TableError};

/// An error of a take or a refill.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// There are too few tokens now. Retry after [`TokensDenied::retry_after`].
    #[error("{0}")]
    Denied(TokensDenied),
    /// The request asks for more than the limit. Waiting does not help.
    #[error("{tokens} tokens of resource {resource:?} for account {account:?} are more than the limit of {limit}")]
    Never {
        /// The requested tokens.
        tokens: u64,
        /// The limit.
        limit: u64,
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// The limit is 0.
    #[error("account {account:?} is blocked for resource {resource:?}: its limit is 0")]
    Blocked {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// The account has no row in the limits table, and the resource has no default limit.
    #[error(
        "resource {resource:?} has no limit for account {account:?}: the limits table has no row, and there is no default limit"
    )]
    UnknownLimit {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// The account's row in the limits table has no `windowSec` above 0, and the resource has no default limit. Or the window
    /// of the default limit is zero.
    #[error(
        "the limit of resource {resource:?} for account {account:?} has no window: set windowSec in the limits table, or a default limit"
    )]
    UnknownWindow {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// The request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The response was lost, and the outcome is unknown. Count the tokens as taken.
    #[error(
        "tokens of resource {resource:?} for account {account:?} may have been taken: the response was lost: {error}"
    )]
    Lost {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
        /// Why.
        error: TableError,
    },
    /// A call failed. Nothing was taken.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The details of a denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokensDenied {
    resource: String,
    account: String,
    requested: u64,
    denial: Denial,
}

impl TokensDenied {
    pub(super) fn new(LimitKey { resource, account }: &LimitKey, requested: u64, denial: Denial) -> Self {
        Self { resource: resource.clone(), account: account.clone(), requested, denial }
    }

    /// Returns how long to wait until the same request can succeed, if no other caller takes tokens.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.denial.retry_after
    }

    /// Returns the stored and the accrued tokens of the row. Negative after fail-safe takes of Python clients.
    #[must_use]
    pub const fn available(&self) -> i64 {
        self.denial.available
    }
}

impl fmt::Display for TokensDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, account, requested, denial: Denial { available, retry_after } } = self;
        write!(f, "denied, retry after {retry_after:?}; ")?;
        write!(f, "resource {resource:?} has {available} of {requested} tokens for account {account:?}")
    }
}
