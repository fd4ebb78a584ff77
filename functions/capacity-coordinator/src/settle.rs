//! Brings the minimum of a target in line with the announcements in force.

use std::borrow::Cow;

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, TargetWrite, WriteOutcome},
    concurrent::{Backoff, within},
    error::{CallError, StoreError},
    table_capacity::Mode,
};
use tidegate_domain::{
    capacity::{
        Capacity, ScalableTarget, Target,
        announcement::{Announcement, Demand, demand},
        minimum::{CALL, MinimumPlan, plan},
    },
    time::EpochMillis,
};

use crate::{CapacityCoordinator, answer::OwnerChange, failure::Failure, report::Counts, time::Time};

/// What the target of a settlement has in the end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    /// The minimum that the target must have, with the scalable target. `None` if there is none.
    pub(crate) minimum: Option<(Capacity, ScalableTarget)>,
    pub(crate) demand: Option<Demand>,
    pub(crate) counts: Counts,
    pub(crate) owner_change: Option<OwnerChange>,
}

/// The record of a target, and all stored announcements, which were read after it.
#[derive(Clone, Debug)]
pub(crate) struct State<'a> {
    /// A moment before the rest was read.
    pub(crate) now: EpochMillis,
    pub(crate) seen: Cow<'a, StoredTarget>,
    pub(crate) announcements: Cow<'a, [Announcement]>,
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

impl CapacityCoordinator {
    /// Settles a target. `first` is its state, if that was read already. If `is_short`, the table is active with a capacity
    /// below the minimum.
    ///
    /// A process that has set a minimum reads the record again, and goes on until it has set what the record says. So
    /// after processes that overlap, the last one leaves the minimum of the newest record.
    pub(crate) async fn settle(
        &self,
        target: &Target,
        mut first: Option<State<'_>>,
        is_short: bool,
        time: Time,
    ) -> Result<Settled, Failure> {
        let mut settled = Settled::default();
        let mut has_set = None;
        let mut backoff = Backoff::default();
        loop {
            let state = if let Some(state) = first.take() {
                state
            } else {
                let now = time.now();
                let Some(seen) = within(time.deadline, self.announcements.find_target(target)).await? else {
                    return Ok(settled);
                };
                if has_set.is_some() && has_set == seen.record.minimum.as_ref().map(|minimum| minimum.planned) {
                    return Ok(settled);
                }
                let announcements = within(time.deadline, self.announcements.all()).await?.into();
                State { now, seen: Cow::Owned(seen), announcements }
            };
            match self.settle_once(&state, is_short && has_set.is_none(), &mut settled, time).await? {
                Step::Done => return Ok(settled),
                Step::Set(minimum) => has_set = Some(minimum),
                Step::Lost => {
                    settled.counts.races_lost += 1;
                    backoff.wait().await;
                }
            }
        }
    }

    async fn settle_once(
        &self,
        State { now, seen, announcements }: &State<'_>,
        is_short: bool,
        settled: &mut Settled,
        time: Time,
    ) -> Result<Step, Failure> {
        let TargetRecord { target, is_on_demand, minimum } = &seen.record;
        let is_known = announcements.iter().any(|announcement| announcement.need(target).is_some());
        let demand = demand(announcements.iter(), target, *now);
        settled.demand = demand;
        if *is_on_demand && minimum.is_none() {
            return if is_known { Ok(Step::Done) } else { self.forget(seen, time).await };
        }
        // A table that is on demand by now needs no minimum: it gets its owner's.
        let provisioned = demand.filter(|_| !is_on_demand);
        let found = self.registered(target, provisioned.is_some(), time).await?;
        let MinimumPlan { record, set, owner_was } =
            plan(minimum.as_ref(), found.as_ref(), provisioned, is_short, *now);
        settled.minimum = record.as_ref().map(|record| record.planned).zip(found);
        if self.config.dry_run {
            return Ok(Step::Done);
        }
        // Announcements that have ended are looked at for some time.
        if record.is_none() && !is_known {
            if let Step::Lost = self.forget(seen, time).await? {
                return Ok(Step::Lost);
            }
        } else if record != *minimum {
            let record = TargetRecord { minimum: record, ..seen.record.clone() };
            let write = TargetWrite { seen: Some(seen), record: &record };
            if within(time.deadline, self.announcements.write_target(write, *now)).await? == WriteOutcome::Lost {
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
        match within(time.within(*now, CALL), self.scaling.set_minimum(target, minimum)).await {
            Ok(()) => {}
            Err(CallError::Store(error @ StoreError::Refused { .. })) => {
                return self.without_minimum(target, error, settled, time).await;
            }
            Err(error) => return Err(error.into()),
        }
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

    /// Finds out why a minimum cannot be set. The scalable target of a deleted table has none to restore. That of a table
    /// that is on demand by now keeps its record: the owner may change the mode again.
    async fn without_minimum(
        &self,
        target: &Target,
        error: StoreError,
        settled: &mut Settled,
        time: Time,
    ) -> Result<Step, Failure> {
        match self.describe(target, time).await {
            Err(gone @ (Failure::UnknownTable(_) | Failure::UnknownIndex { .. })) => {
                tracing::warn!(%target, error = %gone, "the minimum is not restored");
                let seen = within(time.deadline, self.announcements.find_target(target)).await?;
                settled.counts.abandoned += 1;
                match seen {
                    Some(seen) => self.forget(&seen, time).await,
                    None => Ok(Step::Done),
                }
            }
            Ok(described) if matches!(described.mode, Mode::OnDemand { .. }) => {
                tracing::warn!(%target, %error, "the minimum is restored when the table is provisioned again");
                settled.counts.postponed += 1;
                Ok(Step::Done)
            }
            _ => Err(Failure::Call(error)),
        }
    }
}
