//! What the comparison has shown, for a person to read.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::{
    Outcome, idle_share,
    measured::Measured,
    phases::{BURST, IDLE, RAMP, STEADY},
};
use crate::sparkline::sparkline;

/// The table of a run: a row for each number of each phase, with the keeper and without it.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(["phase", "", "with", "without"]);
    for (with, without) in outcome.with.iter().zip(&outcome.without) {
        let mut row = |name: &str, tell: fn(&Measured) -> String| {
            table.add_row([with.phase, name, &tell(with), &tell(without)]);
        };
        row("admitted by the first write, of what should be", |of| format!("{:.2} %", of.speculative_percent()));
        row("admitted, of all acquires", |of| format!("{} of {}", of.speculative + of.slow, of.acquires));
        row("write units per 1,000 acquires", |of| format!("{:.0}", of.units_per_thousand()));
        row("of these, the keeper's", |of| format!("{} of {}", of.keeper_units, of.units()));
        row("refills, doublings, splits", |of| {
            format!("{}, {}, {}", of.report.refilled, of.report.doubled, of.report.split)
        });
        row("shards in the end, and how many are there", |of| format!("{}, {}", of.shards, of.existing));
        row("tokens admitted too many", |of| of.over_admitted().to_string());
    }
    for column in 2..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Some of the phases second by second, as lines of blocks.
#[must_use]
pub fn lines(outcome: &Outcome) -> String {
    let mut lines = Vec::new();
    let mut draw = |title: &str, phase: &str, top: i64, series: fn(&Measured) -> &[i64]| {
        lines.push(format!("{title} ({phase}; the full block is {top})"));
        for (name, side) in [("with", &outcome.with), ("without", &outcome.without)] {
            let series = side.iter().find(|measured| measured.phase == phase).map_or(&[][..], series);
            lines.push(format!("  {name:<8}│{}│", sparkline(series, top)));
        }
    };
    draw("tokens that are stored, by the second", STEADY, capacity(outcome, STEADY), |of| &of.stored);
    for phase in [STEADY, BURST, RAMP] {
        draw("acquires admitted by their first write, per mille, by the second", phase, 1000, |of| &of.shares);
    }
    let most = outcome.without.iter().chain(&outcome.with).flat_map(|measured| &measured.shards_by_second).max();
    draw("shards, by the second", RAMP, most.copied().unwrap_or(1), |of| &of.shards_by_second);
    draw("tokens of the drained shard, twice a minute", IDLE, idle_share(), |of| &of.drained);
    lines.join("\n")
}

/// The verdict in one line.
#[must_use]
pub fn line(outcome: &Outcome) -> String {
    match outcome.problems().len() {
        0 => "KEPT: at a steady load more first writes succeed, at no more write units; the ramp gets its shards; a dry shard fills; no token is admitted too many".to_owned(),
        problems => format!("NOT KEPT: {problems} of the keeper's promises"),
    }
}

fn capacity(outcome: &Outcome, phase: &str) -> i64 {
    outcome.with.iter().find(|measured| measured.phase == phase).map_or(1, |measured| measured.capacity)
}
