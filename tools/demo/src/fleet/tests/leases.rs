//! Fleets with leases, alone and beside Python workers.

use proptest::prelude::*;

use super::{
    simulation::{conditions, named},
    wanting,
};
use crate::fleet::{
    figures::Figures,
    python::Rule,
    scenario::{self, COUNT, Fleet, Member, NetworkConditions, Scenario},
    simulation::{FleetTrace, run},
    worker::Kind,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn leases_never_exceed_the_cap(workers in 1..30_usize, conditions in conditions(), fleet in prop_oneof![Just(Fleet::Leases), Just(Fleet::Mixed)], which in 0..COUNT, seed: u64) {
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &conditions, fleet)[which];
        prop_assert_eq!(run(scenario, seed).excesses, Vec::new());
    }

    /// Each worker may use what it wants.
    #[test]
    fn wants_below_the_cap_are_met(parts in proptest::collection::vec(0.01..1.0_f64, 1..20), load in 0.05..0.97_f64, seed: u64) {
        let whole: f64 = parts.iter().sum();
        let wants: Vec<_> = parts.iter().map(|part| 10_000.0 * load * part / whole).collect();
        let members = wants.iter().map(|wants| leasing(*wants)).collect();
        let trace = run(&super::scenario(members, Rule::new(10_000.0, 10_000.0).unwrap(), 60), seed);
        for (wants, limit) in wants.iter().zip(&trace.seconds.last().unwrap().limits) {
            prop_assert!((limit - wants).abs() < 1e-3, "{limit} of {wants}");
        }
    }
}

fn leasing(rate: f64) -> Member {
    Member { kind: Kind::Leasing, ..wanting(rate) }
}

/// What the fleet consumes in each second, as a part of the cap.
fn parts_of_cap(scenario: &Scenario, trace: &FleetTrace) -> Vec<f64> {
    trace.seconds.iter().map(|second| second.total() / scenario.rule.cap()).collect()
}

#[test]
fn a_fleet_with_leases_never_overshoots() {
    for conditions in [NetworkConditions::nominal(), NetworkConditions::degraded()] {
        for name in ["cold start", "surge", "half joins", "surge in outage", "a quarter dies", "surge at takeover"] {
            let scenario = named(name, Fleet::Leases, &conditions);
            let trace = run(&scenario, 1);
            let parts = parts_of_cap(&scenario, &trace);
            assert!(parts.iter().all(|part| *part <= 1.0), "{name}: {parts:?}");
            let figures = Figures::of(&scenario, &trace);
            assert!(figures.fairness > 0.9999 && figures.utilisation > 0.979, "{name}: {figures:?}");
        }
    }
}

/// Without a summary, the leases end, and the workers fall to their safe shares: here, to what they have.
#[test]
fn an_outage_leaves_workers_their_shares() {
    let nominal = NetworkConditions::nominal();
    let outage = Scenario { outage: 60..181, ..named("cold start", Fleet::Leases, &nominal) };
    let parts = parts_of_cap(&outage, &run(&outage, 1));
    assert!(parts[30..].iter().all(|part| (part - 0.98).abs() < 1e-6), "{parts:?}");
    // What was wanted little before the outage stays little.
    let surge = named("surge in outage", Fleet::Leases, &nominal);
    let parts = parts_of_cap(&surge, &run(&surge, 1));
    assert!(parts[120..240].iter().all(|part| (part - 0.3).abs() < 1e-6), "{parts:?}");
    assert!(parts[242..].iter().all(|part| (part - 0.98).abs() < 1e-6), "{parts:?}");
}

/// A new process does not know the grants of the last summary, and waits until they have ended.
#[test]
fn a_takeover_delays_growth_by_a_lease() {
    let nominal = NetworkConditions::nominal();
    let growth = |name: &str| {
        let scenario = named(name, Fleet::Leases, &nominal);
        let trace = run(&scenario, 1);
        let parts = parts_of_cap(&scenario, &trace);
        parts.iter().skip(120).position(|part| *part > 0.5).unwrap()
    };
    let (surge, takeover) = (growth("surge"), growth("surge at takeover"));
    assert!(surge <= 6 && (15..=28).contains(&takeover), "{surge} and {takeover}");
}

/// A worker that dies keeps what it holds until its file is a minute old.
#[test]
fn a_dead_worker_keeps_its_share_for_a_minute() {
    let scenario = named("a quarter dies", Fleet::Leases, &NetworkConditions::nominal());
    let parts = parts_of_cap(&scenario, &run(&scenario, 1));
    assert!(parts[121..175].iter().all(|part| (part - 0.75 * 0.98).abs() < 1e-6), "{parts:?}");
    assert!(parts[190..].iter().all(|part| (part - 0.98).abs() < 1e-6), "{parts:?}");
}

/// Python workers use what the summary leaves free, so it leaves the leasing workers their part.
#[test]
fn leasing_workers_keep_their_part_beside_python() {
    let scenario = named("surge", Fleet::Mixed, &NetworkConditions::nominal());
    let trace = run(&scenario, 1);
    let by = |kind: Kind| -> f64 {
        let of = scenario.members.iter().zip(&trace.seconds.last().unwrap().consumed);
        of.filter(|(member, _)| member.kind == kind).map(|(_, consumed)| consumed / scenario.rule.cap()).sum()
    };
    let (leasing, python) = (by(Kind::Leasing), by(Kind::Python));
    assert!((0.45..0.5).contains(&leasing) && (0.5..0.53).contains(&python), "{leasing} and {python}");
}
