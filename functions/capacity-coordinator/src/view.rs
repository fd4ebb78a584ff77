//! The announcements in force, and the state of a target.

use tidegate_aws::{concurrent::within, table_capacity::Mode};
use tidegate_domain::capacity::{
    Target,
    announcement::{Announcement, Demand, demand},
};

use crate::{
    CapacityCoordinator,
    answer::{ListAnswer, ListedAnnouncement, StatusAnswer, StatusMode, seconds},
    failure::Failure,
    time::Time,
};

impl CapacityCoordinator {
    /// Lists the announcements in force.
    pub(crate) async fn list(&self, time: Time) -> Result<ListAnswer, Failure> {
        let (now, stored) = (time.now(), within(time.deadline, self.announcements.all()).await?);
        let in_force = stored.into_iter().filter(|announcement| announcement.is_in_force(now));
        Ok(ListAnswer { announcements: in_force.map(listed).collect() })
    }

    /// Shows a target as it is.
    pub(crate) async fn status(&self, target: Target, time: Time) -> Result<StatusAnswer, Failure> {
        self.check(&target)?;
        let now = time.now();
        let survey = self.survey(target, time).await?;
        let target = &survey.target;
        let seen = within(time.deadline, self.announcements.find_target(target)).await?;
        let stored = within(time.deadline, self.announcements.all()).await?;
        let minutes = self.measure(target, time).await?;
        let consumption = minutes.iter().map(|minute| minute.consumption).max().unwrap_or_default();
        let demand = demand(&stored, target, now).unwrap_or(Demand { other: consumption, ..Demand::NONE });
        let record = seen.and_then(|seen| seen.record.minimum);
        let (mode, needed) = match (survey.described.mode, survey.scalable) {
            (Mode::Provisioned { units }, Some(scalable)) => (
                StatusMode::Provisioned {
                    minimum: scalable.minimum.get(),
                    owner_minimum: record.map_or(scalable.minimum, |record| record.owner).get(),
                    maximum: scalable.maximum.get(),
                    target_utilization: scalable.utilization.percent(),
                    provisioned: units.get(),
                },
                scalable.needed(demand.other, demand.announced),
            ),
            (Mode::Provisioned { units }, None) => (StatusMode::OnDemand { warm: units.get() }, demand.total()),
            (Mode::OnDemand { warm }, _) => (StatusMode::OnDemand { warm: warm.units.get() }, demand.total()),
        };
        let of_target = |announcement: &Announcement| {
            let counts = announcement.is_in_force(now) && announcement.need(target).is_some();
            counts.then(|| announcement.id.clone())
        };
        Ok(StatusAnswer {
            resource: target.resource(),
            dimension: target.kind.to_string(),
            mode,
            consumption: consumption.get(),
            announced: demand.announced.get(),
            needed: needed.get(),
            announcements: stored.iter().filter_map(of_target).collect(),
        })
    }
}

fn listed(announcement: Announcement) -> ListedAnnouncement {
    let Announcement { id, caller, needs, units, until, ready, .. } = announcement;
    ListedAnnouncement {
        id,
        caller,
        dimension: needs.first().map(|need| need.target.kind.to_string()).unwrap_or_default(),
        resources: needs.iter().map(|need| need.target.resource()).collect(),
        units: units.get(),
        until: seconds(until),
        ready: ready.is_some(),
    }
}
