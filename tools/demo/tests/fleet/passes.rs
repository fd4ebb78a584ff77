//! What a summary is made from.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tidegate_demo::fleet::{
    course::{Pass, WorkerId},
    rule::Rule,
    scenario::{self, NetworkConditions},
    simulation::run,
};
use tidegate_domain::time::EpochMillis;

/// Up to this age a report counts, and up to this far ahead, in milliseconds.
const CUTOFF: i64 = 15_000;

/// How many of the reports count, and their sum in millionths, counted one by one and apart from the code under test.
fn counted(pass: &Pass) -> (usize, i128) {
    let fresh = pass.reports.iter().filter(|report| (report.at.get() - pass.at.get()).abs() <= CUTOFF);
    fresh.fold((0, 0), |(active, sum), report| {
        #[expect(clippy::cast_possible_truncation, reason = "rates are small")]
        let millionths = (report.rate * 1e6).round() as i128;
        (active + 1, sum + millionths)
    })
}

fn weather() -> impl Strategy<Value = NetworkConditions> {
    let bounds = (0..500_u64, 0..5_000_u64);
    (bounds, 0.0..0.5_f64, 0..60_u64, prop_oneof![Just(0), 5..60_u32], 0..5_usize).prop_map(
        |((least, more), loss, skew, deaths_every, leftovers)| NetworkConditions {
            name: "any",
            delay: Duration::from_millis(least)..Duration::from_millis(least + more),
            loss,
            skew: Duration::from_secs(skew),
            deaths_every,
            leftovers,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_summary_is_the_sum_of_the_fresh_reports(workers in 1..30_usize, weather in weather(), which in 0..6_usize, seed: u64) {
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &weather)[which];
        let course = run(scenario, seed);
        prop_assert!(course.passes.len() > 30, "{}", course.passes.len());
        for pass in &course.passes {
            let (active, sum) = counted(pass);
            prop_assert_eq!(pass.tally.active, active);
            prop_assert_eq!(i128::try_from(pass.tally.read().millionths()).unwrap(), sum);
            prop_assert_eq!(active + pass.tally.stale + pass.tally.rejected(), pass.reports.len());
        }
    }

    /// With right clocks and an S3 that loses nothing, every worker that has reported once counts, once.
    #[test]
    fn in_fair_weather_every_worker_counts_once(workers in 1..30_usize, which in 0..6_usize, seed: u64) {
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &NetworkConditions::fair())[which];
        let course = run(scenario, seed);
        for pass in &course.passes {
            prop_assert_eq!(pass.tally.active, pass.reports.len());
        }
        prop_assert_eq!(course.passes.last().unwrap().tally.active, workers);
    }
}

/// Each worker reports every 5 s ± 10 % for as long as it lives, and has nothing to say at first.
#[test]
fn a_worker_reports_once_an_interval() {
    let weather =
        NetworkConditions { deaths_every: 20, delay: Duration::ZERO..Duration::ZERO, ..NetworkConditions::fair() };
    let scenario = &scenario::all(4, Rule::new(5_000.0, 400.0).unwrap(), &weather)[0];
    let mut reported: BTreeMap<WorkerId, BTreeMap<EpochMillis, f64>> = BTreeMap::new();
    for report in run(scenario, 1).passes.iter().flat_map(|pass| &pass.reports) {
        reported.entry(report.worker).or_default().insert(report.at, report.rate);
    }
    assert!(reported.len() > 10, "{reported:?}");
    for (worker, reports) in reported {
        let (at, rates): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
        for waits in at.windows(2) {
            // The aggregator may have missed reports between two that it saw, but saw none that came too soon.
            assert!(waits[1].since(waits[0]) >= Duration::from_millis(4_500), "{worker:?}: {waits:?}");
        }
        if worker.life == 0 {
            // All start at once and report once before the others, and the aggregator sees it.
            assert!(rates[0] == 0.0 || at[0].get() % 60_000 > 5_500, "{worker:?}: {rates:?}");
        }
        assert!(rates[1..].iter().all(|rate| *rate > 0.0), "{worker:?}: {rates:?}");
    }
}

/// A worker that dies leaves its report: until it is stale, the one that took its place counts beside it.
#[test]
fn the_dead_count_until_they_are_stale() {
    let weather = NetworkConditions { deaths_every: 60, leftovers: 2, ..NetworkConditions::fair() };
    let scenario = &scenario::all(4, Rule::new(5_000.0, 400.0).unwrap(), &weather)[0];
    let course = run(scenario, 1);
    let start = course.passes[0].at.get() / 60_000 * 60_000;
    let active = |from: i64, to: i64| {
        let within = move |pass: &&Pass| (from * 1000..to * 1000).contains(&(pass.at.get() - start));
        course.passes.iter().filter(within).map(|pass| pass.tally.active).max()
    };
    assert_eq!(active(6, 14), Some(6));
    assert_eq!(active(21, 60), Some(4));
    assert_eq!(active(67, 70), Some(5));
    assert_eq!(active(81, 120), Some(4));
}
