//! What a command prints: a table for people, or JSON for programs.

use std::{fmt::Display, ops::RangeBounds, time::Duration};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Output {
    pub text: String,
    pub json: Value,
}

impl Output {
    pub fn new(text: impl Display, json: Value) -> Self {
        Self { text: text.to_string(), json }
    }

    pub fn print(&self, as_json: bool) -> serde_json::Result<()> {
        if as_json {
            println!("{}", serde_json::to_string_pretty(&self.json)?);
        } else {
            println!("{}", self.text);
        }
        Ok(())
    }
}

/// A table with these columns. Some of them are numbers.
pub fn table<T: ToString>(
    columns: impl IntoIterator<Item = T>,
    rows: Vec<Vec<String>>,
    numbers: impl RangeBounds<usize>,
) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(columns.into_iter().map(|column| column.to_string()).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row);
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(place, _)| numbers.contains(place)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Thousandths of a token as tokens, like `12.5`.
pub fn tokens(millitokens: i64) -> String {
    let sign = if millitokens < 0 { "-" } else { "" };
    let (whole, thousandths) = (millitokens.unsigned_abs() / 1000, millitokens.unsigned_abs() % 1000);
    let digits = format!("{sign}{whole}.{thousandths:03}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A duration in at most two units, rounded up to whole seconds, like `1 h 5 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    let parts = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let mut rest = seconds;
    let mut shown = Vec::new();
    for (length, unit) in parts {
        if rest >= length && shown.len() < 2 {
            shown.push(format!("{} {unit}", rest / length));
            rest %= length;
        }
    }
    if shown.is_empty() { "now".to_owned() } else { shown.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        for (millitokens, expect) in [(0, "0"), (1, "0.001"), (12_500, "12.5"), (-500, "-0.5"), (60_000, "60")] {
            assert_eq!(tokens(millitokens), expect);
        }
        for (millis, expect) in
            [(0, "now"), (1, "1 s"), (59_001, "1 min"), (3_900_000, "1 h 5 min"), (90_061_000, "1 d 1 h")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), expect);
        }
    }
}
