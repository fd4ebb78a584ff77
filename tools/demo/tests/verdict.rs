//! What `cargo run` ends with: 0 and EXACT when all is right, 1 and WRONG when anything is off by one.

use tidegate_demo::{
    progress::Progress,
    rollup::{self, Options, Outcome},
    verdict,
};
use tidegate_sandbox::services::Services;

async fn run() -> anyhow::Result<Outcome> {
    let options = Options {
        records: 300,
        entities: 2.try_into()?,
        shards: 2.try_into()?,
        faults: 0.3,
        // One with poison among the records.
        seed: 7,
        batch_size: 50.try_into()?,
    };
    let services = Services::embedded(None, "verdict").await?;
    rollup::run(&options, &services, &Progress::new(options.records)?).await
}

/// `falsify` makes one thing wrong, which `expect` is part of the message of.
fn check(outcome: Outcome, falsify: impl FnOnce(&mut Outcome), expect: &str) -> Outcome {
    let (ledger, poison) = (outcome.ledger.clone(), outcome.poison);
    let mut falsified = outcome;
    falsify(&mut falsified);

    let problems = falsified.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expect), "{:?} does not say {expect:?}", problems[0]);
    assert_eq!(falsified.exit_code(), 1);
    let line = verdict::line(&falsified);
    assert!(line.starts_with("WRONG: 1 "), "{line}");
    Outcome { ledger, poison, ..falsified }
}

#[tokio::test]
async fn one_of_anything_is_wrong() -> anyhow::Result<()> {
    let outcome = run().await?;
    assert_eq!(outcome.problems(), Vec::<String>::new());
    assert_eq!(outcome.exit_code(), 0);
    let line = verdict::line(&outcome);
    assert!(line.starts_with("EXACT: all "), "{line}");
    assert!(outcome.poison.0 > 0 && !outcome.delivery_faults.is_empty(), "little was tried: {outcome:?}");

    let (snapshot, usage) = outcome.ledger.iter().next().expect("the clients were granted something");
    let (snapshot, limit) = (snapshot.clone(), usage.tokens.keys().next().cloned().expect("of some limit"));
    let outcome = check(outcome, |outcome| outcome.ledger.add_tokens(&snapshot, &limit, 1), &snapshot.entity);
    let outcome = check(outcome, |outcome| outcome.ledger.add_event(&snapshot), &snapshot.entity);
    let outcome = check(outcome, |outcome| outcome.poison.0 += 1, "poison records were written");

    assert_eq!(outcome.exit_code(), 0);
    Ok(())
}
