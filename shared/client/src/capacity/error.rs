//! Why the function `capacity-coordinator` did not do what was asked.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use tidegate_aws::error::causes;

use super::answer::{Announced, AnnouncedTarget, TargetCapacity};
use crate::error::InvalidRequest;

/// Why a call of a [`Coordinator`](super::Coordinator) failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// The capacity was not there before the deadline, or waiting does not help. The announcement was released.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// The function refuses the request, and says why.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A value of the request is wrong. Nothing was sent.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The function cannot be invoked: it does not exist, or credentials or a permission are missing. An operator must act.
    #[error("function {function:?} cannot be invoked: {}", causes(&**.error))]
    Rejected {
        /// The function.
        function: String,
        /// What AWS or the SDK said.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The function did not answer, was throttled, or failed, in every attempt. The same call may succeed later. An
    /// announcement that it may have made is released in the background.
    #[error("function {function:?} is unavailable: {}", causes(&**.error))]
    Unavailable {
        /// The function.
        function: String,
        /// What went wrong in the last attempt.
        error: Arc<dyn Error + Send + Sync>,
    },
    /// The function's answer cannot be read. It may be another function.
    #[error("function {function:?} has answered {answer:?}, which cannot be read: {error}")]
    Malformed {
        /// The function.
        function: String,
        /// The beginning of the answer.
        answer: String,
        /// Why it cannot be read.
        error: Arc<serde_json::Error>,
    },
}

/// Capacity that was announced and is not there.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub struct NotReady {
    /// The id of the announcement.
    pub id: String,
    /// When the function expected the capacity. `None` if waiting does not help: the table is on-demand and needs a higher
    /// [warm throughput](super::AnnounceBuilder::warm), or the function makes a dry run.
    pub retry_after: Option<Duration>,
    /// What the tables and indexes have and need.
    pub targets: Vec<AnnouncedTarget>,
    /// Whether the function makes a dry run: it changes nothing.
    pub is_dry_run: bool,
}

/// A request that the function refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator refuses the request ({error_type}): {message}")]
#[non_exhaustive]
pub struct Refused {
    /// The reason.
    pub reason: RefusalReason,
    /// The reason as the function names it.
    pub error_type: String,
    /// What the function says.
    pub message: String,
}

/// Why the function refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// A value of the request is wrong.
    MalformedRequest,
    /// The function does not coordinate this table.
    NotCoordinated,
    /// The table does not exist.
    UnknownTable,
    /// The table has no such index.
    UnknownIndex,
    /// The table or the index has no scalable target: auto scaling is off.
    NoScalableTarget,
    /// The scalable target has no policy with a target utilization.
    NoScalingPolicy,
    /// Auto scaling may not lower the capacity, so it would stay raised.
    ScaleInDisabled,
    /// The consumption and the announcements together are more than the maximum of the scalable target.
    MaximumTooLow,
    /// The announcement exceeds a limit of the function.
    LimitExceeded,
    /// The id is in force for other targets, or was announced by another caller.
    IdTaken,
    /// The announcement was released after the request had begun, or by the same run of it.
    Released,
    /// Another reason: the function has panicked, or is newer than this crate.
    Other,
}

impl Refused {
    pub(super) fn new(error_type: String, message: String) -> Self {
        Self { reason: RefusalReason::of(&error_type), error_type, message }
    }
}

impl RefusalReason {
    fn of(error_type: &str) -> Self {
        match error_type {
            "MalformedRequest" => Self::MalformedRequest,
            "NotCoordinated" => Self::NotCoordinated,
            "UnknownTable" => Self::UnknownTable,
            "UnknownIndex" => Self::UnknownIndex,
            "NoScalableTarget" => Self::NoScalableTarget,
            "NoScalingPolicy" => Self::NoScalingPolicy,
            "ScaleInDisabled" => Self::ScaleInDisabled,
            "MaximumTooLow" => Self::MaximumTooLow,
            "LimitExceeded" => Self::LimitExceeded,
            "IdTaken" => Self::IdTaken,
            "Released" => Self::Released,
            _ => Self::Other,
        }
    }
}

impl NotReady {
    pub(super) fn new(id: &str, answer: Announced) -> Self {
        let retry_after = answer.retry_after();
        Self { id: id.to_owned(), retry_after, targets: answer.targets, is_dry_run: answer.dry_run }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the capacity of announcement {:?} is not ready", self.id)?;
        let mut separator = ": ";
        for AnnouncedTarget { resource, needed, capacity } in &self.targets {
            match capacity {
                TargetCapacity::Provisioned { provisioned, .. } => {
                    write!(f, "{separator}{resource} provides {provisioned} of {needed} units")?;
                }
                TargetCapacity::OnDemand { warm, missing: 0, .. } => {
                    write!(f, "{separator}{resource} has a warm throughput of {warm} of {needed} units")?;
                }
                TargetCapacity::OnDemand { warm, missing, price_usd } => write!(
                    f,
                    "{separator}{resource} has a warm throughput of {warm} of {needed} units, and {missing} more cost \
                     {price_usd:.2} USD"
                )?,
            }
            separator = "; ";
        }
        if self.is_dry_run {
            f.write_str("; the function makes a dry run, which changes nothing")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_type_has_its_reason() {
        let names = [
            ("MalformedRequest", RefusalReason::MalformedRequest),
            ("NotCoordinated", RefusalReason::NotCoordinated),
            ("UnknownTable", RefusalReason::UnknownTable),
            ("UnknownIndex", RefusalReason::UnknownIndex),
            ("NoScalableTarget", RefusalReason::NoScalableTarget),
            ("NoScalingPolicy", RefusalReason::NoScalingPolicy),
            ("ScaleInDisabled", RefusalReason::ScaleInDisabled),
            ("MaximumTooLow", RefusalReason::MaximumTooLow),
            ("LimitExceeded", RefusalReason::LimitExceeded),
            ("IdTaken", RefusalReason::IdTaken),
            ("Released", RefusalReason::Released),
            ("Teapot", RefusalReason::Other),
        ];
        for (name, expect) in names {
            let refused = Refused::new(name.to_owned(), "no".to_owned());
            assert_eq!(refused.reason, expect);
            assert_eq!(refused.to_string(), format!("the coordinator refuses the request ({name}): no"));
        }
    }

    #[test]
    fn missing_capacity_is_named() {
        let target = |resource: &str, capacity| AnnouncedTarget { resource: resource.to_owned(), needed: 18, capacity };
        let (minimum, provisioned, maximum) = (18, 8, 40);
        let provisioned = TargetCapacity::Provisioned { minimum, provisioned, maximum, limited_by_maximum: false };
        let on_demand = TargetCapacity::OnDemand { warm: 4, missing: 14, price_usd: 9.1 };
        let targets = vec![target("table/a", provisioned), target("table/b", on_demand)];
        let error = NotReady { id: "load-42".to_owned(), retry_after: None, targets, is_dry_run: true };
        let expect = "the capacity of announcement \"load-42\" is not ready: table/a provides 8 of 18 units; table/b has a \
                      warm throughput of 4 of 18 units, and 14 more cost 9.10 USD; the function makes a dry run, which \
                      changes nothing";
        assert_eq!(error.to_string(), expect);
    }
}
