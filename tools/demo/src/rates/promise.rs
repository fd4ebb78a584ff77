//! What the aggregator promises of each summary, checked apart from its own code.

use crate::fleet::course::Pass;

use super::Run;

/// Up to this age a report counts, and up to this far ahead, in milliseconds.
const CUTOFF: i64 = 15_000;

/// One line for each summary that is not the exact sum of the reports that count.
pub(super) fn problems(run: &Run) -> Vec<String> {
    let (name, weather) = (run.scenario.name, run.scenario.weather.name);
    let wrong = run.course.passes.iter().filter_map(|pass| {
        let (active, sum) = counted(pass);
        let told = (pass.tally.active, pass.tally.read().millionths());
        (told != (active, sum)).then(|| {
            format!(
                "{name}, {weather} weather: at {}, {told:?} workers and millionths instead of {:?}",
                pass.at,
                (active, sum)
            )
        })
    });
    wrong.collect()
}

/// The reports that count, and their sum in millionths of a capacity unit a second.
fn counted(pass: &Pass) -> (usize, u128) {
    let fresh = pass.reports.iter().filter(|report| (pass.at.get() - report.at.get()).abs() <= CUTOFF);
    fresh.fold((0, 0), |(active, sum), report| (active + 1, sum + millionths(report.rate)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is neither negative nor that large"
)]
fn millionths(rate: f64) -> u128 {
    (rate * 1e6).round() as u128
}
