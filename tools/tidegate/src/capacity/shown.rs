//! What `tidegate capacity` shows to people.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::capacity::{
    AnnouncedTarget, Announcement, ListedAnnouncement, StatusCapacity, TargetCapacity, TargetStatus,
};
use tidegate_domain::time::EpochMillis;

use crate::output::table;

/// The targets of an announcement, and when it ends.
pub(super) fn announcement(announcement: &Announcement) -> String {
    let rows = announcement.targets().iter().map(|AnnouncedTarget { resource, needed, capacity, .. }| {
        let (mode, has, minimum, maximum) = match capacity {
            TargetCapacity::Provisioned { minimum, provisioned, maximum, .. } => {
                ("provisioned", provisioned.to_string(), minimum.to_string(), maximum.to_string())
            }
            TargetCapacity::OnDemand { warm, .. } => ("on-demand", warm.to_string(), String::new(), String::new()),
            _ => ("", String::new(), String::new(), String::new()),
        };
        vec![resource.clone(), mode.to_owned(), has, needed.to_string(), minimum, maximum]
    });
    let columns = ["resource", "mode", "provisioned or warm", "needed", "minimum", "maximum"];
    let table = table(columns, rows.collect(), 2..);
    let (id, until) = (announcement.id(), moment(announcement.until()));
    if announcement.is_dry_run() {
        return format!("{table}\nthe function makes a dry run: announcement {id:?} was not made");
    }
    format!("{table}\nannouncement {id:?} is in force until {until}: `tidegate capacity release {id}` ends it")
}

pub(super) fn list(announcements: &[ListedAnnouncement]) -> String {
    if announcements.is_empty() {
        return "no announcement is in force".to_owned();
    }
    let rows = announcements.iter().map(|of| {
        let ready = if of.ready { "yes" } else { "no" };
        let resources = of.resources.join("\n");
        let names = [of.id.clone(), of.caller.clone(), resources, of.kind.to_string()];
        names.into_iter().chain([of.units.to_string(), moment(of.until), ready.to_owned()]).collect()
    });
    let columns = ["id", "caller", "resources", "kind", "units", "until", "ready"];
    table(columns, rows.collect(), 4..5).to_string()
}

pub(super) fn status(status: &TargetStatus) -> String {
    let TargetStatus { resource, kind, consumption, announced, needed, announcements, capacity, .. } = status;
    let has = match capacity {
        StatusCapacity::Provisioned { minimum, owner_minimum, maximum, target_utilization, provisioned } => {
            vec![
                ("provisioned", provisioned.to_string()),
                ("minimum", minimum.to_string()),
                ("minimum of the owner", owner_minimum.to_string()),
                ("maximum", maximum.to_string()),
                ("target utilization", format!("{target_utilization} %")),
            ]
        }
        StatusCapacity::OnDemand { warm } => vec![("warm throughput", warm.to_string())],
        _ => Vec::new(),
    };
    let needs = [
        ("consumption", consumption.to_string()),
        ("announced", announced.to_string()),
        ("needed", needed.to_string()),
        ("announcements", announcements.join("\n")),
    ];
    let rows = has.into_iter().chain(needs).map(|(name, value)| vec![name.to_owned(), value]);
    table([format!("{resource}, {kind}"), "units a second".to_owned()], rows.collect(), 1..).to_string()
}

/// A moment like `2026-11-22T15:00:00Z`.
fn moment(time: SystemTime) -> String {
    let millis = i64::try_from(epoch_seconds(time)).ok().and_then(|seconds| seconds.checked_mul(1000));
    let moment = millis.and_then(|millis| EpochMillis::new(millis).ok());
    moment.map_or_else(|| "the end of the calendar".to_owned(), EpochMillis::rfc3339)
}

pub(super) fn epoch_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
