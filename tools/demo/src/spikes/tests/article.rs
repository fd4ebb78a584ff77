//! What the article says holds for many seeds.

use crate::spikes::{
    article::{burst_summary, differences},
    designs::{self, Expectation},
    simulation::run,
    table::INITIAL_WARM_THROUGHPUT,
    traffic::users,
};

#[test]
fn the_article_holds_for_many_seeds() {
    for seed in 0..100 {
        let users = users(seed);
        for design in designs::ALL {
            let run = run(design, seed, &users, INITIAL_WARM_THROUGHPUT);
            assert_eq!(differences(&run), Vec::<String>::new());
        }
    }
}

#[test]
fn every_statement_of_the_article_is_checked() {
    let with = |expectation| designs::ALL.iter().filter(|design| design.expectation == expectation).count();
    let counts = [Expectation::BurstUsedUp, Expectation::NoThrottles, Expectation::LowPeak, Expectation::Any].map(with);
    assert_eq!(counts, [1, 4, 1, 2]);
}

#[test]
fn the_summary_has_the_least_and_the_most() {
    let users = users(1);
    let runs = designs::ALL.map(|design| run(design, 1, &users, INITIAL_WARM_THROUGHPUT));
    let mut other = runs[0].clone();
    let span = other.throttled.as_mut().unwrap();
    (span.first, span.capacity_after) = (span.first + 7, 26_500);
    let summary = burst_summary(&[runs[0].clone(), other, runs[1].clone()]);
    let span = runs[0].throttled.unwrap();
    let begin = span.first - 12 * 3_600;
    assert!(summary.contains(&format!("begin {begin} to {} s", begin + 7)), "{summary}");
    assert!(summary.ends_with(&format!("{} to 26500", span.capacity_after)), "{summary}");
}
