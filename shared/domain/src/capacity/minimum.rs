//! The minimum of a scalable target: what it must be, and how it is changed by processes that share no memory.

use std::{collections::BTreeMap, time::Duration};

use super::{Capacity, ScalableTarget, announcement::Demand};
use crate::time::EpochMillis;

/// The time after which no call that was begun for a record is still under way, and no description shows an earlier minimum.
/// A process writes the record, and then calls within [`CALL`]. The rest is for clocks that differ, for a call that is slow
/// to arrive, and for descriptions that lag behind.
pub const CALLS_END: Duration = Duration::from_mins(3);

/// The time that a process has to set a minimum, from the moment with which it has decided.
pub const CALL: Duration = Duration::from_mins(1);

const _: () =
    assert!(CALL.as_secs() * 2 < CALLS_END.as_secs(), "a call must have ended before its minimum is forgotten");

/// What is stored of a target while its minimum is not, or may not be, the owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumRecord {
    /// The minimum that the owner has set.
    pub owner: Capacity,
    /// The minimum that the target must have.
    pub planned: Capacity,
    /// Each minimum that a call may still set, or that was found, with the time from which it is not expected any more.
    pub calls: BTreeMap<Capacity, EpochMillis>,
}

/// What to do about a target's minimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumPlan {
    /// The record from now on. `None` if none is needed any more. If it differs from the one that was read, it must be
    /// written before the minimum is set.
    pub record: Option<MinimumRecord>,
    /// The minimum to set, if the target has another one.
    pub set: Option<Capacity>,
    /// Whether the owner has changed the minimum meanwhile: from which value.
    pub owner_was: Option<Capacity>,
}

impl MinimumRecord {
    /// Returns whether the coordinator may have set this minimum, or found it.
    fn explains(&self, minimum: Capacity) -> bool {
        minimum == self.owner || minimum == self.planned || self.calls.contains_key(&minimum)
    }
}

/// Decides which minimum a target must have at the moment `now`, which is **before** `found` is read: a call that ends
/// between the two may have changed it since.
///
/// `record` is what was read of the target, before the announcements were. `found` is the target as Application Auto
/// Scaling knows it, or `None` if it is not registered any more. `demand` is what the announcements in force need.
/// `is_short` tells that the table is active with a capacity below the minimum. The minimum is then set again: a call has
/// [no effect on the capacity](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html)
/// while the table is updating.
#[must_use]
pub fn plan(
    record: Option<&MinimumRecord>,
    found: Option<&ScalableTarget>,
    demand: Option<Demand>,
    is_short: bool,
    now: EpochMillis,
) -> MinimumPlan {
    // The owner has removed the target: there is no minimum to restore.
    let Some(found) = found else { return MinimumPlan { record: None, set: None, owner_was: None } };
    let (owner, owner_was) = match record {
        Some(record) if record.explains(found.minimum) => (record.owner, None),
        Some(record) => (found.minimum, Some(record.owner)),
        None => (found.minimum, None),
    };
    let planned = demand.map_or(owner, |Demand { other, announced }| found.needed(other, announced).max(owner));
    let set = (planned != found.minimum || is_short).then_some(planned);
    let mut calls = record.map(|record| record.calls.clone()).unwrap_or_default();
    if set.is_some() {
        // The present value may be read again: until the new one is set, and from a description that lags behind.
        if found.minimum != owner {
            calls.insert(found.minimum, now.after(CALLS_END));
        }
        calls.insert(planned, now.after(CALLS_END));
    } else {
        // Only now is it certain that no earlier value is the present one.
        calls.retain(|_, end| *end > now);
    }
    let is_settled = demand.is_none() && set.is_none() && calls.keys().all(|minimum| *minimum == owner);
    let record = (!is_settled).then_some(MinimumRecord { owner, planned, calls });
    MinimumPlan { record, set, owner_was }
}
