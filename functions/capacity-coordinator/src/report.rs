//! What one invocation did, in numbers.

use std::time::Duration;

use metrique::{
    unit::{Count, Second},
    unit_of_work::metrics,
};

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 7] =
    ["Announced", "Raised", "Restored", "NotReady", "SecondsToReady", "OwnerChanged", "Succeeded"];

tidegate_lambda::report! {
    /// The counts of one invocation.
    pub struct Counts {
        /// Announcements that were accepted.
        announced,
        /// Announcements whose capacity was not provisioned in time.
        not_ready,
        /// Requests that can never succeed as they are.
        refused,
        /// Announcements that were ended by a request.
        released,
        /// Requests to end an announcement that was not in force.
        not_in_force,
        /// Announcements that had ended by themselves, and were deleted.
        expired,
        /// Targets with a record that a restore looked at.
        targets,
        /// Minimums that were raised.
        raised,
        /// Minimums that were lowered, to what is still needed or to the owner's.
        restored,
        /// Minimums that the owner had changed.
        owner_changed,
        /// Minimums that are restored when their table, which is on demand by now, is provisioned again.
        postponed,
        /// Minimums that cannot be restored, because the table or the index is deleted.
        abandoned,
        /// Warm throughputs that were raised.
        warmed,
        /// Writes that another invocation preceded. They are repeated.
        races_lost,
        /// Restores that settled all targets.
        succeeded,
        /// Requests that a dry run did not carry out.
        dry_run,
        /// Requests, and targets of a restore, for which a call failed.
        failed,
    }
}

/// The line of one invocation.
#[metrics(rename_all = "PascalCase")]
#[derive(Clone, Debug, Default)]
pub struct CoordinatorReport {
    #[metrics(flatten)]
    pub counts: Counts,
    /// From the first announcement under this id to its capacity.
    #[metrics(unit = Second)]
    pub seconds_to_ready: Option<Duration>,
}
