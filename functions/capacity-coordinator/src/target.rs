//! What is known of a target: its table, its scalable target, its consumption.

use tidegate_aws::{
    concurrent::within,
    scaling::Policy,
    table_capacity::{Described, Mode},
};
use tidegate_domain::capacity::{ScalableTarget, Target, Utilization, announcement::Minute};
use tokio::time::timeout_at;

use crate::{CapacityCoordinator, failure::Failure, time::Time};

/// A target before an announcement.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) target: Target,
    pub(crate) described: Described,
    /// `None` if the table is on demand.
    pub(crate) scalable: Option<ScalableTarget>,
    /// Whether auto scaling may lower a capacity that was raised.
    pub(crate) may_scale_in: bool,
}

impl CapacityCoordinator {
    /// Refuses a target of a table that is not coordinated.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Failure> {
        let is_coordinated = self.config.tables.contains(&target.table);
        is_coordinated.then_some(()).ok_or_else(|| Failure::NotCoordinated(target.table.clone()))
    }

    /// Finds out what an announcement depends on, except for the consumption.
    pub(crate) async fn survey(&self, target: Target, time: Time) -> Result<Survey, Failure> {
        let described = self.describe(&target, time).await?;
        let (scalable, may_scale_in) = match described.mode {
            Mode::Provisioned { .. } => {
                let (scalable, may_scale_in) = self.scalable(&target, time).await?;
                (Some(scalable), may_scale_in)
            }
            Mode::OnDemand { .. } => (None, true),
        };
        Ok(Survey { target, described, scalable, may_scale_in })
    }

    /// Measures what a target has consumed in the last minutes.
    pub(crate) async fn measure(&self, target: &Target, time: Time) -> Result<Vec<Minute>, Failure> {
        Ok(within(time.deadline, self.consumption.of(target, time.now())).await?)
    }

    pub(crate) async fn describe(&self, target: &Target, time: Time) -> Result<Described, Failure> {
        let described = timeout_at(time.deadline, self.tables.describe(target)).await;
        Ok(described.map_err(|_| Failure::Deadline)??)
    }

    /// Finds a scalable target that auto scaling scales, and whether it may lower the capacity.
    pub(crate) async fn scalable(&self, target: &Target, time: Time) -> Result<(ScalableTarget, bool), Failure> {
        let registered = within(time.deadline, self.scaling.find(target)).await?;
        let registered = registered.ok_or_else(|| Failure::NoScalableTarget(target.clone()))?;
        let policy = within(time.deadline, self.scaling.policy(target)).await?;
        let Policy { utilization, may_scale_in } = policy.ok_or_else(|| Failure::NoScalingPolicy(target.clone()))?;
        let scalable = ScalableTarget { minimum: registered.minimum, maximum: registered.maximum, utilization };
        Ok((scalable, may_scale_in && registered.may_scale_in))
    }

    /// Finds a scalable target as it is. Its utilization is that of the policy if `is_needed`. Without a policy, its whole
    /// capacity counts.
    pub(crate) async fn registered(
        &self,
        target: &Target,
        is_needed: bool,
        time: Time,
    ) -> Result<Option<ScalableTarget>, Failure> {
        let Some(registered) = within(time.deadline, self.scaling.find(target)).await? else { return Ok(None) };
        let policy = if is_needed { within(time.deadline, self.scaling.policy(target)).await? } else { None };
        let utilization = policy.map_or(Utilization::FULL, |policy| policy.utilization);
        Ok(Some(ScalableTarget { minimum: registered.minimum, maximum: registered.maximum, utilization }))
    }
}
