//! `cargo run -- keeper`, in short: the keeper keeps its promises, and what is wrong is told.

use tidegate_local::keeper::{self, Options, Outcome};

/// `falsify` makes one thing wrong, which `expect` is part of the message of.
fn check(outcome: &Outcome, falsify: impl FnOnce(&mut Outcome), expect: &str) {
    let mut falsified = outcome.clone();
    falsify(&mut falsified);
    let problems = falsified.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expect), "{:?} does not say {expect:?}", problems[0]);
    assert_eq!(falsified.exit_code(), 1);
    assert!(keeper::verdict::line(&falsified).starts_with("NOT KEPT: 1 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keeper_keeps_its_promises() -> anyhow::Result<()> {
    let outcome = keeper::run(&Options { seconds: 7, window: 1, seed: 1 }).await?;
    assert_eq!(outcome.problems(), Vec::<String>::new(), "{}", keeper::verdict::table(&outcome));
    assert_eq!(outcome.exit_code(), 0);
    assert!(keeper::verdict::line(&outcome).starts_with("KEPT"));

    check(&outcome, |outcome| outcome.with[0].keeper_units += 1_000_000, "write units");
    check(&outcome, |outcome| outcome.with[2].existing -= 1, "ramp: 4 shards, of which 3 are there");
    check(&outcome, |outcome| outcome.with[3].drained.clear(), "idle: the drained shard has 0 of 100");
    check(&outcome, |outcome| outcome.without[3].drained.push(1), "1 tokens without the keeper");
    Ok(())
}
