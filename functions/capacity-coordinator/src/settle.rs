//! Brings the minimum of a target in line with the announcements in force.

use std::time::Duration;

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, TargetWrite, WriteOutcome},
    concurrent::within,
};
use tidegate_domain::{
    capacity::{
        Capacity, ScalableTarget, Target,
        announcement::{Announcement, Demand, demand},
        minimum::{MinimumPlan, plan},
    },
    time::EpochMillis,
};

use crate::{CapacityCoordinator, answer::OwnerChange, failure::Failure, report::Counts, time::Time};

/// The time that a process has to set a minimum: far less than that after which such a call counts as ended.
const CALL: Duration = Duration::from_mins(1);

/// How often a race may be lost.
const ATTEMPTS: usize = 50;

/// What the target of a settlement has in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// The minimum that the target must have, with the scalable target. `None` if there is none.
    pub(crate) minimum: Option<(Capacity, ScalableTarget)>,
    pub(crate) demand: Option<Demand>,
    pub(crate) counts: Counts,
    pub(crate) owner_change: Option<OwnerChange>,
}

/// The record of a target, and the announcements, which were read after it.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// A moment before the rest was read.
    pub(crate) now: EpochMillis,
    pub(crate) seen: &'a StoredTarget,
    pub(crate) announcements: &'a [Announcement],
}

impl CapacityCoordinator {
    /// Settles a target. `is_short` tells that its capacity stays below its minimum.
    ///
    /// A process that has set a minimum reads the record again, and goes on until it has set what the record says. So
    /// after processes that overlap, the last one leaves the minimum of the newest record.
    pub(crate) async fn settle(&self, target: &Target, is_short: bool, time: Time) -> Result<Settled, Failure> {
        let mut settled = Settled::default();
        let mut has_set = None;
        for _ in 0..ATTEMPTS {
            let now = time.now();
            let Some(seen) = within(time.deadline, self.announcements.find_target(target)).await? else {
                return Ok(settled);
            };
            if has_set.is_some() && has_set == seen.record.minimum.as_ref().map(|minimum| minimum.planned) {
                return Ok(settled);
            }
            let announcements = within(time.deadline, self.announcements.all()).await?;
            let view = View { now, seen: &seen, announcements: &announcements };
            match self.settle_once(view, is_short && has_set.is_none(), &mut settled, time).await? {
                Step::Done => return Ok(settled),
                Step::Set(minimum) => has_set = Some(minimum),
                Step::Lost => settled.counts.races_lost += 1,
            }
        }
        Err(Failure::Busy(target.clone()))
    }

    /// Settles a target whose record was read with those of others.
    pub(crate) async fn settle_from(&self, view: View<'_>, time: Time) -> Result<Settled, Failure> {
        let mut settled = Settled::default();
        let target = view.seen.record.target.clone();
        if let Step::Done = self.settle_once(view, false, &mut settled, time).await? {
            return Ok(settled);
        }
        let Settled { counts, owner_change, .. } = settled;
        let mut settled = self.settle(&target, false, time).await?;
        settled.counts += &counts;
        settled.owner_change = owner_change.or(settled.owner_change);
        Ok(settled)
    }

    async fn settle_once(
        &self,
        View { now, seen, announcements }: View<'_>,
        is_short: bool,
        settled: &mut Settled,
        time: Time,
    ) -> Result<Step, Failure> {
        let TargetRecord { target, is_on_demand, minimum } = &seen.record;
        let demand = demand(announcements, target, now);
        settled.demand = demand;
        if *is_on_demand && minimum.is_none() {
            return if demand.is_none() { self.forget(seen, time).await } else { Ok(Step::Done) };
        }
        let found = self.registered(target, time).await?;
        // A table that is on demand by now needs no minimum: it gets its owner's.
        let provisioned = demand.filter(|_| !is_on_demand);
        let MinimumPlan { record, set, owner_was } = plan(minimum.as_ref(), found.as_ref(), provisioned, is_short, now);
        settled.minimum = record.as_ref().map(|record| record.planned).zip(found);
        if self.config.dry_run {
            return Ok(Step::Done);
        }
        if record.is_none() && demand.is_none() {
            if let Step::Lost = self.forget(seen, time).await? {
                return Ok(Step::Lost);
            }
        } else if record != *minimum {
            let record = TargetRecord { minimum: record, ..seen.record.clone() };
            let write = TargetWrite { seen: Some(seen), record: &record };
            if within(time.deadline, self.announcements.write_target(write, now)).await? == WriteOutcome::Lost {
                return Ok(Step::Lost);
            }
        }
        let Some(found) = found else { return Ok(Step::Done) };
        if let Some(owner_was) = owner_was {
            let change = OwnerChange::new(target, owner_was.get(), found.minimum.get());
            tracing::warn!(%target, from = change.from, to = change.to, "the owner has changed the minimum");
            settled.counts.owner_changed += 1;
            settled.owner_change = Some(change);
        }
        let Some(minimum) = set else { return Ok(Step::Done) };
        within(time.within(now, CALL), self.scaling.set_minimum(target, minimum)).await?;
        tracing::info!(%target, from = found.minimum.get(), to = minimum.get(), "set the minimum");
        settled.counts.raised += usize::from(minimum > found.minimum);
        settled.counts.restored += usize::from(minimum < found.minimum);
        Ok(Step::Set(minimum))
    }

    async fn forget(&self, seen: &StoredTarget, time: Time) -> Result<Step, Failure> {
        if self.config.dry_run {
            return Ok(Step::Done);
        }
        Ok(match within(time.deadline, self.announcements.forget_target(seen)).await? {
            WriteOutcome::Written => Step::Done,
            WriteOutcome::Lost => Step::Lost,
        })
    }
}

/// How an attempt to settle a target ended.
enum Step {
    /// The target is as it must be.
    Done,
    /// This minimum was set. Another process may have planned another one meanwhile.
    Set(Capacity),
    /// Another process has changed the record.
    Lost,
}
