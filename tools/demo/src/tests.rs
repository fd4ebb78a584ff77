//! The demonstrations, shortened: each one passes, and reports every requirement that is not met.

use std::{fmt::Debug, num::NonZeroU64};

use tidegate_sandbox::services::Services;

use crate::{
    client::{self, ClientRun},
    costs::{self, Expectation, Row},
    fleet::{comparison::CaseFigures, scenario::Fleet},
    keeper::{self, Comparison, Figures},
    print::Outcome,
    rates,
    rollup::{self, RollupRun},
    spikes::{
        self, SpikesRun,
        simulation::{DesignRun, ThrottledSpan},
    },
    tokens,
};

/// Checks that an outcome passes and that its last line begins with `line`.
fn check_passed(outcome: &Outcome, line: &str, context: &impl Debug) {
    assert_eq!(outcome.problems, Vec::<String>::new(), "{context:?}");
    assert_eq!(outcome.exit_code(), 0);
    assert!(outcome.line().starts_with(line), "{}", outcome.line());
}

/// Checks the number of an outcome's problems, that each contains `expect`, and that its last line begins with `line`.
fn check_failed(outcome: &Outcome, count: usize, expect: &str, line: &str) {
    let problems = &outcome.problems;
    assert_eq!(problems.len(), count, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.contains(expect)), "{problems:?} do not contain {expect:?}");
    assert_eq!(outcome.exit_code(), 1);
    assert!(outcome.line().starts_with(&format!("{line}: {count} ")), "{}", outcome.line());
}

/// A changed copy.
fn falsified<T: Clone>(run: &T, falsify: impl FnOnce(&mut T)) -> T {
    let mut run = run.clone();
    falsify(&mut run);
    run
}

#[tokio::test]
async fn rollup_reports_a_single_difference() -> anyhow::Result<()> {
    let options = rollup::Options {
        records: 300,
        entities: 2,
        shards: 2,
        faults: 0.3,
        // This seed writes poison.
        seed: 7,
        batch_size: 50.try_into()?,
    };
    let services = Services::embedded(None, "rollup").await?;
    let mut run = rollup::run(&options, &services).await?;
    check_passed(&run.outcome(), "EXACT: all ", &run);
    assert!(run.poison.0 > 0 && !run.delivery_faults.is_empty(), "too few faults: {run:?}");

    let (snapshot, usage) = run.granted.iter().next().expect("the clients were granted tokens");
    let (snapshot, limit) = (snapshot.clone(), usage.tokens.keys().next().cloned().expect("of a limit"));
    let mut check = |falsify: &dyn Fn(&mut RollupRun), expect: &str| {
        let (granted, poison) = (run.granted.clone(), run.poison);
        falsify(&mut run);
        check_failed(&run.outcome(), 1, expect, "WRONG");
        (run.granted, run.poison) = (granted, poison);
    };
    check(&|run| run.granted.add_tokens(&snapshot, &limit, 1), &snapshot.entity);
    check(&|run| run.granted.add_event(&snapshot), &snapshot.entity);
    check(&|run| run.poison.0 += 1, "poison records were written");
    assert_eq!(run.outcome().exit_code(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_meets_its_requirements() -> anyhow::Result<()> {
    let comparison = keeper::run(&keeper::Options { seconds: 30, seed: 1 }).await?;
    check_passed(&comparison.outcome(), "MET", &comparison.table());
    let shows = |shown: fn(&Figures) -> bool| comparison.without.iter().any(shown);
    assert!(shows(|of| of.phase == "surge" && of.over_admitted > 0), "{}", comparison.table());
    assert!(shows(|of| of.phase == "ramp" && of.created > 0), "{}", comparison.table());

    // Falsifies a phase of both runs with the keeper.
    let check = |phase: &str, falsify: fn(&mut Figures, &Figures), expect: &str| {
        let falsified = falsified(&comparison, |Comparison { without, one, two, .. }| {
            let pairs = one.iter_mut().zip(&*without).chain(two.iter_mut().zip(&*without));
            pairs.filter(|(with, _)| with.phase == phase).for_each(|(with, without)| falsify(with, without));
        });
        check_failed(&falsified.outcome(), 2, expect, "NOT MET");
    };
    check("steady", |with, without| with.slow_paths = without.slow_paths / 2 + 1, "slow paths");
    check("steady", |with, _| with.keeper.write += 10, "costs ");
    check("steady", |with, _| with.keeper.half_read += 100, "costs ");
    check("burst", |with, without| with.slow_paths = without.slow_paths + 1, "slow paths");
    check("burst", |with, without| with.rejected = without.rejected + 1, "rejections");
    check("burst", |with, _| with.over_admitted = 1, "over-admitted");
    check("surge", |with, _| with.rejected = with.exactly_rejected + 3, "rejections");
    check("surge", |with, _| with.keeper.write += 100, "costs ");
    check("surge", |with, _| with.created = 1, "clients created");
    check("ramp", |with, _| with.existing -= 1, "3 of 4 shards exist");
    check("ramp", |with, _| (with.shards, with.existing) = (8, 8), "8 of 8 shards exist, instead of 4");
    check("idle", |with, _| with.drained[3] = 99, "the drained shard has [0, 100, 0, 99]");
    check("idle", |with, _| with.drained.clear(), "the drained shard has []");

    let differing = falsified(&comparison, |comparison| comparison.two[0].report.refilled += 1);
    check_failed(&differing.outcome(), 1, "with one process", "NOT MET");
    Ok(())
}

#[test]
fn refills_pay_for_every_load() -> anyhow::Result<()> {
    let rows = costs::run(costs::Options { minutes: 60, seed: 1 })?;
    check_passed(&costs::outcome(&rows), "PAYS", &costs::table(&rows));

    let row = |expectation| rows.iter().find(|row| row.load.expectation == expectation).unwrap();
    let check = |row: &Row, falsify: fn(&mut Row), expect: &str| {
        let Outcome { problems, .. } = costs::outcome(&[falsified(row, falsify)]);
        assert!(problems.iter().any(|problem| problem.contains(expect)), "{problems:?} do not contain {expect:?}");
    };
    let halved = row(Expectation::Halve);
    assert!(halved.with.refilled > 0);
    check(halved, |row| row.with.writes += row.without.writes / 50, "% more with the keeper, with clients of 0.12");
    check(halved, |row| row.with.slow = row.without.slow, "slow paths are left");
    check(halved, |row| row.with.rejected = row.without.rejected + 1, "rejections, and");
    check(row(Expectation::LeaveAlone), |row| row.with.lost = 1, "1 refills, which cannot pay");
    check(row(Expectation::NoHarm), |row| row.with.slow = 2 * row.without.slow, "slow paths, and");
    Ok(())
}

#[test]
fn a_seed_repeats_the_costs() -> anyhow::Result<()> {
    let table = |seed| costs::run(costs::Options { minutes: 5, seed }).map(|rows| costs::table(&rows));
    assert_eq!(table(1)?, table(1)?);
    assert_ne!(table(1)?, table(2)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_meets_its_requirements() -> anyhow::Result<()> {
    let comparison = Box::pin(tokens::run(&tokens::Options { events: 80, seed: 1 })).await?;
    let table = comparison.table();
    check_passed(&comparison.outcome(), "SWEPT", &table);
    let tally = &comparison.with.tally;
    for decision in ["deleted", "untracked", "no-end"] {
        assert!(tally.done.get(decision).is_some_and(|count| *count > 0), "{decision}: {table}");
    }
    for reason in ["early", "failed"] {
        assert!(tally.redelivered.get(reason).is_some_and(|count| *count > 0), "{reason}: {table}");
    }
    assert!(comparison.with.lost > 0 && comparison.with.strays > 0 && tally.reconciled.expired > 0, "{table}");

    let check = |falsify: fn(&mut tokens::Figures), expect: &str| {
        let falsified = falsified(&comparison, |comparison| falsify(&mut comparison.with));
        check_failed(&falsified.outcome(), 1, expect, "NOT SWEPT");
    };
    check(|with| with.leaked.push("r-1 j-1".to_owned()), "leaked: r-1 j-1");
    check(|with| with.taken.push("r-2 j-2".to_owned()), "deleted while live: r-2 j-2");
    check(|with| with.live += 1, "8 tokens count in the end, and 7 resources run");
    check(|with| with.tally.parked.clear(), "0 messages were parked");
    check(|with| with.tally.unsettled = 3, "3 messages are still in the queue");
    check(|with| with.refused = usize::MAX, "without the sweeper");
    let crowded = falsified(&comparison, |comparison| comparison.crowds[1].granted += 1);
    check_failed(&crowded.outcome(), 1, "11 tokens were granted at a limit of 10", "NOT SWEPT");
    let admitted = falsified(&comparison, |comparison| comparison.calls.ours = 21);
    check_failed(&admitted.outcome(), 1, "21 calls were admitted at a limit of 10", "NOT SWEPT");
    let [theirs, ..] = comparison.crowds.as_slice() else { panic!("no callers") };
    assert!(theirs.granted > theirs.limit, "{}", theirs.granted);
    Ok(())
}

const RATES: rates::Options =
    rates::Options { workers: None, cap: 20_000.0, worker_max: 1_500.0, seed: 1, seeds: NonZeroU64::new(20).unwrap() };

#[test]
fn leases_reach_their_goals() -> anyhow::Result<()> {
    let run = rates::run(&RATES)?;
    check_passed(&run.outcome(), "KEPT: ", &run.table());

    let check = |fleet: Fleet, falsify: fn(&mut CaseFigures), expect: &str| {
        let falsified = falsified(&run, |run| {
            let row = run.rows.iter_mut().find(|row| (row.scenario, row.fleet) == ("surge", fleet)).unwrap();
            falsify(row);
        });
        check_failed(&falsified.outcome(), 1, expect, "BROKEN");
    };
    check(Fleet::Leases, |row| row.settled[0] = Some(7), "surge, nominal network, leases: settled in half");
    check(Fleet::Leases, |row| row.overshoot = 1.0, "surge, nominal network, leases: overshoot of 1");
    check(Fleet::Mixed, |row| row.settled[1] = None, "surge, nominal network, half and half: settled in 95 %");
    check(Fleet::Mixed, |row| row.utilisation = 0.93, "surge, nominal network, half and half: utilisation");
    check(Fleet::Mixed, |row| row.overshoot = 1e9, "surge, nominal network, half and half: overshoot");
    check(Fleet::Mixed, |row| row.fairness = 0.5, "surge, nominal network, half and half: fairness");
    for fleet in Fleet::ALL {
        check(fleet, |row| row.violations.push("wrong".to_owned()), "wrong");
    }
    Ok(())
}

#[test]
fn a_seed_repeats_every_scenario_and_network() -> anyhow::Result<()> {
    let short = rates::Options { workers: Some(8), cap: 4_000.0, seeds: NonZeroU64::MIN, ..RATES };
    let run = rates::run(&short)?;
    let (table, drawings) = (run.table(), run.drawings());
    let again = rates::run(&short)?;
    assert_eq!((again.table(), again.drawings()), (table.clone(), drawings.clone()));
    assert_ne!(rates::run(&rates::Options { seed: 2, ..short })?.table(), table);
    for scenario in ["cold start", "surge", "half joins", "surge in outage", "a quarter dies", "surge at takeover"] {
        for network in ["nominal", "degraded"] {
            for fleet in Fleet::ALL {
                let is_it = |row: &&CaseFigures| (row.scenario, row.network, row.fleet) == (scenario, network, fleet);
                assert_eq!(run.rows.iter().filter(is_it).count(), 1, "{scenario}, {network}");
            }
        }
    }
    assert_eq!(drawings.matches("cap ┤").count(), 5);
    for drawn in ["surge, AWS's rule: ", "surge, leases: ", "surge, half and half: ", "surge in outage, leases: "] {
        assert!(drawings.contains(drawn), "{drawings}");
    }
    Ok(())
}

#[test]
fn an_unusable_rate_is_rejected() {
    let error = rates::run(&rates::Options { cap: 0.5, ..RATES }).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("0.5 "), "{error}");
}

/// Changes the span of throttled requests.
fn respan(run: &mut DesignRun, change: fn(&mut ThrottledSpan)) {
    run.throttled.iter_mut().for_each(change);
}

const SPIKES: spikes::Options = spikes::Options { seed: 1, seeds: 3, minutes: 100, warm: 4_000 };

#[test]
fn the_model_reproduces_the_article() {
    let run = spikes::run(&SPIKES);
    check_passed(&run.outcome(), "REPRODUCED, with 3 seeds: with 70 %, throttles begin 24", &run.table());

    let check = |design: &str, falsify: fn(&mut DesignRun), expect: &str| {
        let falsified = falsified(&run, |SpikesRun { runs, .. }| {
            falsify(runs.iter_mut().rfind(|run| run.design.name == design).unwrap());
        });
        check_failed(&falsified.outcome(), 1, &format!("seed 3, {design}: {expect}"), "NOT REPRODUCED");
    };

    check("auto scaling, 70 %", |run| run.throttled = None, "no request is throttled");
    check("auto scaling, 70 %", |run| respan(run, |span| span.first += 60), "throttles begin 3");
    check("auto scaling, 70 %", |run| respan(run, |span| span.first -= 70), "throttles begin 17");
    check(
        "auto scaling, 70 %",
        |run| respan(run, |span| span.capacity_after = 24_999),
        "throttles end at a capacity of",
    );
    check(
        "auto scaling, 70 %",
        |run| respan(run, |span| span.capacity_after = 27_001),
        "throttles end at a capacity of",
    );
    check("self-throttling", |run| run.highest = Some(21_001), "the highest capacity is 21001");
    check("self-throttling", |run| run.highest = Some(18_999), "the highest capacity is 18999");
    for design in ["auto scaling, 60 %", "slow start", "schedule", "coordinator"] {
        check(design, |run| run.minutes[700].throttled = 1, "1 requests are throttled");
    }
}

#[test]
fn a_seed_repeats_every_design() {
    let run = spikes::run(&SPIKES);
    let (table, drawings) = (run.table(), run.drawings(100));
    let again = spikes::run(&SPIKES);
    assert_eq!((again.table(), again.drawings(100)), (table.clone(), drawings.clone()));
    assert_ne!(spikes::run(&spikes::Options { seed: 2, ..SPIKES }).table(), table);
    for DesignRun { design, .. } in &run.runs[..8] {
        assert_eq!(table.matches(&format!("│ {} ", design.name)).count(), 1, "{table}");
        assert_eq!(drawings.matches(&format!("{}: {}", design.name, design.summary)).count(), 1, "{drawings}");
    }
}

/// Rust clients, and real Python clients of two versions where they are installed, are counted to the last token.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_all_kinds_are_counted_exactly() -> anyhow::Result<()> {
    let run = Box::pin(client::run(&client::Options { acquires: 200, seed: 1 })).await?;
    println!("{}", run.table());
    check_passed(&run.outcome(), "EXACT: ", &run);
    let has_python = std::env::var_os("TIDEGATE_PYTHON").is_some_and(|python| !python.is_empty());
    assert_eq!(run.clients.len(), if has_python { 4 } else { run.clients.len() });
    assert!(run.clients.iter().all(|(_, granted)| granted.acquires == 200), "{run:?}");
    assert!(run.clients.iter().any(|(_, granted)| granted.denied > 0), "{run:?}");
    let check = |falsify: &dyn Fn(&mut ClientRun), expect| {
        check_failed(&falsified(&run, falsify).outcome(), 1, expect, "WRONG");
    };
    check(&|run| assert!(run.counted.pop_first().is_some()), "0 in the buckets");
    check(&|run| run.clients[0].1.tokens.values_mut().take(1).for_each(|tokens| *tokens += 1), "in the buckets");
    Ok(())
}
