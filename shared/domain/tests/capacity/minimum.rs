//! Which minimum a target must have, step by step.

use std::collections::BTreeMap;

use tidegate_domain::capacity::{
    Capacity,
    announcement::Demand,
    minimum::{CALLS_END, MinimumPlan, MinimumRecord, plan},
};

use crate::{at, scalable, units};

const fn demand(announced: u64) -> Demand {
    Demand { other: Capacity::new(4_000), announced: Capacity::new(announced) }
}

/// A record whose calls end at these moments.
fn record(owner: u64, planned: u64, calls: &[(u64, u64)]) -> MinimumRecord {
    let calls: BTreeMap<_, _> = calls.iter().map(|(minimum, end)| (units(*minimum), at(*end))).collect();
    MinimumRecord { owner: units(owner), planned: units(planned), calls }
}

fn expect(record: Option<MinimumRecord>, set: Option<u64>, owner_was: Option<u64>) -> MinimumPlan {
    MinimumPlan { record, set: set.map(units), owner_was: owner_was.map(units) }
}

/// When a call that is begun at `seconds` has ended.
fn end(seconds: u64) -> u64 {
    seconds + CALLS_END.as_secs()
}

#[test]
fn an_announcement_raises_the_minimum() {
    let raised = record(5, 18_000, &[(18_000, end(0))]);
    let first = plan(None, Some(&scalable(5)), Some(demand(14_000)), false, at(0));
    assert_eq!(first, expect(Some(raised.clone()), Some(18_000), None));
    // The call has taken effect: nothing changes.
    let again = plan(Some(&raised), Some(&scalable(18_000)), Some(demand(14_000)), false, at(10));
    assert_eq!(again, expect(Some(raised.clone()), None, None));
    // It has not: it is made again.
    let repeated = plan(Some(&raised), Some(&scalable(5)), Some(demand(14_000)), false, at(60));
    assert_eq!(repeated, expect(Some(record(5, 18_000, &[(18_000, end(60))])), Some(18_000), None));
    // The table was updating, so the call did not change its capacity.
    let short = plan(Some(&raised), Some(&scalable(18_000)), Some(demand(14_000)), true, at(60));
    assert_eq!(short, repeated);
}

#[test]
fn the_minimum_is_at_most_the_maximum() {
    let plan = plan(None, Some(&scalable(5)), Some(demand(100_000)), false, at(0));
    assert_eq!(plan.set, Some(units(40_000)));
}

#[test]
fn the_owners_minimum_is_never_lowered() {
    let high = plan(None, Some(&scalable(30_000)), Some(demand(14_000)), false, at(0));
    assert_eq!(high, expect(Some(record(30_000, 30_000, &[])), None, None));
}

#[test]
fn without_announcements_the_owners_minimum_returns() {
    let raised = record(5, 18_000, &[(18_000, end(0))]);
    let restored = record(5, 5, &[(18_000, end(100)), (5, end(100))]);
    let first = plan(Some(&raised), Some(&scalable(18_000)), None, false, at(100));
    assert_eq!(first, expect(Some(restored.clone()), Some(5), None));
    // The record stays while a late call, or a description that lags behind, may show the raised minimum.
    let later = plan(Some(&restored), Some(&scalable(5)), None, false, at(end(100) - 1));
    assert_eq!(later, expect(Some(restored.clone()), None, None));
    let late = plan(Some(&restored), Some(&scalable(18_000)), None, false, at(end(100) - 1));
    assert_eq!(late.set, Some(units(5)));
    let last = plan(Some(&restored), Some(&scalable(5)), None, false, at(end(100)));
    assert_eq!(last, expect(None, None, None));
}

/// No call was possible for a long time. The minimum is still the one that an old call has set.
#[test]
fn an_old_value_is_not_the_owners() {
    let unreachable = record(5, 9_000, &[(18_000, end(0)), (9_000, end(100))]);
    let restored = plan(Some(&unreachable), Some(&scalable(18_000)), None, false, at(end(1_000)));
    assert_eq!((restored.set, restored.owner_was), (Some(units(5)), None));
}

/// The call of the first announcement has long ended when a second one plans more. Its process ends before it calls.
#[test]
fn the_present_value_stays_explained() {
    let raised = record(5, 18_000, &[(18_000, end(0))]);
    let settled = plan(Some(&raised), Some(&scalable(18_000)), Some(demand(14_000)), false, at(end(0))).record.unwrap();
    assert_eq!(settled, record(5, 18_000, &[]));
    let more = plan(Some(&settled), Some(&scalable(18_000)), Some(demand(15_000)), false, at(500)).record.unwrap();
    assert_eq!(more, record(5, 19_000, &[(18_000, end(500)), (19_000, end(500))]));
    let restored = plan(Some(&more), Some(&scalable(18_000)), None, false, at(1_000));
    assert_eq!((restored.set, restored.owner_was), (Some(units(5)), None));
}

#[test]
fn another_value_is_the_owners() {
    let raised = record(5, 18_000, &[(18_000, end(0))]);
    // It is kept above the owner's while it is needed,
    let during = plan(Some(&raised), Some(&scalable(50)), Some(demand(14_000)), false, at(100));
    assert_eq!(during, expect(Some(record(50, 18_000, &[(18_000, end(100))])), Some(18_000), Some(5)));
    // and stays the owner's afterwards.
    let after = plan(Some(&raised), Some(&scalable(50)), None, false, at(end(0)));
    assert_eq!(after, expect(None, None, Some(5)));
    let higher = plan(Some(&raised), Some(&scalable(20_000)), Some(demand(14_000)), false, at(100));
    assert_eq!(higher, expect(Some(record(20_000, 20_000, &[(18_000, end(0))])), None, Some(5)));
}

#[test]
fn a_target_that_was_removed_is_forgotten() {
    let raised = record(5, 18_000, &[(18_000, end(0))]);
    assert_eq!(plan(Some(&raised), None, Some(demand(14_000)), false, at(100)), expect(None, None, None));
}

#[test]
fn a_target_without_announcements_needs_no_record() {
    assert_eq!(plan(None, Some(&scalable(5)), None, false, at(0)), expect(None, None, None));
}
