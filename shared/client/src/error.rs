//! Why tokens were not granted.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use tidegate_aws::error::{StoreError, causes};
use tidegate_domain::{
    admission::{Remedy, Shortage},
    tokens::Millitokens,
};

use crate::limit::InvalidLimit;

/// Why an acquire got no lease.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// There are too few tokens now, or the bucket accepts no more writes for the moment. Retry after
    /// [`Denied::retry_after`].
    #[error("{0}")]
    Denied(Denied),
    /// The request asks for more than the bucket can ever hold. Waiting does not help.
    #[error("more than the bucket can hold: {0}")]
    Never(LimitStatus),
    /// An operator has disabled the entity or the resource.
    #[error("an operator has disabled resource {resource:?} for entity {entity:?}")]
    Disabled {
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// The request names a limit that is not configured. Nothing was taken.
    #[error("limit {limit:?} is not configured for entity {entity:?} on resource {resource:?}")]
    UnknownLimit {
        /// The limit.
        limit: String,
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// No limit is configured for the entity on the resource, at any level.
    #[error("no limits are configured for entity {entity:?} on resource {resource:?}")]
    NotConfigured {
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// The bucket follows a rule that this crate does not know, and its stored tokens do not cover the request.
    #[error(
        "the bucket of entity {entity:?} for resource {resource:?} has {attribute:?}, which this crate does not support"
    )]
    Unsupported {
        /// The attribute of the rule, such as a schedule.
        attribute: String,
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// The request itself is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The table does not exist, a permission is missing, it rejects the request, or an item is malformed.
    /// An operator must act; [`on_unavailable`](crate::LimiterBuilder::on_unavailable) does not apply.
    #[error(transparent)]
    Rejected(Rejected),
    /// The table could not be asked.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A denial: when to try again, and what each limit has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub(crate) retry_after: Duration,
    pub(crate) limits: Vec<LimitStatus>,
    pub(crate) decided_by: DecidedBy,
}

/// What decided on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecidedBy {
    /// The table.
    Store,
    /// An image of the bucket at most a second old, projected to the present; or the deadline passed while earlier callers
    /// waited.
    Cache,
    /// [`OnUnavailable::Local`](crate::OnUnavailable::Local), because the table is unavailable.
    LocalRate,
}

/// What a bucket has of a limit, beside what a request asks for. Amounts are whole tokens, rounded down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStatus {
    /// The entity, which is the parent's in a cascade.
    pub entity: String,
    /// The limit's name.
    pub limit: String,
    /// What the request asks for.
    pub requested: u64,
    /// What the bucket can grant; below zero in debt. In a denial of a bucket with several shards, what the shard can grant
    /// that has denied.
    pub available: i64,
    /// What the bucket can hold.
    pub capacity: u64,
    /// After what time the bucket can grant the request if no other caller takes tokens; `None` if never.
    pub retry_after: Option<Duration>,
}

/// A request that is wrong in itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// A name that no client accepts.
    #[error("invalid {field} {value:?}: expected {expected}, at most {longest} characters")]
    Name {
        /// What the name is for.
        field: &'static str,
        /// The name.
        value: String,
        /// The most characters.
        longest: usize,
        /// Which characters it may have.
        expected: &'static str,
    },
    /// The limit that stands for write units.
    #[error("the limit \"wcu\" is reserved for write units")]
    ReservedLimit,
    /// A request without amounts.
    #[error("the request for entity {entity:?} on resource {resource:?} takes nothing: call `take` at least once")]
    Empty {
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// An amount that cannot be counted in millitokens.
    #[error("limit {limit:?}: {amount} tokens are more than can be counted")]
    Amount {
        /// The limit.
        limit: String,
        /// The amount.
        amount: u64,
    },
    /// A number that is out of range.
    #[error("invalid {field} {value}: expected {expected}")]
    Number {
        /// What the number is for.
        field: &'static str,
        /// The number.
        value: u64,
        /// The range.
        expected: &'static str,
    },
    /// A take of fungible tokens that asks for none.
    #[error("the take of resource {resource:?} for account {account:?} asks for 0 tokens, expected at least 1")]
    NoTokens {
        /// The resource.
        resource: String,
        /// The account.
        account: String,
    },
}

/// The table could not be asked, or its response was lost.
#[derive(Clone, Debug)]
pub struct Unavailable {
    source: Arc<dyn Error + Send + Sync>,
    /// Whether the table answers, but takes no more for the moment.
    pub(crate) is_busy: bool,
}

/// The table rejects a request or holds a malformed item, and will do so again.
#[derive(Clone, Debug)]
pub struct Rejected(Arc<dyn Error + Send + Sync>);

/// Why a limiter could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The table does not know the namespace.
    #[error("namespace {namespace:?} is not registered in table {table:?}")]
    UnknownNamespace {
        /// The name.
        namespace: String,
        /// The table.
        table: String,
    },
    /// A setting is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// A limit of a limiter in memory is wrong.
    #[error(transparent)]
    InvalidLimit(#[from] InvalidLimit),
    /// The table could not be read or created.
    #[error("table {table:?} cannot be used: {error}")]
    Table {
        /// The table.
        table: String,
        /// Why not.
        error: Box<AcquireError>,
    },
}

/// Why a [`scope`](crate::Limiter::scope) failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScopeError<E> {
    /// The tokens were not granted, so the work did not begin.
    #[error(transparent)]
    Acquire(AcquireError),
    /// The work failed. Its tokens were given back.
    #[error(transparent)]
    Work(E),
}

/// Why an adjustment or a refund may be missing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The adjustment names a limit that no bucket of the lease has. Adjustments of other limits were written.
    #[error("limit {limit:?} is not configured for entity {entity:?} on resource {resource:?}")]
    UnknownLimit {
        /// The limit.
        limit: String,
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
    },
    /// The adjustment names what cannot be a limit. Adjustments of other limits were written.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The change may not have been written.
    #[error("the change of entity {entity:?} on resource {resource:?} may not have been written")]
    NotWritten {
        /// The entity.
        entity: String,
        /// The resource.
        resource: String,
        /// Why not.
        source: Box<AcquireError>,
    },
}

impl Rejected {
    /// Returns the error behind it.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }

    pub(crate) fn new(source: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }
}

impl Unavailable {
    /// Returns the error behind it.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.source
    }

    pub(crate) fn new(source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Arc::new(source), is_busy: false }
    }

    pub(crate) fn busy(source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Arc::new(source), is_busy: true }
    }
}

impl From<Denied> for AcquireError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<StoreError> for AcquireError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::Unavailable(Unavailable::new(error)),
            _ => Self::Rejected(Rejected::new(error)),
        }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is unavailable: {}", causes(&*self.source))
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table cannot serve the request: {}", causes(&*self.0))
    }
}

// Their texts name all causes.
impl Error for Rejected {}
impl Error for Unavailable {}

/// Other clients changed the item during every attempt.
#[derive(Debug, thiserror::Error)]
#[error("other clients changed the bucket during each of {0} attempts")]
pub(crate) struct Contended(pub(crate) u32);

impl Denied {
    /// Creates a denial whose limits are not known.
    pub(crate) const fn without_limits(retry_after: Duration, decided_by: DecidedBy) -> Self {
        Self { retry_after, limits: Vec::new(), decided_by }
    }

    /// Returns how long to wait until the same request can succeed, if no other caller takes tokens.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Returns the limits that are short. They are not known, and the list is empty, if the bucket is busy, if the caller
    /// was still in line at its deadline, or if [`OnUnavailable::Local`](crate::OnUnavailable::Local) has denied.
    #[must_use]
    pub fn limits(&self) -> &[LimitStatus] {
        &self.limits
    }

    /// Returns what decided: the table, a cached image, or the local rate.
    #[must_use]
    pub const fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "denied, retry after {:?}", self.retry_after)?;
        self.limits.iter().try_for_each(|limit| write!(f, "; {limit}"))
    }
}

impl fmt::Display for LimitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entity, limit, requested, available, .. } = self;
        write!(f, "limit {limit:?} of entity {entity:?} has {available} of {requested} tokens")
    }
}

/// Whole tokens.
fn whole(millitokens: Millitokens) -> u64 {
    u64::try_from(millitokens.get().div_euclid(1000)).unwrap_or_default()
}

impl LimitStatus {
    pub(crate) fn new(entity: &str, shortage: &Shortage<'_>) -> Self {
        Self {
            entity: entity.to_owned(),
            limit: shortage.limit.to_string(),
            requested: whole(shortage.requested),
            available: shortage.available.get().div_euclid(1000),
            capacity: whole(shortage.capacity),
            retry_after: match shortage.remedy {
                Remedy::Wait(wait) => Some(wait),
                Remedy::SeveralShards | Remedy::Never => None,
            },
        }
    }
}
