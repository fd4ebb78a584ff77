//! Announcements, and the minimum of a scalable target: examples, and a model of processes that share no memory.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod announcements;
mod minimum;
mod model;

use std::{collections::BTreeMap, time::Duration};

use tidegate_domain::{
    capacity::{
        Capacity, ScalableTarget, Target, Utilization,
        announcement::{Announcement, Need, Request},
    },
    throttle::CapacityKind,
    time::EpochMillis,
};

fn at(seconds: u64) -> EpochMillis {
    EpochMillis::new(1_767_225_600_000).unwrap().after(Duration::from_secs(seconds))
}

fn units(units: u64) -> Capacity {
    Capacity::new(units)
}

fn table() -> Target {
    Target { table: "orders".to_owned(), index: None, kind: CapacityKind::Write }
}

fn index() -> Target {
    Target { index: Some("by-date".to_owned()), ..table() }
}

/// A scalable target with a maximum of 40,000, whose policy wants the whole capacity to be used.
fn scalable(minimum: u64) -> ScalableTarget {
    ScalableTarget { minimum: units(minimum), maximum: units(40_000), utilization: Utilization::FULL }
}

fn request(id: &str, announced: u64, seconds: u64) -> Request {
    Request {
        id: id.to_owned(),
        caller: "etl".to_owned(),
        targets: vec![table()],
        units: units(announced),
        duration: Duration::from_secs(seconds),
        run: None,
    }
}

/// An announcement of `announced` units beside 4,000 others.
fn announcement(id: &str, announced: u64, [since, until]: [u64; 2], ready: Option<u64>) -> Announcement {
    Announcement {
        id: id.to_owned(),
        caller: "etl".to_owned(),
        needs: vec![Need { target: table(), other: units(4_000) }],
        units: units(announced),
        since: at(since),
        until: at(until),
        ready: ready.map(at),
        released: None,
        released_runs: BTreeMap::new(),
    }
}
