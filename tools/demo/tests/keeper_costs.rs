//! `cargo run -- keeper-costs`: refills pay for every load, and what is wrong is reported.

use tidegate_demo::keeper::costs::{self, Aim, Options, Row};

const OPTIONS: Options = Options { minutes: 60, seed: 1 };

/// `falsify` makes a row wrong, so that its problems contain `expect`.
fn check(row: &Row, falsify: impl FnOnce(&mut Row), expect: &str) {
    let mut falsified = row.clone();
    falsify(&mut falsified);
    let problems = falsified.problems();
    assert!(problems.iter().any(|problem| problem.contains(expect)), "{problems:?} do not say {expect:?}");
}

#[test]
fn refills_pay_for_every_load() -> anyhow::Result<()> {
    let rows = costs::run(OPTIONS)?;
    let problems: Vec<_> = rows.iter().flat_map(Row::problems).collect();
    assert_eq!(problems, Vec::<String>::new(), "{}", costs::table(&rows));

    let row = |aim| rows.iter().find(|row| row.load.aim == aim).unwrap();
    let halved = row(Aim::Halve);
    assert!(halved.with.refilled > 0);
    check(halved, |row| row.with.writes += row.without.writes / 50, "% more with the keeper, with clients of 0.12");
    check(halved, |row| row.with.slow = row.without.slow, "slow paths are left");
    check(halved, |row| row.with.rejected = row.without.rejected + 1, "rejections, and");
    check(row(Aim::LeaveAlone), |row| row.with.lost = 1, "1 refills, which cannot pay");
    check(row(Aim::NoHarm), |row| row.with.slow = 2 * row.without.slow, "slow paths, and");
    Ok(())
}

#[test]
fn a_seed_shows_the_same_again() -> anyhow::Result<()> {
    let table = |seed| costs::run(Options { minutes: 5, seed }).map(|rows| costs::table(&rows));
    assert_eq!(table(1)?, table(1)?);
    assert_ne!(table(1)?, table(2)?);
    Ok(())
}
