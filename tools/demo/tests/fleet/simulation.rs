//! The loop as a whole: what becomes of a fleet by the rule.

use proptest::prelude::*;
use tidegate_demo::fleet::{
    course::{Course, Second},
    figures::Figures,
    rule::Rule,
    scenario::{self, Member, NetworkConditions, Scenario},
    simulation::run,
};

use crate::is_near;

fn scenario(members: Vec<Member>, rule: Rule, length: u32) -> Scenario {
    Scenario {
        name: "made up",
        summary: "",
        rule,
        members,
        weather: NetworkConditions::fair(),
        outage: 0..0,
        event: 0,
        settles_from: 0,
        length,
    }
}

fn named(name: &str) -> Scenario {
    let all = scenario::all(40, Rule::new(20_000.0, 1_500.0).unwrap(), &NetworkConditions::fair());
    all.into_iter().find(|scenario| scenario.name == name).unwrap()
}

fn of(rate: f64) -> Member {
    Member { joins: 0, wants: vec![(0, rate)] }
}

fn mean(course: &Course, span: usize, of: fn(&Second) -> f64) -> f64 {
    let seconds = &course.seconds[course.seconds.len() - span..];
    let (count, sum) = seconds.iter().fold((0.0, 0.0), |(count, sum), second| (count + 1.0, sum + of(second)));
    sum / count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_seed_repeats_a_course(workers in 1..20_usize, which in 0..6_usize, seed: u64) {
        let scenario = &scenario::all(workers, Rule::new(5_000.0, 400.0).unwrap(), &NetworkConditions::foul())[which];
        let course = run(scenario, seed);
        prop_assert_eq!(&course, &run(scenario, seed));
        prop_assert!(course != run(scenario, seed.wrapping_add(1)));
        prop_assert_eq!(course.seconds.len(), scenario.length as usize);
    }

    #[test]
    fn in_any_weather_limits_keep_within_their_bounds(workers in 1..20_usize, cap in 1.0..20_000.0_f64, maximum in 1.0..2_000.0_f64, which in 0..6_usize, seed: u64) {
        let rule = Rule::new(cap, maximum).unwrap();
        let scenario = &scenario::all(workers, rule, &NetworkConditions::foul())[which];
        for (second, at) in run(scenario, seed).seconds.iter().zip(0..) {
            for (member, (limit, consumed)) in scenario.members.iter().zip(second.limits.iter().zip(&second.consumed)) {
                if member.joins > at {
                    prop_assert!(*limit == 0.0 && *consumed == 0.0);
                } else {
                    prop_assert!((Rule::FLOOR..=maximum * (1.0 + 1e-12)).contains(limit), "{limit}");
                    prop_assert!(*consumed <= member.wants_in(at) + 1e-6, "{consumed}");
                }
            }
        }
    }

    /// Of a demand below the cap nothing is refused in the end, and meanwhile limits wind up to the maximum.
    #[test]
    fn below_the_cap_everybody_gets_what_they_want(parts in proptest::collection::vec(0.01..1.0_f64, 1..20), load in 0.05..0.9_f64, seed: u64) {
        let whole: f64 = parts.iter().sum();
        let wants: Vec<_> = parts.iter().map(|part| 10_000.0 * load * part / whole).collect();
        let rule = Rule::new(10_000.0, 10_000.0).unwrap();
        let course = run(&scenario(wants.iter().copied().map(of).collect(), rule, 600), seed);
        let last = course.seconds.last().unwrap();
        for (want, consumed) in wants.iter().zip(&last.consumed) {
            prop_assert!(is_near(*want, *consumed), "{consumed} of {want}");
        }
        prop_assert!(last.limits.iter().all(|limit| *limit > 0.99 * rule.maximum()), "{:?}", last.limits);
    }

    /// Above the cap, equal workers of which every report counts come to rest at the cap.
    #[test]
    fn in_fair_weather_a_fleet_settles_at_the_cap(workers in 2..60_usize, share in 10.0..1_000.0_f64, room in 1.1..10.0_f64, seed: u64) {
        let cap = share * f64::from(u32::try_from(workers).unwrap());
        let rule = Rule::new(cap, share * room).unwrap();
        let course = run(&scenario(vec![of(rule.maximum() * 2.0); workers], rule, 600), seed);
        let total = mean(&course, 60, Second::total);
        prop_assert!((total / cap - 1.0).abs() < 0.01, "{total} of {cap}");
    }

    /// Without an aggregator there is no summary, and limits stay where they began.
    #[test]
    fn without_any_summary_limits_stay(workers in 1..20_usize, seed: u64) {
        let rule = Rule::new(1_000.0, 400.0).unwrap();
        // The last moment of a scenario belongs to it.
        let alone = Scenario { outage: 0..301, ..scenario(vec![of(800.0); workers], rule, 300) };
        let course = run(&alone, seed);
        prop_assert!(course.passes.is_empty());
        prop_assert!(course.seconds.iter().flat_map(|second| &second.limits).all(|limit| is_near(*limit, rule.initial())));
    }
}

/// A fleet that starts is blind until its second reports are summed up.
#[test]
fn a_fleet_that_starts_is_above_the_cap_for_two_intervals() {
    let cold = named("cold start");
    let everything = 40.0 * cold.rule.initial();
    let course = run(&cold, 1);
    for second in &course.seconds[2..9] {
        assert!(is_near(second.total(), everything), "{}", second.total());
    }
    assert!(is_near(everything, 3.0 * cold.rule.cap()));
}

/// After a summary that nobody renews, a fleet takes all that its limits have wound up to, for as long as that lasts.
#[test]
fn a_surge_in_an_outage_is_not_held() {
    let check = |name: &str, expect: bool| {
        let surge = named(name);
        let course = run(&surge, 1);
        // The last half minute before the aggregator is back, or as long after the surge without an outage.
        let from = if surge.outage.is_empty() { surge.event + 30 } else { surge.outage.end - 30 } as usize;
        let held = course.seconds[from..from + 29].iter().all(|second| second.total() < surge.rule.cap() * 1.25);
        assert_eq!(held, expect, "{name}");
        assert!(Figures::of(&surge, &course).settled_after.is_some());
    };
    check("surge", true);
    check("surge in outage", false);
}

/// Those who were there have 1,000 each when the others join with 1,500, and five minutes later they still have less.
#[test]
fn who_joins_late_keeps_more() {
    let joining = named("half joins");
    let course = run(&joining, 1);
    let by = |late: bool| -> f64 {
        let of = joining.members.iter().zip(&course.seconds.last().unwrap().consumed);
        of.filter(|(member, _)| (member.joins > 0) == late).map(|(_, consumed)| consumed).sum()
    };
    let (early, late) = (by(false), by(true));
    assert!(((early + late) / joining.rule.cap() - 1.0).abs() < 0.01, "{early} and {late}");
    assert!(late / early > 1.3, "{early} and {late}");
    assert!(Figures::of(&joining, &course).fairness < 0.98);
}
