//! Errors of reservations and tokens.

use std::fmt;

use crate::{error::InvalidRequest, table_error::TableError};

/// Why a request got no token.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// All tokens are held.
    #[error(transparent)]
    Denied(#[from] ReservationDenied),
    /// The table did not answer before the deadline.
    #[error("the table did not answer before the deadline")]
    TimedOut,
    /// The limit of the account is 0.
    #[error("account {account:?} has a limit of 0 on resource {resource:?}")]
    Blocked {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// The account has no limit, and the resource has no default.
    #[error("account {account:?} has no limit on resource {resource:?}, and the resource has no default limit")]
    UnknownLimit {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// A name is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// A table cannot be used. A token that was taken becomes free within five minutes.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// All tokens of a limit are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct ReservationDenied {
    /// The number of tokens in the last count.
    pub held: u64,
    /// The limit.
    pub limit: u64,
}

/// Why a reservation or a token did not change as requested.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token has expired or was freed. Another client may hold its slot.
    ///
    /// A resource that runs without a token should be stopped.
    #[error("the reservation of account {account:?} on resource {resource:?} has expired or was freed")]
    Lost {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
    /// It is bound to another resource, or an earlier call of `bind` named another one.
    #[error("the reservation cannot be bound to {requested:?}: it is bound to {bound:?}")]
    Bound {
        /// The id of that resource.
        bound: String,
        /// The id of the resource that it should be bound to.
        requested: String,
    },
    /// The id of the resource is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The table cannot be used. The change may have happened; the same call can be made again.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl fmt::Display for ReservationDenied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { held, limit } = self;
        write!(f, "denied: {held} tokens are held, and the limit is {limit}")
    }
}
