//! What is known of a target: its table, its scalable target, its consumption.

use tidegate_aws::{
    concurrent::within,
    table_capacity::{Described, Mode},
};
use tidegate_domain::capacity::{
    Capacity, ScalableTarget, Target, Utilization,
    announcement::{Measured, Minute},
};
use tokio::time::timeout_at;

use crate::{CapacityCoordinator, failure::Failure, time::Time};

/// A target before an announcement.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) target: Target,
    pub(crate) described: Described,
    /// `None` if the table is on demand.
    pub(crate) scalable: Option<ScalableTarget>,
    /// What it consumed in the last minutes.
    pub(crate) minutes: Vec<Minute>,
}

impl Survey {
    /// Returns the highest consumption.
    pub(crate) fn consumption(&self) -> Capacity {
        self.minutes.iter().map(|minute| minute.consumption).max().unwrap_or_default()
    }

    pub(crate) fn measured(&self) -> Measured {
        Measured { minutes: self.minutes.clone(), maximum: self.scalable.map(|scalable| scalable.maximum) }
    }
}

impl CapacityCoordinator {
    /// Refuses a target of a table that is not coordinated.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Failure> {
        let is_coordinated = self.config.tables.contains(&target.table);
        is_coordinated.then_some(()).ok_or_else(|| Failure::NotCoordinated(target.table.clone()))
    }

    /// Finds out all that an announcement depends on.
    pub(crate) async fn survey(&self, target: Target, time: Time) -> Result<Survey, Failure> {
        let described = self.describe(&target, time).await?;
        let scalable = match described.mode {
            Mode::Provisioned { .. } => Some(self.scalable(&target, time).await?),
            Mode::OnDemand { .. } => None,
        };
        let minutes = within(time.deadline, self.consumption.of(&target, time.now())).await?;
        Ok(Survey { target, described, scalable, minutes })
    }

    pub(crate) async fn describe(&self, target: &Target, time: Time) -> Result<Described, Failure> {
        let described = timeout_at(time.deadline, self.tables.describe(target)).await;
        Ok(described.map_err(|_| Failure::Deadline)??)
    }

    /// Finds a scalable target that auto scaling scales.
    async fn scalable(&self, target: &Target, time: Time) -> Result<ScalableTarget, Failure> {
        let registered = within(time.deadline, self.scaling.find(target)).await?;
        let registered = registered.ok_or_else(|| Failure::NoScalableTarget(target.clone()))?;
        let utilization = within(time.deadline, self.scaling.utilization(target)).await?;
        let utilization = utilization.ok_or_else(|| Failure::NoScalingPolicy(target.clone()))?;
        Ok(ScalableTarget { minimum: registered.minimum, maximum: registered.maximum, utilization })
    }

    /// Finds a scalable target as it is. Without a policy, its whole capacity counts.
    pub(crate) async fn registered(&self, target: &Target, time: Time) -> Result<Option<ScalableTarget>, Failure> {
        let Some(registered) = within(time.deadline, self.scaling.find(target)).await? else { return Ok(None) };
        let utilization = within(time.deadline, self.scaling.utilization(target)).await?.unwrap_or(Utilization::FULL);
        Ok(Some(ScalableTarget { minimum: registered.minimum, maximum: registered.maximum, utilization }))
    }
}
