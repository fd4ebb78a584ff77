//! Draws a run around the spike, minute by minute.

use super::{
    simulation::{DesignRun, Minute},
    traffic::{MINUTE, SPIKE},
};
use crate::print::block;

/// The drawing begins so many minutes before the spike.
const BEFORE: usize = 5;
/// The height of a row, in write units a second.
const ROW: i64 = 5_000;
const ROWS: i64 = 6;
/// Throttled requests a second that fill a cell.
const FULL_THROTTLES: i64 = 10_000;
/// Smaller values are not drawn; even the thinnest block would exaggerate them.
const LEAST: i64 = ROW / 16;

/// Draws so many minutes: consumption within the capacity (blocks) and above it (shaded), the capacity (a line), and the
/// throttled requests.
pub(crate) fn draw(run: &DesignRun, minutes: usize) -> String {
    let first = (SPIKE / MINUTE) as usize - BEFORE;
    let columns: Vec<_> = run.minutes.iter().skip(first).take(minutes).map(Column::of).collect();
    let mut lines = vec![format!("{}: {}", run.design.name, run.design.summary)];
    for row in (0..ROWS).rev() {
        let cells: String = columns.iter().map(|column| column.cell(row * ROW)).collect();
        lines.push(format!("     {:>5} ┤{cells}│", (row + 1) * ROW));
    }
    // The axis has a mark at the spike.
    let axis: String = (0..columns.len()).map(|column| if column == BEFORE { '┴' } else { '─' }).collect();
    lines.push(format!("         0 └{axis}┘"));
    let throttles: String = columns.iter().map(|column| blank_or_block(column.throttled, FULL_THROTTLES)).collect();
    lines.push(format!(" throttles │{throttles}│"));
    lines.join("\n")
}

fn blank_or_block(value: i64, top: i64) -> char {
    if value <= 0 { ' ' } else { block(value, top) }
}

/// The means of a minute, per second.
#[derive(Clone, Copy, Debug)]
struct Column {
    consumed: i64,
    provided: i64,
    throttled: i64,
}

impl Column {
    fn of(minute: &Minute) -> Self {
        let mean = |sum: u64| i64::try_from(sum.div_ceil(MINUTE.into())).unwrap_or(i64::MAX);
        Self { consumed: mean(minute.consumed), provided: mean(minute.provided), throttled: mean(minute.throttled) }
    }

    /// The part of the column that is a row high, from `bottom` on.
    fn cell(self, bottom: i64) -> char {
        let (consumed, provided) = (self.consumed - bottom, self.provided - bottom);
        if consumed >= LEAST {
            let is_burst = self.consumed > self.provided && provided < ROW / 2;
            return if is_burst { '░' } else { block(consumed, ROW) };
        }
        // A line at the bottom, in the middle or at the top of the cell.
        match provided {
            0..ROW if provided < ROW / 3 => '_',
            0..ROW if provided < 2 * ROW / 3 => '─',
            0..ROW => '‾',
            _ => ' ',
        }
    }
}
