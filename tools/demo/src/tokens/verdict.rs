//! What the comparison has shown, for a person to read.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::{Measured, Outcome, client::capacity};
use crate::sparkline::sparkline;

/// The tables of a run: the two sides, and what the sweeper did.
pub fn table(outcome: &Outcome) -> String {
    let mut sides = Table::new();
    sides.load_style(UTF8_FULL_CONDENSED).set_header(["", "with", "without"]);
    let mut row = |name: &str, tell: fn(&Measured) -> usize| {
        sides.add_row([name, &tell(&outcome.with).to_string(), &tell(&outcome.without).to_string()]);
    };
    row("reservations", |of| of.reserved);
    row("of these, abandoned", |of| of.abandoned);
    row("reservations refused, the limit being reached", |of| of.refused);
    row("tokens created", |of| of.created);
    row("tokens that count in the end", |of| of.live);
    row("of these, of resources that run", |of| of.running);
    row("tokens leaked", |of| of.leaked.len());
    row("live ones taken", |of| of.taken.len());

    let mut facts = Table::new();
    facts.load_style(UTF8_FULL_CONDENSED);
    let Measured { lost, strays, tally, .. } = &outcome.with;
    let mut fact = |name: String, count: usize| {
        facts.add_row([name, count.to_string()]);
    };
    fact("events sent, repeated ones and strays included".to_owned(), usize::try_from(tally.sent).unwrap_or_default());
    fact("ends whose event was lost".to_owned(), *lost);
    for (decision, count) in &tally.done {
        fact(format!("event done with: {decision}"), *count);
    }
    fact(format!("event parked, of {strays} strays"), tally.parked.len());
    for (reason, count) in &tally.again {
        fact(format!("delivered again: {reason}"), *count);
    }
    fact("tokens deleted by event".to_owned(), tally.report.deleted);
    fact("tokens deleted by reconcile".to_owned(), tally.reconciled.deleted);
    fact("found by reconcile: expired".to_owned(), tally.reconciled.expired);
    fact("found by reconcile: EMR says ended".to_owned(), tally.reconciled.forgotten);
    for (fault, count) in &tally.faults {
        fact(format!("fault: {fault}"), usize::try_from(*count).unwrap_or_default());
    }
    for (table, columns) in [(&mut sides, 1..3), (&mut facts, 1..2)] {
        for column in columns {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    format!("{sides}\n{facts}")
}

/// Free capacity over time, as lines of blocks.
pub fn lines(outcome: &Outcome) -> String {
    let top = i64::try_from(capacity()).unwrap_or(i64::MAX);
    let line = |name: &str, side: &Measured| format!("  {name:<8}│{}│", sparkline(&side.free, top));
    let title = format!("free tokens over time (the full block is {top})");
    [title, line("with", &outcome.with), line("without", &outcome.without)].join("\n")
}

pub fn line(outcome: &Outcome) -> String {
    match outcome.problems().len() {
        0 => format!("SWEPT: {} tokens created, none leaked, none taken while it was live", outcome.with.created),
        problems => format!("NOT SWEPT: {problems} of the sweeper's promises"),
    }
}
