//! Settles all targets, and deletes what has ended.

use std::{borrow::Cow, num::NonZeroUsize, time::Duration};

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, WriteOutcome},
    concurrent::{Backoff, concurrently, within},
    table_capacity::{Described, Mode},
};
use tidegate_domain::{
    capacity::announcement::{Announcement, demand},
    time::EpochMillis,
};

use crate::{
    CapacityCoordinator,
    answer::{ReleaseAnswer, RestoreAnswer},
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
        let StoredTarget { record: TargetRecord { target, is_on_demand, minimum }, .. } = state.seen.as_ref();
        let is_needed = demand(state.announcements.iter(), target, state.now).is_some() && !is_on_demand;
        let is_short = match minimum {
            Some(minimum) if is_needed => match self.describe(target, time).await {
                Ok(Described { is_active: true, mode: Mode::Provisioned { units } }) => units < minimum.planned,
                // The settlement finds out whether there still is a minimum.
                Ok(_) | Err(Failure::UnknownTable(_) | Failure::UnknownIndex { .. }) => false,
                Err(error) => return Err(error),
            },
            _ => false,
        };
        let target = target.clone();
        self.settle(&target, Some(state), is_short, time).await
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
    pub(crate) async fn release(&self, id: String, time: Time, counts: &mut Counts) -> Result<ReleaseAnswer, Failure> {
        let (dry_run, mut backoff) = (self.config.dry_run, Backoff::default());
        loop {
            let now = time.now();
            let found = within(time.deadline, self.announcements.find(&id)).await?;
            let in_force = found.as_ref().filter(|found| found.is_in_force(now));
            if dry_run {
                counts.dry_run += 1;
                return Ok(ReleaseAnswer { id, released: false, dry_run });
            }
            let released = self.announcements.release(&id, found.as_ref(), now);
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
