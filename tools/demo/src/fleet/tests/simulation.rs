//! What a summary is made from, and the loop as a whole.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tidegate_domain::time::EpochMillis;

use super::{is_near, scenario, wanting};
use crate::fleet::{
    aggregator::Aggregation,
    comparison::Trial,
    figures::Figures,
    python::Rule,
    scenario::{self, COUNT, Fleet, NetworkConditions, Scenario},
    simulation::{FleetTrace, Second, run},
};

pub(super) fn conditions() -> impl Strategy<Value = NetworkConditions> {
    let delay = || {
        (0..500_u64, 0..5_000_u64)
            .prop_map(|(least, more)| Duration::from_millis(least)..Duration::from_millis(least + more))
    };
    (delay(), delay(), delay(), 0.0..0.5_f64, 0..60_u64).prop_map(
        |(report_delay, summary_delay, read_delay, loss, skew)| NetworkConditions {
            name: "any",
            report_delay,
            summary_delay,
            read_delay,
            loss,
            skew: Duration::from_secs(skew),
        },
    )
}

pub(super) fn fleets() -> impl Strategy<Value = Fleet> {
    prop_oneof![Just(Fleet::Python), Just(Fleet::Leases), Just(Fleet::Mixed)]
}

/// A scenario of AWS's rule, with few workers.
fn small(workers: usize, which: usize, conditions: &NetworkConditions) -> Scenario {
    scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), conditions, Fleet::Python)[which].clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_summary_sums_the_fresh_reports(workers in 1..30_usize, conditions in conditions(), fleet in fleets(), which in 0..COUNT, seed: u64) {
        let scenario = scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &conditions, fleet)[which].clone();
        let trace = run(&scenario, seed);
        prop_assert!(trace.aggregations.len() > 30, "{}", trace.aggregations.len());
        for aggregation in &trace.aggregations {
            let tally = &aggregation.tally;
            prop_assert_eq!(tally.active + tally.stale + tally.rejected(), aggregation.files.len());
        }
        prop_assert_eq!(Trial { scenario, fleet, trace }.violations(), Vec::<String>::new());
    }

    /// With exact clocks and no lost calls, every worker that has reported once counts, once.
    #[test]
    fn under_nominal_conditions_every_worker_counts_once(workers in 1..30_usize, fleet in fleets(), which in 0..4_usize, seed: u64) {
        let nominal = NetworkConditions::nominal();
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &nominal, fleet)[which];
        let trace = run(scenario, seed);
        for aggregation in &trace.aggregations {
            prop_assert_eq!(aggregation.tally.active, aggregation.files.len());
        }
        prop_assert_eq!(trace.aggregations.last().unwrap().tally.active, workers);
    }
}

/// Each Python worker reports every 5 s ± 10 %, and reports 0 at first.
#[test]
fn a_worker_reports_once_an_interval() {
    let no_delay = Duration::ZERO..Duration::ZERO;
    let conditions = NetworkConditions {
        report_delay: no_delay.clone(),
        summary_delay: no_delay.clone(),
        read_delay: no_delay,
        ..NetworkConditions::nominal()
    };
    let mut reported: BTreeMap<usize, BTreeMap<EpochMillis, f64>> = BTreeMap::new();
    let trace = run(&small(4, 0, &conditions), 1);
    for stored in trace.aggregations.iter().flat_map(|aggregation| &aggregation.files) {
        reported.entry(stored.file.worker).or_default().insert(stored.file.at, stored.file.rate);
    }
    assert_eq!(reported.len(), 4);
    for (worker, reports) in reported {
        let (at, rates): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
        for waits in at.windows(2) {
            // The aggregator may miss reports, but none comes too soon.
            assert!(waits[1].since(waits[0]) >= Duration::from_millis(4_500), "{worker}: {waits:?}");
        }
        assert!(rates[0] == 0.0 || at[0].get() % 60_000 > 5_500, "{worker}: {rates:?}");
        assert!(rates[1..].iter().all(|rate| *rate > 0.0), "{worker}: {rates:?}");
    }
}

/// A worker that dies leaves its report, which counts until it is stale.
#[test]
fn dead_workers_count_until_they_are_stale() {
    let trace = run(&small(8, 4, &NetworkConditions::nominal()), 1);
    let start = trace.aggregations[0].at.get() / 60_000 * 60_000;
    let active = |from: i64, to: i64| {
        let within =
            move |aggregation: &&Aggregation| (from * 1000..to * 1000).contains(&(aggregation.at.get() - start));
        trace.aggregations.iter().filter(within).map(|aggregation| aggregation.tally.active).max()
    };
    assert_eq!(active(100, 129), Some(8));
    assert_eq!(active(136, 300), Some(6));
}

pub(super) fn named(name: &str, fleet: Fleet, conditions: &NetworkConditions) -> Scenario {
    let all = scenario::all(40, Rule::new(20_000.0, 1_500.0).unwrap(), conditions, fleet);
    all.into_iter().find(|scenario| scenario.name == name).unwrap()
}

fn mean(trace: &FleetTrace, span: usize, of: fn(&Second) -> f64) -> f64 {
    let seconds = &trace.seconds[trace.seconds.len() - span..];
    let (count, sum) = seconds.iter().fold((0.0, 0.0), |(count, sum), second| (count + 1.0, sum + of(second)));
    sum / count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_seed_repeats_a_trace(workers in 1..20_usize, fleet in fleets(), which in 0..COUNT, seed: u64) {
        let degraded = NetworkConditions::degraded();
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &degraded, fleet)[which];
        let trace = run(scenario, seed);
        prop_assert_eq!(&trace, &run(scenario, seed));
        prop_assert!(trace != run(scenario, seed.wrapping_add(1)));
        prop_assert_eq!(trace.seconds.len(), scenario.length as usize);
    }

    #[test]
    fn limits_stay_within_their_bounds(workers in 1..20_usize, cap in 1.0..20_000.0_f64, maximum in 1.0..2_000.0_f64, which in 0..COUNT, seed: u64) {
        let rule = Rule::new(cap, maximum).unwrap();
        let scenario = &scenario::all(workers, rule, &NetworkConditions::degraded(), Fleet::Python)[which];
        for (second, at) in run(scenario, seed).seconds.iter().zip(0..) {
            for (member, (limit, consumed)) in scenario.members.iter().zip(second.limits.iter().zip(&second.consumed)) {
                if member.lives_in(at) {
                    prop_assert!((Rule::FLOOR..=maximum * (1.0 + 1e-12)).contains(limit), "{limit}");
                    prop_assert!(*consumed <= member.wants_in(at) + 1e-6, "{consumed}");
                } else {
                    prop_assert!(*limit == 0.0 && *consumed == 0.0);
                }
            }
        }
    }

    /// A demand below the cap is met in the end, while limits wind up to the maximum.
    #[test]
    fn below_the_cap_all_demand_is_met(parts in proptest::collection::vec(0.01..1.0_f64, 1..20), load in 0.05..0.9_f64, seed: u64) {
        let whole: f64 = parts.iter().sum();
        let wants: Vec<_> = parts.iter().map(|part| 10_000.0 * load * part / whole).collect();
        let rule = Rule::new(10_000.0, 10_000.0).unwrap();
        let trace = run(&scenario(wants.iter().copied().map(wanting).collect(), rule, 600), seed);
        let last = trace.seconds.last().unwrap();
        for (want, consumed) in wants.iter().zip(&last.consumed) {
            prop_assert!(is_near(*want, *consumed), "{consumed} of {want}");
        }
        prop_assert!(last.limits.iter().all(|limit| *limit > 0.99 * rule.maximum()), "{:?}", last.limits);
    }

    /// With a demand above the cap, equal workers settle at the cap if every report counts.
    #[test]
    fn under_nominal_conditions_a_fleet_settles_at_cap(workers in 2..60_usize, share in 10.0..1_000.0_f64, room in 1.1..10.0_f64, seed: u64) {
        let cap = share * f64::from(u32::try_from(workers).unwrap());
        let rule = Rule::new(cap, share * room).unwrap();
        let trace = run(&scenario(vec![wanting(rule.maximum() * 2.0); workers], rule, 600), seed);
        let total = mean(&trace, 60, Second::total);
        prop_assert!((total / cap - 1.0).abs() < 0.01, "{total} of {cap}");
    }

    /// Without an aggregator there is no summary, and limits stay where they began.
    #[test]
    fn without_any_summary_limits_stay(workers in 1..20_usize, seed: u64) {
        let rule = Rule::new(1_000.0, 400.0).unwrap();
        // The last moment of a scenario belongs to it.
        let alone = Scenario { outage: 0..301, ..scenario(vec![wanting(800.0); workers], rule, 300) };
        let trace = run(&alone, seed);
        prop_assert!(trace.aggregations.is_empty());
        prop_assert!(trace.seconds.iter().flat_map(|second| &second.limits).all(|limit| is_near(*limit, rule.initial())));
    }
}

/// A fleet that starts has no summary until its second reports are summed up.
#[test]
fn a_cold_start_exceeds_cap_for_two_intervals() {
    let cold = named("cold start", Fleet::Python, &NetworkConditions::nominal());
    let everything = 40.0 * cold.rule.initial();
    let trace = run(&cold, 1);
    for second in &trace.seconds[2..9] {
        assert!(is_near(second.total(), everything), "{}", second.total());
    }
    assert!(is_near(everything, 3.0 * cold.rule.cap()));
}

/// While a summary is old, a fleet consumes all that its limits have wound up to.
#[test]
fn a_surge_in_an_outage_is_not_held() {
    let check = |name: &str, expect: bool| {
        let surge = named(name, Fleet::Python, &NetworkConditions::nominal());
        let trace = run(&surge, 1);
        // The last half minute before the aggregator is back, or as long after the surge without an outage.
        let from = if surge.outage.is_empty() { surge.event + 30 } else { surge.outage.end - 30 } as usize;
        let held = trace.seconds[from..from + 29].iter().all(|second| second.total() < surge.rule.cap() * 1.25);
        assert_eq!(held, expect, "{name}");
        assert!(Figures::of(&surge, &trace).settled_after.is_some());
    };
    check("surge", true);
    check("surge in outage", false);
}

/// Early workers have 1,000 each when the others join with 1,500, and three minutes later they still have less.
#[test]
fn a_late_worker_keeps_more() {
    let joining = named("half joins", Fleet::Python, &NetworkConditions::nominal());
    let trace = run(&joining, 1);
    let by = |late: bool| -> f64 {
        let of = joining.members.iter().zip(&trace.seconds.last().unwrap().consumed);
        of.filter(|(member, _)| (member.joins > 0) == late).map(|(_, consumed)| consumed).sum()
    };
    let (early, late) = (by(false), by(true));
    assert!(((early + late) / joining.rule.cap() - 1.0).abs() < 0.01, "{early} and {late}");
    assert!(late / early > 1.3, "{early} and {late}");
    assert!(Figures::of(&joining, &trace).fairness < 0.98);
}
