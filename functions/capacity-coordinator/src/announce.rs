//! Accepts an announcement, has the minimum raised, and waits for the capacity.

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, TargetWrite, WriteOutcome},
    concurrent::{Backoff, within},
};
use tidegate_domain::capacity::{
    announcement::{Announcement, Demand, Measured, Refusal, Request, accept, continued, demand},
    minimum::plan,
};

use crate::{
    CapacityCoordinator, answer::AnnounceAnswer, event::Announce, failure::Failure, goal::Goal,
    report::CoordinatorReport, target::Survey, time::Time,
};

/// An announcement that was accepted.
struct Accepted {
    announcement: Announcement,
    /// All other stored ones.
    others: Vec<Announcement>,
    /// Whether it was announced before, and its capacity was there.
    was_ready: bool,
}

impl CapacityCoordinator {
    /// Announces work.
    pub(crate) async fn announce(
        &self,
        Announce { request, warm }: Announce,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<AnnounceAnswer, Failure> {
        if warm && !self.config.allow_warm {
            return Err(Failure::WarmNotAllowed);
        }
        let mut surveys = Vec::new();
        for target in &request.targets {
            self.check(target)?;
            surveys.push(self.survey(target.clone(), time).await?);
        }
        let accepted = self.accept_request(request, &surveys, time, report).await?;
        if self.config.dry_run {
            report.counts.dry_run += 1;
            let goals = self.planned(surveys, &accepted, time).await?;
            return Ok(self.answer(&accepted.announcement, &goals));
        }
        report.counts.announced += 1;
        let announcement = accepted.announcement.clone();
        let in_force = |source| match source {
            released @ Failure::Refused(_) => released,
            source => {
                let (id, until) = (announcement.id.clone(), announcement.until);
                Failure::InForce { id, until, source: Box::new(source) }
            }
        };
        Box::pin(self.carry_out(surveys, accepted, warm, time, report)).await.map_err(in_force)
    }

    /// Settles the targets of an announcement, and waits for their capacity.
    async fn carry_out(
        &self,
        surveys: Vec<Survey>,
        accepted: Accepted,
        warm: bool,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<AnnounceAnswer, Failure> {
        let mut goals = Vec::new();
        for survey in surveys {
            let mut goal = Goal::new(survey, accepted.demand(&goals, time));
            if goal.scalable.is_some() {
                let settled = self.settle(&goal.target, None, false, time).await?;
                report.counts += &settled.counts;
                goal.adopt(&settled);
            }
            goals.push(goal);
        }
        let Accepted { announcement, was_ready, .. } = &accepted;
        for goal in &mut goals {
            goal.may_warm = warm;
            self.warm(goal, announcement, time, report).await?;
        }
        self.wait(&mut goals, announcement, time, report).await?;
        if goals.iter().all(Goal::is_met) {
            self.mark_ready(announcement, *was_ready, time, report).await?;
        } else {
            report.counts.not_ready += 1;
        }
        Ok(self.answer(announcement, &goals))
    }

    /// Returns what a dry run would do.
    async fn planned(&self, surveys: Vec<Survey>, accepted: &Accepted, time: Time) -> Result<Vec<Goal>, Failure> {
        let mut goals = Vec::new();
        for survey in surveys {
            let mut goal = Goal::new(survey, accepted.demand(&goals, time));
            let seen = within(time.deadline, self.announcements.find_target(&goal.target)).await?;
            let minimum = seen.and_then(|seen| seen.record.minimum);
            let planned = plan(minimum.as_ref(), goal.scalable.as_ref(), Some(goal.demand), false, time.now());
            goal.wanted = planned.record.map_or(goal.wanted, |record| record.planned);
            goals.push(goal);
        }
        Ok(goals)
    }

    /// Stores when the capacity was there. Fails if the announcement was released meanwhile.
    async fn mark_ready(
        &self,
        announcement: &Announcement,
        was_ready: bool,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<(), Failure> {
        let ready = time.now();
        if announcement.ready.is_some() {
            return Ok(());
        }
        let marked = within(time.deadline, self.announcements.mark_ready(announcement, ready)).await;
        // Its work has begun already.
        report.seconds_to_ready = (!was_ready).then(|| ready.since(announcement.since));
        match marked {
            Ok(WriteOutcome::Written) => {}
            Ok(WriteOutcome::Lost) => {
                let found = within(time.deadline, self.announcements.find(&announcement.id)).await?;
                if !found.is_some_and(|found| found.is_in_force(ready)) {
                    return Err(Refusal::Released(announcement.id.clone()).into());
                }
            }
            Err(error) => {
                tracing::warn!(id = announcement.id, %error, "the announcement could not be marked as ready");
                report.counts.failed += 1;
            }
        }
        Ok(())
    }

    /// Accepts a request, and writes the announcement unless this is a dry run.
    async fn accept_request(
        &self,
        request: Request,
        surveys: &[Survey],
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<Accepted, Failure> {
        let measured = |survey: &Survey| Measured {
            minutes: Vec::new(),
            maximum: survey.scalable.map(|scalable| scalable.maximum),
            may_scale_in: survey.may_scale_in,
        };
        let mut measured: Vec<Measured> = surveys.iter().map(measured).collect();
        let (mut is_measured, mut backoff) = (false, Backoff::default());
        loop {
            let now = time.now();
            // The records are read before the announcements.
            let mut seen = Vec::new();
            for target in &request.targets {
                seen.push(within(time.deadline, self.announcements.find_target(target)).await?);
            }
            let stored = within(time.deadline, self.announcements.all()).await?;
            if !is_measured && continued(&request, &stored).is_none() {
                for (survey, measured) in surveys.iter().zip(&mut measured) {
                    measured.minutes = self.measure(&survey.target, time).await?;
                }
                // If others announce meanwhile, the write is lost.
                is_measured = true;
            }
            let limits = &self.config.limits;
            let announcement = accept(request.clone(), &measured, &stored, limits, time.invoked(), now)?;
            let (same, others): (Vec<_>, _) = stored.into_iter().partition(|stored| stored.id == announcement.id);
            let was_ready = same.iter().any(|same| same.ready.is_some());
            let accepted = Accepted { announcement, others, was_ready };
            if self.config.dry_run || self.write(&accepted, same.first(), surveys, &seen, time).await? {
                return Ok(accepted);
            }
            report.counts.races_lost += 1;
            backoff.wait().await;
        }
    }

    /// Writes an announcement with new versions of its targets' records. Returns whether it did.
    async fn write(
        &self,
        Accepted { announcement, .. }: &Accepted,
        same: Option<&Announcement>,
        surveys: &[Survey],
        seen: &[Option<StoredTarget>],
        time: Time,
    ) -> Result<bool, Failure> {
        let record = |(survey, seen): (&Survey, &Option<StoredTarget>)| TargetRecord {
            target: survey.target.clone(),
            is_on_demand: survey.scalable.is_none(),
            minimum: seen.as_ref().and_then(|seen| seen.record.minimum.clone()),
        };
        let records: Vec<_> = surveys.iter().zip(seen).map(record).collect();
        let writes = records.iter().zip(seen).map(|(record, seen)| TargetWrite { seen: seen.as_ref(), record });
        let writes: Vec<_> = writes.collect();
        let written = self.announcements.announce(same, announcement, &writes, time.now());
        Ok(within(time.deadline, written).await? == WriteOutcome::Written)
    }
}

impl Accepted {
    /// Returns what all announcements need of the target that follows `goals`.
    fn demand(&self, goals: &[Goal], time: Time) -> Demand {
        let all = self.others.iter().chain([&self.announcement]);
        let target = self.announcement.needs.get(goals.len()).map(|need| &need.target);
        target.and_then(|target| demand(all, target, time.now())).unwrap_or(Demand::NONE)
    }
}
