//! The fleet's total against the cap, over time.

use crate::fleet::course::Second;

use super::Run;
use crate::sparkline::sparkline;

/// The most columns of a drawing.
const WIDTH: usize = 60;
const ROWS_TO_CAP: i64 = 2;
/// ...and the most of all: up to four times the cap.
const ROWS: i64 = 8;
/// Units per row of the drawing. The drawing rounds numbers to whole units.
const ROW: i64 = 1_000;
/// Smaller values are not drawn; even the thinnest block would exaggerate them.
const LEAST: i64 = ROW / 16;

/// Draws a run: the mean of each few seconds, in rows of half the cap. What is above the line of the cap is overshoot.
pub(super) fn draw(run: &Run) -> String {
    let part = run.course.seconds.len().div_ceil(WIDTH).max(1);
    let columns: Vec<_> = run.course.seconds.chunks(part).map(|seconds| height(run, seconds)).collect();
    let highest = columns.iter().max().copied().unwrap_or(0);
    let rows = (highest - LEAST + ROW).div_euclid(ROW).clamp(ROWS_TO_CAP + 1, ROWS);
    let mut lines = Vec::new();
    for row in (0..rows).rev() {
        let blocks: Vec<_> =
            columns.iter().map(|column| column - row * ROW).map(|part| if part < LEAST { 0 } else { part }).collect();
        let label = if row + 1 == ROWS_TO_CAP { "cap ┤" } else { "    │" };
        lines.push(format!("  {label}{}│", sparkline(&blocks, ROW)));
    }
    lines.push(format!("  0 s └{}┘ {} s", axis(run, part, columns.len()), run.scenario.length));
    lines.join("\n")
}

/// The axis, with a mark where the event is, and where the fleet can begin to settle.
fn axis(run: &Run, part: usize, columns: usize) -> String {
    let marks = [run.scenario.event, run.scenario.settles_from].map(|second| second as usize / part);
    (0..columns).map(|column| if marks.contains(&column) { '┴' } else { '─' }).collect()
}

fn height(run: &Run, seconds: &[Second]) -> i64 {
    let (count, sum) = seconds.iter().fold((0.0, 0.0), |(count, sum), second| (count + 1.0, sum + second.total()));
    // A row is half the cap.
    whole(sum / count / run.scenario.rule.cap() * 2.0 * 1_000.0)
}

#[expect(clippy::cast_possible_truncation, reason = "a cast saturates, and a drawing ends at four times the cap")]
fn whole(height: f64) -> i64 {
    height.round() as i64
}
