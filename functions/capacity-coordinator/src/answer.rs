//! What the function answers.

use serde::Serialize;
use tidegate_domain::{capacity::Target, time::EpochMillis};

/// The function's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Announce(AnnounceAnswer),
    Release(ReleaseAnswer),
    Restore(RestoreAnswer),
    List(ListAnswer),
    Status(StatusAnswer),
}

/// The answer to an announcement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnnounceAnswer {
    pub id: String,
    /// Whether all targets have their capacity.
    pub ready: bool,
    /// The provisioned capacity of the first target. `None` if it is on demand.
    pub provisioned: Option<u64>,
    /// When the announcement ends, in epoch seconds.
    pub until: i64,
    /// When to announce again, if waiting helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// Whether this only says what would be done.
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
    pub targets: Vec<TargetAnswer>,
}

/// What an announcement needs of a target, and what it has.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum TargetAnswer {
    Provisioned {
        resource: String,
        minimum: u64,
        provisioned: u64,
        /// What all announcements in force and the other traffic need, at most the maximum.
        needed: u64,
        maximum: u64,
        /// Whether the target utilization needs more than the maximum.
        #[serde(skip_serializing_if = "is_false")]
        limited_by_maximum: bool,
    },
    OnDemand {
        resource: String,
        /// The warm throughput.
        warm: u64,
        needed: u64,
        missing: u64,
        /// What raising the warm throughput costs, once, in US dollars.
        price_usd: f64,
    },
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReleaseAnswer {
    pub id: String,
    /// Whether it was in force.
    pub released: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// The answer to the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RestoreAnswer {
    /// Announcements in force.
    pub announcements: usize,
    /// Announcements that had ended by themselves.
    pub expired: usize,
    /// Targets with a record.
    pub targets: usize,
    pub raised: usize,
    pub restored: usize,
    pub owner_changes: Vec<OwnerChange>,
    #[serde(skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// A minimum that its owner has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerChange {
    pub resource: String,
    pub dimension: String,
    pub from: u64,
    pub to: u64,
}

impl OwnerChange {
    pub(crate) fn new(target: &Target, from: u64, to: u64) -> Self {
        Self { resource: target.resource(), dimension: target.kind.to_string(), from, to }
    }
}

/// The announcements in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListAnswer {
    pub announcements: Vec<ListedAnnouncement>,
}

/// An announcement in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedAnnouncement {
    pub id: String,
    pub caller: String,
    pub resources: Vec<String>,
    pub dimension: String,
    pub units: u64,
    /// In epoch seconds.
    pub until: i64,
    pub ready: bool,
}

/// The state of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusAnswer {
    pub resource: String,
    pub dimension: String,
    #[serde(flatten)]
    pub mode: StatusMode,
    /// In the last complete minute.
    pub consumption: u64,
    pub announced: u64,
    pub needed: u64,
    /// The ids of the announcements in force.
    pub announcements: Vec<String>,
}

/// What depends on how the capacity is paid for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum StatusMode {
    Provisioned { minimum: u64, owner_minimum: u64, maximum: u64, target_utilization: f64, provisioned: u64 },
    OnDemand { warm: u64 },
}

/// Epoch seconds, rounded up.
pub(crate) fn seconds(moment: EpochMillis) -> i64 {
    (moment.get() + 999) / 1000
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}
