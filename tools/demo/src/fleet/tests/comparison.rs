//! Figures of many seeds against their goals, and the violations of one run.

use tidegate_domain::rates::{Judgement, Rates};

use crate::fleet::{
    comparison::{Case, CaseFigures, Trial},
    python::Rule,
    scenario::{Fleet, Goal, NetworkConditions},
    simulation::Excess,
};

const GOAL: Goal = Goal { settled: [Some(5), Some(12)], overshoot: 100.0, fairness: 0.99, utilisation: 0.97 };

fn row() -> CaseFigures {
    CaseFigures {
        scenario: "surge",
        network: "nominal",
        fleet: Fleet::Leases,
        goal: Some(GOAL),
        settled: GOAL.settled,
        overshoot: GOAL.overshoot,
        fairness: GOAL.fairness,
        utilisation: GOAL.utilisation,
        summaries: 1,
        violations: Vec::new(),
    }
}

#[test]
fn a_goal_is_missed_by_more_than_a_fifth() {
    let check = |change: fn(&mut CaseFigures), expect: &[&str]| {
        let mut row = row();
        change(&mut row);
        let misses = row.misses(&GOAL);
        assert_eq!(misses.len(), expect.len(), "{misses:?}");
        for (miss, expect) in misses.iter().zip(expect) {
            assert_eq!(*miss, format!("surge, nominal network, leases: {expect}"));
        }
    };
    check(|_| {}, &[]);
    check(|row| row.settled = [Some(6), Some(15)], &[]);
    check(|row| row.settled[0] = Some(7), &["settled in half of the runs: 7 s, instead of 5 s"]);
    check(|row| row.settled[1] = Some(16), &["settled in 95 % of the runs: 16 s, instead of 12 s"]);
    check(|row| row.settled[1] = None, &["settled in 95 % of the runs: never, instead of 12 s"]);
    check(|row| row.overshoot = 120.0, &[]);
    check(|row| row.overshoot = 121.0, &["overshoot of 121, instead of 100"]);
    // A fifth of what is missing to 1.
    check(|row| (row.fairness, row.utilisation) = (0.988, 0.964), &[]);
    check(|row| row.fairness = 0.987, &["fairness of 0.987, instead of 0.990"]);
    check(|row| row.utilisation = 0.963, &["utilisation of 0.963, instead of 0.970"]);
    // Without a goal for the time to settle, any time will do.
    let never = CaseFigures { settled: [None; 2], ..row() };
    assert_eq!(never.misses(&Goal { settled: [None; 2], ..GOAL }), Vec::<String>::new());
}

fn case(fleet: Fleet) -> Case {
    let rule = Rule::new(4_000.0, 1_500.0).unwrap();
    Case { which: 1, rule, workers: Some(8), conditions: NetworkConditions::nominal(), fleet }
}

#[test]
fn a_row_has_the_worst_of_its_seeds() {
    let case = case(Fleet::Python);
    let each: Vec<_> = (1..6).map(|seed| CaseFigures::of(&case, seed..seed + 1)).collect();
    let all = CaseFigures::of(&case, 1..6);
    let most = |of: fn(&CaseFigures) -> f64| each.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let mut settled: Vec<_> = each.iter().map(|row| row.settled[0].unwrap()).collect();
    settled.sort_unstable();
    assert!(settled[2] < settled[4], "{settled:?}");
    assert_eq!(all.settled, [Some(settled[2]), Some(settled[4])]);
    let worst = [most(|row| row.overshoot), -most(|row| -row.fairness), -most(|row| -row.utilisation)];
    assert_eq!([all.overshoot, all.fairness, all.utilisation].map(f64::to_bits), worst.map(f64::to_bits));
    assert_eq!(all.summaries, each.iter().map(|row| row.summaries).sum::<usize>());
}

#[test]
fn wrong_summaries_and_excesses_are_reported() {
    let check = |fleet: Fleet, falsify: fn(&mut Trial), expect: &str| {
        let mut trial = case(fleet).play(1);
        assert_eq!(trial.violations(), Vec::<String>::new());
        falsify(&mut trial);
        let violations = trial.violations();
        assert!(violations.len() == 1 && violations[0].contains(expect), "{violations:?}");
        assert!(violations[0].starts_with("surge, nominal network, "), "{violations:?}");
    };
    for fleet in Fleet::ALL {
        check(fleet, |trial| _ = trial.trace.aggregations[9].files.pop(), "workers and millionths");
        check(fleet, |trial| trial.trace.aggregations[9].files[0].file.rate += 0.001, "workers and millionths");
        check(
            fleet,
            |trial| {
                let aggregation = &mut trial.trace.aggregations[9];
                aggregation.tally.count(Judgement::Fresh { rates: Rates::default(), at: aggregation.at });
            },
            "workers and millionths",
        );
        check(
            fleet,
            |trial| {
                let at = trial.trace.aggregations[9].at;
                trial.trace.excesses.push(Excess { at, leased: 11, most: 10 });
            },
            "leases of 11 millionths exceed 10",
        );
    }
}

#[test]
fn fleets_have_thirty_to_seventy_workers() {
    let any = Case { workers: None, ..case(Fleet::Mixed) };
    let counts: Vec<_> = (0..200).map(|seed| any.scenario(seed).members.len()).collect();
    assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&30), Some(&70)));
}
