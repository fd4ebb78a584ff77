//! `cargo run -- keeper`, shortened: the keeper meets its requirements, and each one that is not met is reported.

use tidegate_demo::keeper::{
    self, Comparison, Figures, Options,
    report::{summary, table},
};

/// Falsifies a phase in both runs with the keeper; `expect` is part of both messages.
fn check(comparison: &Comparison, phase: &str, falsify: impl Fn(&mut Figures, &Figures), expect: &str) {
    let mut falsified = comparison.clone();
    let Comparison { without, one, two, .. } = &mut falsified;
    let pairs = one.iter_mut().zip(&*without).chain(two.iter_mut().zip(&*without));
    pairs.filter(|(with, _)| with.phase == phase).for_each(|(with, without)| falsify(with, without));
    check_problems(&falsified, 2, expect);
}

fn check_problems(falsified: &Comparison, count: usize, expect: &str) {
    let problems = falsified.problems();
    assert_eq!(problems.len(), count, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.contains(expect)), "{problems:?} do not say {expect:?}");
    assert_eq!(falsified.exit_code(), 1);
    assert!(summary(falsified).starts_with(&format!("NOT MET: {count} ")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_meets_its_requirements() -> anyhow::Result<()> {
    let comparison = keeper::run(&Options { seconds: 30, seed: 1 }).await?;
    assert_eq!(comparison.problems(), Vec::<String>::new(), "{}", table(&comparison));
    assert_eq!(comparison.exit_code(), 0);
    assert!(summary(&comparison).starts_with("MET"));
    let shows = |shown: fn(&Figures) -> bool| comparison.without.iter().any(shown);
    assert!(shows(|of| of.phase == "surge" && of.over_admitted > 0), "{}", table(&comparison));
    assert!(shows(|of| of.phase == "ramp" && of.created > 0), "{}", table(&comparison));

    let check = |phase, falsify: fn(&mut Figures, &Figures), expect| check(&comparison, phase, falsify, expect);
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

    let mut falsified = comparison.clone();
    falsified.two[0].report.refilled += 1;
    check_problems(&falsified, 1, "with one process");
    Ok(())
}
