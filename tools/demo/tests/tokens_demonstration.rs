//! `cargo run -- tokens`, in short: the sweeper keeps its promises, and what is wrong is told.

use tidegate_demo::tokens::{self, Options, Outcome};

/// `falsify` makes one thing wrong, which `expect` is part of the message of.
fn check(outcome: &Outcome, falsify: impl FnOnce(&mut Outcome), expect: &str) {
    let mut falsified = outcome.clone();
    falsify(&mut falsified);
    let problems = falsified.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expect), "{:?} does not say {expect:?}", problems[0]);
    assert_eq!(falsified.exit_code(), 1);
    assert!(tokens::verdict::line(&falsified).starts_with("NOT SWEPT: 1 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweeper_keeps_its_promises() -> anyhow::Result<()> {
    let outcome = Box::pin(tokens::run(&Options { events: 80, seed: 1 })).await?;
    let table = tokens::verdict::table(&outcome);
    assert_eq!(outcome.problems(), Vec::<String>::new(), "{table}");
    assert_eq!(outcome.exit_code(), 0);
    assert!(tokens::verdict::line(&outcome).starts_with("SWEPT"));
    let tally = &outcome.with.tally;
    for decision in ["deleted", "untracked", "no-end"] {
        assert!(tally.done.get(decision).is_some_and(|count| *count > 0), "{decision}: {table}");
    }
    for reason in ["early", "failed"] {
        assert!(tally.again.get(reason).is_some_and(|count| *count > 0), "{reason}: {table}");
    }
    assert!(outcome.with.lost > 0 && outcome.with.strays > 0 && tally.reconciled.expired > 0, "{table}");

    check(&outcome, |outcome| outcome.with.leaked.push("r-1 j-1".to_owned()), "leaked: r-1 j-1");
    check(&outcome, |outcome| outcome.with.taken.push("r-2 j-2".to_owned()), "live and taken: r-2 j-2");
    check(&outcome, |outcome| outcome.with.live += 1, "8 tokens count in the end, and 7 resources run");
    check(&outcome, |outcome| outcome.with.tally.parked.clear(), "0 messages were parked");
    check(&outcome, |outcome| outcome.with.tally.unsettled = 3, "3 messages are still in the queue");
    check(&outcome, |outcome| outcome.with.refused = usize::MAX, "without the sweeper");
    Ok(())
}
