//! Why a request fails.

use tidegate_aws::{
    error::{CallError, StoreError, causes},
    table_capacity::DescribeError,
};
use tidegate_domain::{
    capacity::{Target, announcement::Refusal},
    time::EpochMillis,
};

use crate::event::MalformedRequest;

/// A request that is not done.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Malformed(#[from] MalformedRequest),
    #[error("table {0:?} is not coordinated: add its ARN to the stack's parameter CoordinatedTableArns")]
    NotCoordinated(String),
    #[error("table {0:?} does not exist: check its name, and that it is of this account and region")]
    UnknownTable(String),
    #[error(
        "table {table:?} has no global secondary index {index:?}: check its name, or leave out index for the table"
    )]
    UnknownIndex { table: String, index: String },
    #[error("{0} is no scalable target: enable auto scaling for it, or use on-demand mode")]
    NoScalableTarget(Target),
    #[error(
        "the scalable target {0} has no target tracking policy for its utilization, so its capacity would not be lowered \
         again: add a policy"
    )]
    NoScalingPolicy(Target),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(
        "warm is true, but this function may not raise the warm throughput: set ALLOW_WARM, or ask an operator to raise it"
    )]
    WarmNotAllowed,
    #[error("the time of the invocation is over: try again with the same id")]
    Deadline,
    #[error("a call failed: {}", causes(.0))]
    Call(StoreError),
    #[error(
        "{source}; the announcement {id:?} is in force until {}: announce again with the same id, or release it",
        until.rfc3339()
    )]
    InForce { id: String, until: EpochMillis, source: Box<Failure> },
    #[error("{0} records of targets cannot be read: the log names them")]
    Unreadable(usize),
    #[error("{failed} of {targets} targets are not settled; the first failure is: {first}")]
    Unsettled { failed: usize, targets: usize, first: Box<Failure> },
}

impl Failure {
    /// The name of the kind of failure, as Lambda reports it.
    pub const fn error_type(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "MalformedRequest",
            Self::NotCoordinated(_) => "NotCoordinated",
            Self::UnknownTable(_) => "UnknownTable",
            Self::UnknownIndex { .. } => "UnknownIndex",
            Self::NoScalableTarget(_) => "NoScalableTarget",
            Self::NoScalingPolicy(_) => "NoScalingPolicy",
            Self::Refused(Refusal::ScaleInDisabled(_)) => "ScaleInDisabled",
            Self::Refused(Refusal::MaximumTooLow { .. }) => "MaximumTooLow",
            Self::Refused(Refusal::IdTaken { .. }) => "IdTaken",
            Self::Refused(Refusal::Released(_)) => "Released",
            Self::Refused(_) | Self::WarmNotAllowed => "LimitExceeded",
            Self::Deadline => "Busy",
            Self::Call(_) | Self::Unsettled { .. } | Self::Unreadable(_) => "CallFailed",
            Self::InForce { source, .. } => source.error_type(),
        }
    }

    /// Whether the request can never succeed as it is.
    pub(crate) const fn is_refusal(&self) -> bool {
        match self {
            Self::InForce { source, .. } => source.is_refusal(),
            _ => !matches!(self, Self::Deadline | Self::Call(_) | Self::Unsettled { .. } | Self::Unreadable(_)),
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Store(error) => Self::Call(error),
            _ => Self::Deadline,
        }
    }
}

impl From<DescribeError> for Failure {
    fn from(error: DescribeError) -> Self {
        match error {
            DescribeError::UnknownTable(table) => Self::UnknownTable(table),
            DescribeError::UnknownIndex { table, index } => Self::UnknownIndex { table, index },
            DescribeError::Store(error) => Self::Call(error),
        }
    }
}
