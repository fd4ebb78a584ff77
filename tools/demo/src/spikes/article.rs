//! What AWS's article says about the designs, compared with a run.

use super::{
    designs::Expectation,
    simulation::DesignRun,
    traffic::{MINUTE, SPIKE},
};

/// Seconds after the jump, give or take a minute.
const BURST_LASTS: u32 = 4 * MINUTE;
/// The capacity at which the throttles end, and that of self-throttling: in write units a second, give or take a thousand.
const CAPACITY_AFTER: u64 = 26_000;
const LOW_PEAK: u64 = 20_000;
const ABOUT: u64 = 1_000;

/// One line for each statement of the article that does not hold.
pub(crate) fn differences(run: &DesignRun) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |holds: bool, problem: String| {
        if !holds {
            problems.push(format!("seed {}, {}: {problem}", run.seed, run.design.name));
        }
    };
    match run.design.expectation {
        Expectation::BurstUsedUp => match run.throttled {
            None => check(false, "no request is throttled".to_owned()),
            Some(span) => {
                let after = i64::from(span.first) - i64::from(SPIKE);
                let is_near = after.abs_diff(BURST_LASTS.into()) <= MINUTE.into();
                check(is_near, format!("throttles begin {after} s after the jump, instead of about {BURST_LASTS} s"));
                let capacity = span.capacity_after;
                let is_near = capacity.abs_diff(CAPACITY_AFTER) <= ABOUT;
                check(is_near, format!("throttles end at a capacity of {capacity}, instead of about {CAPACITY_AFTER}"));
            }
        },
        Expectation::NoThrottles => {
            let throttled = run.throttled_requests();
            check(throttled == 0, format!("{throttled} requests are throttled"));
        }
        Expectation::LowPeak => {
            let highest = run.highest.unwrap_or(0);
            let is_near = highest.abs_diff(LOW_PEAK) <= ABOUT;
            check(is_near, format!("the highest capacity is {highest}, instead of about {LOW_PEAK}"));
        }
        Expectation::Any => {}
    }
    problems
}

/// When throttles begin with the design that uses up its burst capacity, and at which capacity they end: the least and the
/// most of all runs.
pub(crate) fn burst_summary(runs: &[DesignRun]) -> String {
    let runs = runs.iter().filter(|run| run.design.expectation == Expectation::BurstUsedUp);
    let spans: Vec<_> = runs.filter_map(|run| run.throttled).collect();
    let range = |numbers: &mut dyn Iterator<Item = u64>| {
        let numbers: Vec<_> = numbers.collect();
        let (least, most) = (numbers.iter().min(), numbers.iter().max());
        least.zip(most).map_or("-".to_owned(), |(least, most)| format!("{least} to {most}"))
    };
    let begin = range(&mut spans.iter().map(|span| u64::from(span.first.saturating_sub(SPIKE))));
    let end = range(&mut spans.iter().map(|span| span.capacity_after));
    format!("with 70 %, throttles begin {begin} s after the jump and end at a capacity of {end}")
}
