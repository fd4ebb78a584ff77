//! `cargo run -- rates`, in short: every summary is right, the same seed shows the same, and what is wrong is told.

use tidegate_demo::rates::{self, Options, Outcome, verdict};
use tidegate_domain::rates::{Judgement, Rate, Rates};

const SHORT: Options = Options { workers: 8, cap: 4_000.0, worker_max: 1_500.0, seed: 1 };

/// `falsify` makes one summary wrong.
fn check(outcome: &Outcome, falsify: impl FnOnce(&mut Outcome)) {
    let mut falsified = outcome.clone();
    falsify(&mut falsified);
    let problems = falsified.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("cold start, fair weather: at "), "{problems:?}");
    assert_eq!(falsified.exit_code(), 1);
    assert!(verdict::line(&falsified).starts_with("NOT EXACT: 1 of "));
}

#[test]
fn summaries_are_exact_and_what_is_wrong_is_told() -> anyhow::Result<()> {
    let outcome = rates::run(&SHORT)?;
    assert_eq!(outcome.problems(), Vec::<String>::new());
    assert_eq!(outcome.exit_code(), 0);
    assert!(verdict::line(&outcome).starts_with("EXACT: each of "));

    check(&outcome, |outcome| {
        outcome.runs[0].course.passes[9].reports.pop();
    });
    check(&outcome, |outcome| outcome.runs[0].course.passes[9].reports[0].rate += 0.001);
    check(&outcome, |outcome| {
        let pass = &mut outcome.runs[0].course.passes[9];
        let rates = Rates { read: Rate::default(), write: Rate::default() };
        pass.tally.count(Judgement::Fresh { rates, at: pass.at });
    });
    Ok(())
}

#[test]
fn a_seed_shows_the_same_again_and_each_scenario_in_either_weather() -> anyhow::Result<()> {
    let outcome = rates::run(&SHORT)?;
    let (table, drawings) = (verdict::table(&outcome), verdict::drawings(&outcome));
    let again = rates::run(&SHORT)?;
    assert_eq!((verdict::table(&again), verdict::drawings(&again)), (table.clone(), drawings.clone()));
    assert_ne!(verdict::table(&rates::run(&Options { seed: 2, ..SHORT })?), table);
    for scenario in ["cold start", "surge", "skewed demand", "half joins", "outage", "surge in outage"] {
        for weather in ["fair", "foul"] {
            let is_it = |run: &&rates::Run| run.scenario.name == scenario && run.scenario.weather.name == weather;
            assert_eq!(outcome.runs.iter().filter(is_it).count(), 1, "{scenario}, {weather}");
            assert!(drawings.contains(&format!("{scenario}, {weather} weather: ")), "{scenario}, {weather}");
        }
    }
    assert_eq!(drawings.matches("cap ┤").count(), 12);
    Ok(())
}

#[test]
fn a_rate_by_which_nobody_can_work_is_refused() {
    let error = rates::run(&Options { cap: 0.5, ..SHORT }).map(|outcome| outcome.exit_code()).unwrap_err();
    assert!(error.to_string().starts_with("0.5 "), "{error}");
}
