//! The report of a comparison, for a person to read.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::{
    Comparison,
    figures::{Figures, percent_above},
    phases::{IDLE, RAMP, STEADY},
};
use crate::sparkline::sparkline;

/// The table: a row for each figure of each phase, a column for each run.
pub fn table(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(["phase", "", "without", "one process", "two processes"]);
    for ((without, one), two) in comparison.without.iter().zip(&comparison.one).zip(&comparison.two) {
        let mut row = |name: &str, figure: &dyn Fn(&Figures) -> String| {
            table.add_row([without.phase, name, &figure(without), &figure(one), &figure(two)]);
        };
        row("acquires, admitted by the first write", &|of| format!("{}, {}", of.acquires, of.first));
        row("slow paths", &|of| of.slow_paths.to_string());
        row("rejected, by one exact bucket", &|of| format!("{}, {}", of.rejected, of.exactly_rejected));
        row("write units of clients, keeper", &|of| format!("{}, {}", of.clients.write, of.keeper.write));
        row("read units of clients, keeper", &|of| {
            format!("{}, {}", halves(of.clients.half_read), halves(of.keeper.half_read))
        });
        row("cost compared with no keeper", &|of| format!("{:+.2} %", percent_above(of.price(), without.price())));
        row("tokens over-admitted", &|of| of.over_admitted.to_string());
        row("refills, doublings, splits", &|of| {
            format!("{}, {}, {}", of.report.refilled, of.report.doubled, of.report.split)
        });
        row("shards at the end, created by clients", &|of| format!("{} of {}, {}", of.existing, of.shards, of.created));
    }
    for column in 2..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn halves(halves: u64) -> String {
    let half = if halves.is_multiple_of(2) { "" } else { ".5" };
    format!("{}{half}", halves / 2)
}

/// Some series as lines of blocks.
pub fn lines<'c>(comparison: &'c Comparison) -> String {
    let runs = [("without", &comparison.without), ("one process", &comparison.one), ("two processes", &comparison.two)];
    let mut lines = Vec::new();
    let mut draw = |title: &str, phase: &str, series: fn(&Figures) -> &[i64]| {
        let of = |run: &'c [Figures]| run.iter().find(|figures| figures.phase == phase).map_or(&[][..], series);
        let top = runs.iter().flat_map(|(_, run)| of(run)).max().copied().unwrap_or(1);
        lines.push(format!("{title} ({phase}; the full block is {top})"));
        lines.extend(runs.map(|(name, run)| format!("  {name:<14}│{}│", sparkline(of(run), top))));
    };
    draw("stored tokens by the second", STEADY, |of| &of.stored);
    draw("shards by the second", RAMP, |of| &of.shards_by_second);
    draw("tokens of the drained shard, and a minute later", IDLE, |of| &of.drained);
    lines.join("\n")
}

/// The result in one line.
pub fn summary(comparison: &Comparison) -> String {
    match comparison.problems().len() {
        0 => "MET: no over-admitted tokens; where clients admit no more than the limit, no more slow paths and at most 0.5 % more cost; the same with one process and with two".to_owned(),
        problems => format!("NOT MET: {problems} of the keeper's requirements"),
    }
}
