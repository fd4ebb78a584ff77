//! Settles all targets, and deletes what has ended.

use std::{borrow::Cow, num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, TargetWrite, WriteOutcome},
    concurrent::{Backoff, concurrently, within},
    table_capacity::Mode,
};
use tidegate_domain::{
    capacity::{
        Target,
        announcement::{Announcement, Refusal, demand},
    },
    time::EpochMillis,
};

use crate::{
    CapacityCoordinator,
    answer::{ReleaseAnswer, RestoreAnswer},
    event::Release,
    failure::Failure,
    report::Counts,
    settle::{Settled, State},
    time::Time,
};

/// How many targets are settled, and announcements deleted, at the same time. Application Auto Scaling throttles soon.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// How long an announcement is kept after its end: metrics show its work for some minutes.
const KEPT: Duration = Duration::from_mins(10);

impl CapacityCoordinator {
    /// Settles each target that has a record, whether or not another one fails.
    pub(crate) async fn restore(&self, time: Time, counts: &mut Counts) -> Result<RestoreAnswer, Failure> {
        let now = time.now();
        // The records are read before the announcements.
        let (targets, unreadable) = within(time.deadline, self.announcements.targets()).await?;
        let mut answer =
            RestoreAnswer { targets: targets.len(), dry_run: self.config.dry_run, ..RestoreAnswer::default() };
        let (mut failed, mut first) = (0, None);
        if !targets.is_empty() {
            let stored = within(time.deadline, self.announcements.all()).await?;
            let (in_force, ended): (Vec<_>, Vec<_>) =
                stored.iter().partition(|announcement: &&Announcement| announcement.is_in_force(now));
            answer.announcements = in_force.len();
            answer.expired = ended.iter().filter(|ended| ended.released.is_none()).count();
            let settle = |seen| {
                let state = State { now, seen: Cow::Borrowed(seen), announcements: (&stored[..]).into() };
                async move { (seen, Box::pin(self.restore_target(state, time)).await) }
            };
            for (seen, settled) in concurrently(&targets, CONCURRENCY, settle).await {
                match settled {
                    Ok(settled) => {
                        *counts += &settled.counts;
                        answer.owner_changes.extend(settled.owner_change);
                    }
                    Err(error) => {
                        tracing::error!(target = %seen.record.target, %error, "a target is not settled");
                        failed += 1;
                        first = first.or(Some(error));
                    }
                }
            }
            self.delete_ended(&ended, now, time, counts).await;
        }
        counts.targets = targets.len();
        counts.failed += failed;
        (answer.raised, answer.restored) = (counts.raised, counts.restored);
        if let Some(first) = first {
            return Err(Failure::Unsettled { failed, targets: targets.len(), first: Box::new(first) });
        }
        if unreadable > 0 {
            counts.failed += unreadable;
            return Err(Failure::Unreadable(unreadable));
        }
        counts.succeeded = 1;
        Ok(answer)
    }

    /// Settles a target. Looks at its capacity, too, if announcements need it: a call has no effect on a table that is
    /// updating.
    async fn restore_target(&self, state: State<'_>, time: Time) -> Result<Settled, Failure> {
        let StoredTarget { record, .. } = state.seen.as_ref();
        let TargetRecord { target, is_on_demand, minimum } = record;
        let target = target.clone();
        if demand(state.announcements.iter(), &target, state.now).is_none() {
            return self.settle(&target, Some(state), false, time).await;
        }
        let described = match self.describe(&target, time).await {
            Ok(described) => described,
            // The settlement finds out whether there still is a minimum.
            Err(error) => return self.settle_after(error, &target, state, time).await,
        };
        match (described.mode, minimum) {
            (Mode::Provisioned { .. }, _) if *is_on_demand && !self.config.dry_run => {
                // It was switched to provisioned capacity since it was announced to.
                match self.scalable(&target, time).await {
                    Ok((_, true)) => {}
                    Ok((_, false)) => {
                        let error = Refusal::ScaleInDisabled(target.clone()).into();
                        return self.settle_after(error, &target, state, time).await;
                    }
                    Err(error) => return self.settle_after(error, &target, state, time).await,
                }
                let record = TargetRecord { is_on_demand: false, ..record.clone() };
                let write = TargetWrite { seen: Some(&state.seen), record: &record };
                within(time.deadline, self.announcements.write_target(write, state.now)).await?;
                self.settle(&target, None, false, time).await
            }
            (Mode::Provisioned { units }, Some(minimum)) => {
                let is_short = described.is_active && units < minimum.planned;
                self.settle(&target, Some(state), is_short, time).await
            }
            _ => self.settle(&target, Some(state), false, time).await,
        }
    }

    /// Settles a target whose capacity could not be found out.
    async fn settle_after(
        &self,
        error: Failure,
        target: &Target,
        state: State<'_>,
        time: Time,
    ) -> Result<Settled, Failure> {
        tracing::warn!(%target, %error, "a target is settled without a look at its capacity");
        let mut settled = self.settle(target, Some(state), false, time).await?;
        settled.counts.failed += 1;
        Ok(settled)
    }

    /// Deletes announcements that ended some minutes ago. Until then, the consumption may hold their work. If a call fails,
    /// the next restore deletes them.
    async fn delete_ended(&self, ended: &[&Announcement], now: EpochMillis, time: Time, counts: &mut Counts) {
        if self.config.dry_run {
            return;
        }
        let end = |announcement: &Announcement| announcement.released.unwrap_or(announcement.until);
        let old = ended.iter().filter(|announcement| now.since(end(announcement)) >= KEPT);
        let delete = |announcement: &&Announcement| {
            let announcement = (*announcement).clone();
            async move { (within(time.deadline, self.announcements.delete(&announcement)).await, announcement) }
        };
        for (deleted, announcement) in concurrently(old, CONCURRENCY, delete).await {
            match deleted {
                Ok(WriteOutcome::Written) => counts.expired += usize::from(announcement.released.is_none()),
                // Another process was faster: it is gone, or announced again.
                Ok(WriteOutcome::Lost) => counts.races_lost += 1,
                Err(error) => {
                    tracing::warn!(id = announcement.id, %error, "an announcement that has ended is not deleted");
                    counts.failed += 1;
                }
            }
        }
    }

    /// Ends an announcement. If a target cannot be settled then, the schedule does it.
    pub(crate) async fn release(
        &self,
        Release { id, run }: Release,
        time: Time,
        counts: &mut Counts,
    ) -> Result<ReleaseAnswer, Failure> {
        let (dry_run, mut backoff) = (self.config.dry_run, Backoff::default());
        loop {
            let now = time.now();
            let found = within(time.deadline, self.announcements.find(&id)).await?;
            let in_force = found.as_ref().filter(|found| found.is_in_force(now));
            if dry_run {
                counts.dry_run += 1;
                return Ok(ReleaseAnswer { id, released: false, dry_run });
            }
            // A release that is repeated by its run must not end what another run has announced since.
            if found.as_ref().is_some_and(|found| found.was_released_by(run.as_deref())) {
                counts.not_in_force += 1;
                return Ok(ReleaseAnswer { id, released: false, dry_run });
            }
            let released = self.announcements.release(&id, found.as_ref(), run.as_deref(), now);
            if within(time.deadline, released).await? == WriteOutcome::Lost {
                counts.races_lost += 1;
                backoff.wait().await;
                continue;
            }
            let Some(in_force) = in_force else {
                counts.not_in_force += 1;
                return Ok(ReleaseAnswer { id, released: false, dry_run });
            };
            counts.released += 1;
            for need in &in_force.needs {
                match self.settle(&need.target, None, false, time).await {
                    Ok(settled) => *counts += &settled.counts,
                    Err(error) => {
                        tracing::warn!(target = %need.target, %error, "the schedule will settle a target");
                        counts.failed += 1;
                    }
                }
            }
            return Ok(ReleaseAnswer { id, released: true, dry_run });
        }
    }
}
