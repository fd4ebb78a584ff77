//! What an announcement waits for: the capacity of its targets.

use std::time::Duration;

use tidegate_aws::{
    announcements::WriteOutcome,
    concurrent::within,
    table_capacity::{Described, Mode, Warm},
};
use tidegate_domain::capacity::{
    Capacity, ScalableTarget, Target,
    announcement::{Announcement, Demand, Refusal, demand},
    warm,
};
use tokio::time::{Instant, sleep};

use crate::{
    CapacityCoordinator,
    answer::{AnnounceAnswer, TargetAnswer, seconds},
    failure::Failure,
    report::CoordinatorReport,
    settle::Settled,
    target::Survey,
    time::Time,
};

/// When to announce again.
const RETRY_AFTER: Duration = Duration::from_secs(20);

/// How often a table may be active with too little capacity before its minimum is set once more.
const SHORT_LOOKS: u32 = 5;

/// A target of an accepted announcement, and what it must have.
pub(crate) struct Goal {
    pub(crate) target: Target,
    /// The capacity to wait for.
    pub(crate) wanted: Capacity,
    pub(crate) demand: Demand,
    /// `None` if the table is on demand.
    pub(crate) scalable: Option<ScalableTarget>,
    described: Described,
    /// How often in a row the table was active and had too little.
    short_looks: u32,
    /// Whether the warm throughput may be raised.
    pub(crate) may_warm: bool,
    /// Whether this invocation has raised the warm throughput. A description may not show it yet.
    is_warming: bool,
}

impl Goal {
    pub(crate) fn new(survey: Survey, demand: Demand) -> Self {
        let Survey { target, described, scalable, .. } = survey;
        let wanted = demand.total();
        Self { target, wanted, demand, scalable, described, short_looks: 0, may_warm: false, is_warming: false }
    }

    /// Waits for what a settlement has found to be needed.
    pub(crate) fn adopt(&mut self, settled: &Settled) {
        self.demand = settled.demand.unwrap_or(self.demand);
        if let Some((minimum, found)) = settled.minimum {
            (self.wanted, self.scalable) = (minimum, Some(found));
        }
    }

    /// A table that is not active may be about to lose capacity.
    pub(crate) fn is_met(&self) -> bool {
        match self.described.mode {
            Mode::Provisioned { units } => self.described.is_active && units >= self.wanted,
            Mode::OnDemand { warm } => warm.units >= self.wanted,
        }
    }

    /// Returns whether the capacity is missing, and will be there.
    fn can_wait(&self) -> bool {
        !self.is_met()
            && match self.described.mode {
                Mode::Provisioned { .. } => true,
                Mode::OnDemand { warm } => warm.is_rising || self.may_warm,
            }
    }
}

impl CapacityCoordinator {
    /// Raises the warm throughput to what is needed now, if it is too low and may be raised, and no update is pending. It can
    /// never be lowered, so the announcement must still be in force.
    pub(crate) async fn warm(
        &self,
        goal: &mut Goal,
        announcement: &Announcement,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<(), Failure> {
        let Described { is_active, mode } = goal.described;
        let can_rise = is_active && matches!(mode, Mode::OnDemand { warm: Warm { is_rising: false, .. } });
        if !(goal.may_warm && can_rise) || goal.is_met() || goal.is_warming {
            return Ok(());
        }
        let (now, stored) = (time.now(), within(time.deadline, self.announcements.all()).await?);
        if !stored.iter().any(|stored| stored.id == announcement.id && stored.is_in_force(now)) {
            return Err(Refusal::Released(announcement.id.clone()).into());
        }
        goal.demand = demand(&stored, &goal.target, now).unwrap_or(goal.demand);
        goal.wanted = goal.demand.total();
        if goal.is_met() {
            return Ok(());
        }
        let raised = within(time.deadline, self.tables.raise_warm(&goal.target, goal.wanted)).await?;
        if raised == WriteOutcome::Written {
            tracing::info!(target = %goal.target, to = goal.wanted.get(), "raised the warm throughput");
            report.counts.warmed += 1;
            goal.is_warming = true;
        }
        Ok(())
    }

    /// Looks at the tables until they have the capacity, the announcement ends, or there is no time left. A call that fails is
    /// made again.
    pub(crate) async fn wait(
        &self,
        goals: &mut [Goal],
        announcement: &Announcement,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<(), Failure> {
        loop {
            for goal in &mut *goals {
                match self.look(goal, announcement, time, report).await {
                    Ok(()) => {}
                    // The last description says what is provisioned.
                    Err(Failure::Deadline) => return Ok(()),
                    Err(Failure::Call(error)) => {
                        tracing::warn!(target = %goal.target, %error, "a call failed while the capacity was waited for");
                        report.counts.failed += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            let is_time_over = Instant::now() + self.poll >= time.within(announcement.until, Duration::ZERO);
            if is_time_over || !goals.iter().any(Goal::can_wait) {
                return Ok(());
            }
            sleep(self.poll).await;
        }
    }

    /// Describes a target once more. If its capacity stays too low, sets its minimum once more.
    async fn look(
        &self,
        goal: &mut Goal,
        announcement: &Announcement,
        time: Time,
        report: &mut CoordinatorReport,
    ) -> Result<(), Failure> {
        goal.described = self.describe(&goal.target, time).await?;
        self.warm(goal, announcement, time, report).await?;
        if goal.is_met() || !goal.described.is_active {
            goal.short_looks = 0;
            return Ok(());
        }
        goal.short_looks += 1;
        // Less and less often: what others wait for, they settle as well.
        let is_due = goal.short_looks.is_multiple_of(SHORT_LOOKS) && (goal.short_looks / SHORT_LOOKS).is_power_of_two();
        if goal.scalable.is_some() && is_due {
            let settled = self.settle(&goal.target, None, true, time).await?;
            report.counts += &settled.counts;
            goal.adopt(&settled);
        }
        Ok(())
    }

    pub(crate) fn answer(&self, announcement: &Announcement, goals: &[Goal]) -> AnnounceAnswer {
        let provisioned = goals.first().and_then(|goal| match goal.described.mode {
            Mode::Provisioned { units } => Some(units.get()),
            Mode::OnDemand { .. } => None,
        });
        let can_wait = goals.iter().any(Goal::can_wait) && !self.config.dry_run;
        AnnounceAnswer {
            id: announcement.id.clone(),
            ready: goals.iter().all(Goal::is_met),
            provisioned,
            until: seconds(announcement.until),
            retry_after_seconds: can_wait.then_some(RETRY_AFTER.as_secs()),
            dry_run: self.config.dry_run,
            targets: goals.iter().map(|goal| self.target_answer(goal)).collect(),
        }
    }

    fn target_answer(&self, goal: &Goal) -> TargetAnswer {
        let resource = goal.target.resource();
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
            (Mode::OnDemand { warm: Warm { units, .. } } | Mode::Provisioned { units }, _) => {
                let missing = warm::missing(units, goal.demand);
                let billionths = self.config.warm_prices.of(missing, goal.target.kind);
                #[expect(clippy::cast_precision_loss, reason = "a price is far below 2^53 billionths")]
                let price_usd = billionths as f64 / 1e9;
                let needed = goal.demand.total().get();
                TargetAnswer::OnDemand { resource, warm: units.get(), needed, missing: missing.get(), price_usd }
            }
        }
    }
}
