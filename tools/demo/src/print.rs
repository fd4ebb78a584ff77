//! What the demonstrations print: progress bars, tables, lines of blocks, and the outcome.

use std::process::ExitCode;

use comfy_table::{CellAlignment, Row, Table, presets::UTF8_FULL_CONDENSED};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// What a demonstration has shown.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// One line for each requirement that is not met.
    pub(crate) problems: Vec<String>,
    /// The last line if all requirements are met.
    pub(crate) passed: String,
    /// The last line if there are problems.
    pub(crate) failed: String,
}

impl Outcome {
    pub(crate) fn line(&self) -> &str {
        if self.problems.is_empty() { &self.passed } else { &self.failed }
    }

    /// The exit code of the process: 0 if all requirements are met, otherwise 1.
    pub(crate) fn exit_code(&self) -> u8 {
        u8::from(!self.problems.is_empty())
    }

    /// Prints the first problems and the last line.
    pub(crate) fn print(&self) -> ExitCode {
        for problem in self.problems.iter().take(20) {
            eprintln!("{problem}");
        }
        println!("{}", self.line());
        ExitCode::from(self.exit_code())
    }
}

/// A table without a header if `header` is empty. The columns from `first_number` on are aligned to the right.
pub(crate) fn table<R: Into<Row>>(header: &[&str], first_number: usize, rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    if !header.is_empty() {
        table.set_header(header);
    }
    table.add_rows(rows);
    table.column_iter_mut().skip(first_number).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Progress bars, one below the other. They show nothing where there is no terminal.
pub(crate) struct Bars {
    all: MultiProgress,
    style: ProgressStyle,
}

impl Bars {
    /// Bars that count in this unit.
    pub(crate) fn new(unit: &str) -> anyhow::Result<Self> {
        let template = format!("{{prefix:<18}} {{bar:40}} {{pos:>9}} of {{len:<9}} {unit} {{per_sec}}");
        Ok(Self { all: MultiProgress::new(), style: ProgressStyle::with_template(&template)? })
    }

    pub(crate) fn add(&self, prefix: &'static str, length: u64) -> ProgressBar {
        self.all.add(ProgressBar::new(length).with_style(self.style.clone()).with_prefix(prefix))
    }
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const EIGHT: i64 = 8;

/// The most columns of a sparkline or a drawing.
pub(crate) const WIDTH: usize = 60;

/// Draws a series from 0 to `top` as a line of blocks. A long series is thinned out: the lowest number of each part is
/// drawn, so that a short shortage stays visible.
pub(crate) fn sparkline(series: &[i64], top: i64) -> String {
    let part = series.len().div_ceil(WIDTH).max(1);
    let lowest = series.chunks(part).filter_map(|part| part.iter().min());
    lowest.map(|value| if *value <= 0 { ' ' } else { block(*value, top) }).collect()
}

/// The block for a positive number, of which `top` is the full one.
pub(crate) fn block(value: i64, top: i64) -> char {
    let top = top.max(1);
    let place = value.min(top) * EIGHT / top;
    BLOCKS[usize::try_from(place).unwrap_or(0).min(BLOCKS.len() - 1)]
}

#[expect(clippy::cast_precision_loss, reason = "a person reads four digits of it")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_blank_and_the_top_is_full() {
        assert_eq!(sparkline(&[0, 1, 50, 100, 200, -3], 100), " ▁▅██ ");
        assert_eq!(sparkline(&[], 100), "");
        assert_eq!(sparkline(&[5], 0), "█");
    }

    #[test]
    fn a_long_series_shows_its_lowest_numbers() {
        let series: Vec<i64> = (0..180).map(|at| if at == 90 { 0 } else { 100 }).collect();
        let line = sparkline(&series, 100);
        assert_eq!(line.chars().count(), 60);
        assert_eq!(line.chars().position(|block| block == ' '), Some(30));
    }
}
