//! What the simulation has shown, for a person to read.

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::{Outcome, Run, drawing};

/// What the columns of the table mean.
pub const LEGEND: &str = "\
to within 5 %: from when the fleet can begin to settle until its total is within 5 % of its aim, and stays so for 30 s;
    the aim is the cap, or what the fleet could use, if that is less
overshoot: what was consumed above the cap since the event, in capacity units
fairness: Jain's index of what workers got in the last minute, each of its max-min fair share; 1 is fair
utilisation: what was consumed since the event, of the aim; what lies above it does not count
fair weather: calls take 20 to 80 ms; foul: up to 2 s, one in ten fails, clocks are up to 2 s off,
    a worker dies every minute and its report stays, and five reports were left behind";

/// The drawings: the fleet's total against the cap over time, a drawing a run.
pub fn drawings(outcome: &Outcome) -> String {
    let drawn = |run: &Run| {
        format!(
            "{}, {} weather: {}\n{}",
            run.scenario.name,
            run.scenario.weather.name,
            run.scenario.summary,
            drawing::draw(run)
        )
    };
    outcome.runs.iter().map(drawn).collect::<Vec<_>>().join("\n")
}

/// The figures: a row for each run.
pub fn table(outcome: &Outcome) -> String {
    let mut table = Table::new();
    let header = ["scenario", "weather", "to within 5 %", "overshoot", "fairness", "utilisation"];
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for Run { scenario, figures, .. } in &outcome.runs {
        table.add_row([
            scenario.name,
            scenario.weather.name,
            &figures.settled_after.map_or("never".to_owned(), |seconds| format!("{seconds} s")),
            &format!("{:.0}", figures.overshoot),
            &format!("{:.3}", figures.fairness),
            &format!("{:.1} %", figures.utilisation * 100.0),
        ]);
    }
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The verdict in one line: on the aggregator, not on the rule.
pub fn line(outcome: &Outcome) -> String {
    let aggregations = outcome.aggregations();
    match outcome.problems().len() {
        0 => format!("EXACT: each of {aggregations} summaries is the sum of the reports that count"),
        problems => {
            format!("NOT EXACT: {problems} of {aggregations} summaries are not the sum of the reports that count")
        }
    }
}
