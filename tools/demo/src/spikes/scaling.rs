//! A table whose provisioned capacity Application Auto Scaling adjusts, by a target tracking policy.
//!
//! AWS documents these rules:
//!
//! - The capacity is raised when the consumption of two consecutive minutes is above the target utilization ([auto
//!   scaling][rules]), and lowered when that of 15 consecutive minutes is more than 20 percentage points below it
//!   ([knowledge center][below]). The new capacity has the target utilization, within the minimum and the maximum.
//! - [`RegisterScalableTarget`][register] or a [scheduled action][schedule] moves a capacity outside the new range into it at
//!   once. It changes no capacity inside the range.
//! - A capacity can be [decreased](super::quota) so many times a day.
//! - The alarms are delayed by up to a few minutes, and an update takes a few minutes. Until it ends, the table throttles
//!   what exceeds the previous capacity ([auto scaling][rules]).
//!
//! AWS documents none of the durations. Those below are assumptions. A minute each reproduces the [article], in which
//! the capacity follows about five minutes after a jump: two minutes above the target, and three until they have an effect.
//! It is an assumption, too, that the new capacity is computed from the last minute that the alarm has seen.
//!
//! [rules]: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/AutoScaling.html
//! [below]: https://repost.aws/knowledge-center/dynamodb-auto-scaling
//! [register]: https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html
//! [schedule]: https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-scheduled-scaling.html
//! [article]: https://aws.amazon.com/blogs/database/handle-traffic-spikes-with-amazon-dynamodb-provisioned-capacity/

use std::{collections::VecDeque, mem};

use super::{quota::DecreaseQuota, table::ProvisionedTable, traffic::MINUTE};

/// Assumption: CloudWatch shows the consumption of a minute so many seconds after its end.
pub(crate) const METRIC_DELAY: u32 = 60;
/// Assumption: an alarm that a minute sets off calls Application Auto Scaling so many seconds after the metric is there.
pub(crate) const ALARM_DELAY: u32 = 60;
/// Assumption: an `UpdateTable` takes so many seconds.
pub(crate) const UPDATE_TIME: u32 = 60;

const MINUTES_ABOVE: usize = 2;
const MINUTES_BELOW: usize = 15;
/// Percentage points.
const BELOW_TARGET: u32 = 20;

/// The range and the target utilization of a table's capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetTracking {
    pub(crate) minimum: u64,
    pub(crate) maximum: u64,
    /// In percent.
    pub(crate) utilization: u32,
}

/// An `UpdateTable` that has not ended.
#[derive(Clone, Copy, Debug)]
struct Update {
    capacity: u64,
    ends: u32,
}

/// The consumption of one minute.
#[derive(Clone, Copy, Debug)]
struct Datapoint {
    /// The second after it.
    ended: u32,
    consumed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ScaledTable {
    table: ProvisionedTable,
    target: TargetTracking,
    /// Write units of the current minute.
    minute: u64,
    /// The oldest first.
    datapoints: VecDeque<Datapoint>,
    update: Option<Update>,
    decreases: DecreaseQuota,
}

impl ScaledTable {
    /// Creates a table whose capacity has the target utilization for this consumption, in write units a second.
    pub(crate) fn new(target: TargetTracking, consumption: u64) -> Self {
        Self {
            table: ProvisionedTable::new(desired(target, consumption * u64::from(MINUTE))),
            target,
            minute: 0,
            datapoints: VecDeque::new(),
            update: None,
            decreases: DecreaseQuota::default(),
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.table.capacity()
    }

    pub(crate) fn target(&self) -> TargetTracking {
        self.target
    }

    /// Replaces the minimum, as `RegisterScalableTarget` and a scheduled action do.
    pub(crate) fn set_minimum(&mut self, minimum: u64) {
        self.target.minimum = minimum.min(self.target.maximum);
    }

    /// Returns the write units a second of the last minute that CloudWatch shows, rounded up.
    pub(crate) fn consumption(&self, now: u32) -> Option<u64> {
        self.shown(now, METRIC_DELAY).next().map(|consumed| consumed.div_ceil(MINUTE.into()))
    }

    /// Ends and begins updates of the capacity. It is called once for each second, before [`Self::serve`].
    pub(crate) fn advance(&mut self, now: u32) {
        if let Some(update) = self.update.take_if(|update| update.ends <= now) {
            self.table.set_capacity(update.capacity);
        }
        if self.update.is_some() {
            return;
        }
        // CloudWatch evaluates an alarm every minute.
        let alarm = if now.is_multiple_of(MINUTE) { self.alarm(now) } else { None };
        let capacity = self.table.capacity();
        let wanted = alarm.unwrap_or(capacity).clamp(self.target.minimum, self.target.maximum);
        if wanted > capacity || (wanted < capacity && self.decreases.take(now)) {
            self.update = Some(Update { capacity: wanted, ends: now + UPDATE_TIME });
        }
    }

    /// Returns how many of the write units of the second `now` are served.
    pub(crate) fn serve(&mut self, demanded: u64, now: u32) -> u64 {
        let served = self.table.serve(demanded);
        self.minute += served;
        if (now + 1).is_multiple_of(MINUTE) {
            self.datapoints.push_back(Datapoint { ended: now + 1, consumed: mem::take(&mut self.minute) });
            let delay = METRIC_DELAY + ALARM_DELAY;
            let needed = MINUTES_BELOW + (delay / MINUTE) as usize;
            let surplus = self.datapoints.len().saturating_sub(needed);
            self.datapoints.drain(..surplus);
        }
        served
    }

    /// Returns the capacity that an alarm asks for.
    fn alarm(&self, now: u32) -> Option<u64> {
        let shown = || self.shown(now, METRIC_DELAY + ALARM_DELAY);
        let (last, TargetTracking { utilization, .. }) = (shown().next()?, self.target);
        // Both sides in hundredths of write units.
        let level = |percent: u32| u64::from(percent) * self.table.capacity() * u64::from(MINUTE);
        let is_above = |consumed| 100 * consumed > level(utilization);
        let is_below = |consumed| 100 * consumed < level(utilization.saturating_sub(BELOW_TARGET));
        let goes_on = |minutes: usize, is_beyond: &dyn Fn(u64) -> bool| {
            shown().take(minutes).filter(|consumed| is_beyond(*consumed)).count() == minutes
        };
        let is_set_off = goes_on(MINUTES_ABOVE, &is_above) || goes_on(MINUTES_BELOW, &is_below);
        is_set_off.then(|| desired(self.target, last))
    }

    /// The consumption of the minutes that ended at least `delay` seconds ago, the newest first.
    fn shown(&self, now: u32, delay: u32) -> impl Iterator<Item = u64> {
        let shown = self.datapoints.iter().rev().filter(move |datapoint| datapoint.ended + delay <= now);
        shown.map(|datapoint| datapoint.consumed)
    }
}

/// Returns the capacity at which a minute with this consumption has the target utilization.
fn desired(target: TargetTracking, consumed: u64) -> u64 {
    let capacity = (100 * consumed).div_ceil(u64::from(target.utilization * MINUTE));
    capacity.clamp(target.minimum, target.maximum)
}
