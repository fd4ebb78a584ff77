//! Settles all targets, and deletes what has ended.

use std::num::NonZeroUsize;

use tidegate_aws::{
    announcements::WriteOutcome,
    concurrent::{concurrently, within},
};
use tidegate_domain::capacity::announcement::Announcement;

use crate::{
    CapacityCoordinator,
    answer::{ReleaseAnswer, RestoreAnswer},
    failure::Failure,
    report::Counts,
    settle::View,
    time::Time,
};

/// How many targets are settled at the same time. Application Auto Scaling throttles soon.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

impl CapacityCoordinator {
    /// Settles each target that has a record, whether or not another one fails.
    pub(crate) async fn restore(&self, time: Time, counts: &mut Counts) -> Result<RestoreAnswer, Failure> {
        let now = time.now();
        // The records are read before the announcements.
        let targets = within(time.deadline, self.announcements.targets()).await?;
        let mut answer =
            RestoreAnswer { targets: targets.len(), dry_run: self.config.dry_run, ..RestoreAnswer::default() };
        let (mut failed, mut first) = (0, None);
        if !targets.is_empty() {
            let stored = within(time.deadline, self.announcements.all()).await?;
            let (in_force, ended): (Vec<_>, Vec<_>) =
                stored.iter().partition(|announcement: &&Announcement| announcement.is_in_force(now));
            answer.announcements = in_force.len();
            answer.expired = ended.len();
            let settle = |seen| {
                let view = View { now, seen, announcements: &stored };
                async move { (seen, self.settle_from(view, time).await) }
            };
            for (seen, settled) in concurrently(&targets, CONCURRENCY, settle).await {
                match settled {
                    Ok(settled) => {
                        *counts += &settled.counts;
                        answer.owner_changes.extend(settled.owner_change);
                    }
                    Err(error) => {
                        tracing::error!(target_name = %seen.record.target, error = %error, "a target is not settled");
                        failed += 1;
                        first = first.or(Some(error));
                    }
                }
            }
            self.delete_ended(&ended, time, counts).await?;
        }
        counts.targets = targets.len();
        counts.failed += failed;
        (answer.raised, answer.restored) = (counts.raised, counts.restored);
        if let Some(first) = first {
            return Err(Failure::Unsettled { failed, targets: targets.len(), first: Box::new(first) });
        }
        counts.succeeded = 1;
        Ok(answer)
    }

    /// Deletes announcements that do not count any more. TTL would, after days.
    async fn delete_ended(&self, ended: &[&Announcement], time: Time, counts: &mut Counts) -> Result<(), Failure> {
        if self.config.dry_run {
            return Ok(());
        }
        for announcement in ended {
            let deleted = within(time.deadline, self.announcements.delete(announcement)).await?;
            counts.expired += usize::from(deleted == WriteOutcome::Written);
        }
        Ok(())
    }

    /// Ends an announcement. If a target cannot be settled then, the schedule does it.
    pub(crate) async fn release(&self, id: String, time: Time, counts: &mut Counts) -> Result<ReleaseAnswer, Failure> {
        let dry_run = self.config.dry_run;
        loop {
            let found = within(time.deadline, self.announcements.find(&id)).await?;
            let Some(found) = found.filter(|found| found.is_in_force(time.now())) else {
                counts.not_in_force += 1;
                return Ok(ReleaseAnswer { id, released: false, dry_run });
            };
            if dry_run {
                counts.dry_run += 1;
                return Ok(ReleaseAnswer { id, released: true, dry_run });
            }
            if within(time.deadline, self.announcements.delete(&found)).await? == WriteOutcome::Lost {
                counts.races_lost += 1;
                continue;
            }
            counts.released += 1;
            for need in &found.needs {
                match self.settle(&need.target, false, time).await {
                    Ok(settled) => *counts += &settled.counts,
                    Err(error) => {
                        tracing::warn!(target_name = %need.target, error = %error, "the schedule will settle a target");
                        counts.failed += 1;
                    }
                }
            }
            return Ok(ReleaseAnswer { id, released: true, dry_run });
        }
    }
}
