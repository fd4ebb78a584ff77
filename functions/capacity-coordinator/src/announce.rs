//! Accepts an announcement, has the minimum raised, and waits for the capacity.

use std::time::Duration;

use tidegate_aws::{
    announcements::{StoredTarget, TargetRecord, TargetWrite, WriteOutcome},
    concurrent::within,
    table_capacity::{Described, Mode, Warm},
};
use tidegate_domain::capacity::{
    Capacity, ScalableTarget,
    announcement::{Announcement, Demand, Measured, accept, demand},
    minimum::plan,
    warm,
};
use tokio::time::{Instant, sleep};

use crate::{
    CapacityCoordinator,
    answer::{AnnounceAnswer, TargetAnswer, seconds},
    event::Announce,
    failure::Failure,
    report::CoordinatorReport,
    target::Survey,
    time::Time,
};

/// How often a race may be lost.
const ATTEMPTS: usize = 50;

/// When to announce again.
const RETRY_AFTER: Duration = Duration::from_secs(20);

/// How often a table may be active with too little capacity before its minimum is set once more.
const SHORT_LOOKS: u32 = 5;

/// A target of an accepted announcement, and what it must have.
struct Goal {
    survey: Survey,
    /// The capacity to wait for.
    wanted: Capacity,
    demand: Demand,
    scalable: Option<ScalableTarget>,
    described: Described,
    /// How often in a row the table was active and had too little.
    short_looks: u32,
    /// Whether this invocation has raised the warm throughput. A description may not show it yet.
    is_warming: bool,
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
        let announce = Announce { request, warm };
        let (accepted, stored) = self.accept(&announce, &surveys, time, report).await?;
        let mut goals = Vec::new();
        for survey in surveys {
            goals.push(self.goal(survey, &accepted, &stored, time, report).await?);
        }
        if self.config.dry_run {
            report.counts.dry_run += 1;
            return Ok(self.answer(&accepted, &goals));
        }
        report.counts.announced += 1;
        if warm {
            self.warm(&mut goals, time, report).await?;
        }
        self.wait(&mut goals, time, report).await?;
        if goals.iter().all(Goal::is_met) {
            self.mark_ready(&accepted, time, report).await;
        } else {
            report.counts.not_ready += 1;
        }
        Ok(self.answer(&accepted, &goals))
    }

    /// Stores that the work may start. Without this, later announcements count its consumption twice.
    async fn mark_ready(&self, accepted: &Announcement, time: Time, report: &mut CoordinatorReport) {
        let ready = time.now();
        if accepted.ready.is_some() {
            return;
        }
        report.seconds_to_ready = Some(ready.since(accepted.since));
        // If it was announced again or released meanwhile, this changes nothing.
        if let Err(error) = within(time.deadline, self.announcements.mark_ready(accepted, ready)).await {
            tracing::warn!(id = accepted.id, error = %error, "the announcement could not be marked as ready");
            report.counts.failed += 1;
        }
    }

    /// Accepts a request, and writes the announcement unless this is a dry run. Returns it with all others.
    async fn accept(
        &self,
        Announce { request, .. }: &Announce,
        surveys: &[Survey],
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<(Announcement, Vec<Announcement>), Failure> {
        let measured: Vec<Measured> = surveys.iter().map(Survey::measured).collect();
        for _ in 0..ATTEMPTS {
            let now = time.now();
            // The records are read before the announcements.
            let mut seen = Vec::new();
            for target in &request.targets {
                seen.push(within(time.deadline, self.announcements.find_target(target)).await?);
            }
            let stored = within(time.deadline, self.announcements.all()).await?;
            let accepted = accept(request.clone(), &measured, &stored, &self.config.limits, now)?;
            let others = stored.into_iter().filter(|stored| stored.id != accepted.id).collect();
            if self.config.dry_run || self.write(&accepted, surveys, &seen, time).await? {
                return Ok((accepted, others));
            }
            report.counts.races_lost += 1;
        }
        Err(Failure::Busy(surveys[0].target.clone()))
    }

    /// Writes an announcement with new versions of its targets' records. Returns whether it did.
    async fn write(
        &self,
        accepted: &Announcement,
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
        let written = within(time.deadline, self.announcements.announce(accepted, &writes, time.now())).await?;
        Ok(written == WriteOutcome::Written)
    }

    /// Settles a target. Returns what it must have.
    async fn goal(
        &self,
        survey: Survey,
        accepted: &Announcement,
        others: &[Announcement],
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<Goal, Failure> {
        let now = time.now();
        let all = others.iter().chain([accepted]);
        let mut needed = demand(all, &survey.target, now).unwrap_or(Demand::NONE);
        let (mut wanted, mut scalable) = (needed.total(), survey.scalable);
        if self.config.dry_run {
            let seen = within(time.deadline, self.announcements.find_target(&survey.target)).await?;
            let minimum = seen.and_then(|seen| seen.record.minimum);
            let planned = plan(minimum.as_ref(), scalable.as_ref(), Some(needed), false, now);
            wanted = planned.record.map_or(wanted, |record| record.planned);
        } else if scalable.is_some() {
            let settled = self.settle(&survey.target, false, time).await?;
            report.counts += &settled.counts;
            needed = settled.demand.unwrap_or(needed);
            if let Some((minimum, found)) = settled.minimum {
                (wanted, scalable) = (minimum, Some(found));
            }
        }
        let described = survey.described;
        Ok(Goal { survey, wanted, demand: needed, scalable, described, short_looks: 0, is_warming: false })
    }

    /// Raises the warm throughputs that are too low.
    async fn warm(&self, goals: &mut [Goal], time: Time, report: &mut CoordinatorReport) -> Result<(), Failure> {
        for goal in goals.iter_mut().filter(|goal| !goal.is_met()) {
            if let Mode::OnDemand { warm: Warm { is_rising: false, .. } } = goal.described.mode {
                let target = &goal.survey.target;
                within(time.deadline, self.tables.raise_warm(target, goal.wanted)).await?;
                tracing::info!(%target, to = goal.wanted.get(), "raised the warm throughput");
                report.counts.warmed += 1;
                goal.is_warming = true;
            }
        }
        Ok(())
    }

    /// Looks at the tables until they have the capacity, or there is no time left.
    async fn wait(&self, goals: &mut [Goal], time: Time, report: &mut CoordinatorReport) -> Result<(), Failure> {
        loop {
            for goal in goals.iter_mut().filter(|goal| !goal.is_met()) {
                goal.described = match self.describe(&goal.survey.target, time).await {
                    // The last description says what is provisioned.
                    Err(Failure::Deadline) => return Ok(()),
                    described => described?,
                };
                if goal.is_met() || !goal.described.is_active {
                    goal.short_looks = 0;
                    continue;
                }
                goal.short_looks += 1;
                if goal.scalable.is_some() && goal.short_looks.is_multiple_of(SHORT_LOOKS) {
                    let settled = self.settle(&goal.survey.target, true, time).await?;
                    report.counts += &settled.counts;
                }
            }
            let is_time_over = Instant::now() + self.poll >= time.deadline;
            if is_time_over || !goals.iter().any(Goal::can_wait) {
                return Ok(());
            }
            sleep(self.poll).await;
        }
    }

    fn answer(&self, accepted: &Announcement, goals: &[Goal]) -> AnnounceAnswer {
        let provisioned = goals.first().and_then(|goal| match goal.described.mode {
            Mode::Provisioned { units } => Some(units.get()),
            Mode::OnDemand { .. } => None,
        });
        let can_wait = goals.iter().any(Goal::can_wait) && !self.config.dry_run;
        AnnounceAnswer {
            id: accepted.id.clone(),
            ready: goals.iter().all(Goal::is_met),
            provisioned,
            until: seconds(accepted.until),
            retry_after_seconds: can_wait.then_some(RETRY_AFTER.as_secs()),
            dry_run: self.config.dry_run,
            targets: goals.iter().map(|goal| self.target_answer(goal)).collect(),
        }
    }

    fn target_answer(&self, goal: &Goal) -> TargetAnswer {
        let resource = goal.survey.target.resource();
        let Demand { other, announced } = goal.demand;
        match (goal.described.mode, goal.scalable) {
            (Mode::Provisioned { units }, Some(scalable)) => {
                let unlimited = ScalableTarget { maximum: Capacity::new(u64::MAX), ..scalable };
                TargetAnswer::Provisioned {
                    resource,
                    minimum: goal.wanted.get(),
                    provisioned: units.get(),
                    needed: scalable.needed(other, announced).get(),
                    maximum: scalable.maximum.get(),
                    limited_by_maximum: unlimited.needed(other, announced) > scalable.maximum,
                }
            }
            (mode, _) => {
                let units = match mode {
                    Mode::OnDemand { warm } => warm.units,
                    Mode::Provisioned { units } => units,
                };
                let missing = warm::missing(units, goal.demand);
                let billionths = self.config.warm_prices.of(missing, goal.survey.target.kind);
                #[expect(clippy::cast_precision_loss, reason = "a price is far below 2^53 billionths")]
                let price_usd = billionths as f64 / 1e9;
                let needed = goal.demand.total().get();
                TargetAnswer::OnDemand { resource, warm: units.get(), needed, missing: missing.get(), price_usd }
            }
        }
    }
}

impl Goal {
    fn is_met(&self) -> bool {
        match self.described.mode {
            Mode::Provisioned { units } => units >= self.wanted,
            Mode::OnDemand { warm } => warm.units >= self.wanted,
        }
    }

    /// Whether it is not met, and will be.
    fn can_wait(&self) -> bool {
        !self.is_met()
            && match self.described.mode {
                Mode::Provisioned { .. } => true,
                Mode::OnDemand { warm } => warm.is_rising || self.is_warming,
            }
    }
}
