//! What was measured, for a person to read.

use std::{collections::BTreeSet, time::Duration};

use comfy_table::{CellAlignment, Row, Table, presets::UTF8_FULL_CONDENSED};

use crate::measure::{Measurement, Plan, Spread, Subject};

/// What is about to be measured: the event, the programs, and how often.
pub(crate) fn headline(plan: &Plan, subjects: &[Subject]) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for Subject { name, program, events, warm_up, invocations } in subjects {
        if lines.is_empty() {
            let Plan { starts, rounds } = plan;
            lines.push(format!("Event: {}. Starts: {starts}. Rounds: {rounds}.", events.description()?));
        }
        lines.push(format!("{name}: {program} ({invocations} invocations after {warm_up} to warm up)"));
    }
    Ok(lines.join("\n"))
}

/// A table whose columns from `first_number` on are aligned to the right.
pub(crate) fn table<R: Into<Row>>(
    header: impl Into<Row>,
    first_number: usize,
    rows: impl IntoIterator<Item = R>,
) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header).add_rows(rows);
    table.column_iter_mut().skip(first_number).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// A column for each subject, and one that compares the second with the first.
pub(crate) fn comparison(subjects: &[Subject], measurements: &[Measurement]) -> Table {
    let mut header = vec![String::new()];
    header.extend(subjects.iter().map(|subject| subject.name.to_owned()));
    if let [first, second] = subjects {
        header.push(format!("{} / {}", second.name, first.name));
    }
    let mut lines = Vec::new();
    for (name, quantity) in rows(measurements) {
        let values: Vec<_> = measurements.iter().map(quantity).collect();
        let mut row = vec![name];
        row.extend(values.iter().map(|(text, _)| text.clone()));
        if let [(_, first), (_, second)] = values[..] {
            row.push(ratio(second, first));
        }
        lines.push(row);
    }
    table(header, 1, lines)
}

/// A measurement's quantity: its text, and its amount in whatever unit.
type Quantity = Box<dyn Fn(&Measurement) -> (String, f64)>;

fn rows(measurements: &[Measurement]) -> Vec<(String, Quantity)> {
    let mut rows: Vec<(String, Quantity)> = vec![
        ("start, median (min to max)".to_owned(), Box::new(|m| spread(&m.start))),
        ("CPU per batch, mean".to_owned(), Box::new(|m| (duration(m.cpu), m.cpu.as_secs_f64()))),
        ("wall per batch, median (min to max)".to_owned(), Box::new(|m| spread(&m.wall))),
        ("peak memory".to_owned(), Box::new(|m| memory(m.peak_memory_kib))),
    ];
    let targets: BTreeSet<_> = measurements.iter().flat_map(|measurement| measurement.calls.keys().cloned()).collect();
    if targets.is_empty() {
        rows.push(("AWS calls per batch".to_owned(), Box::new(|_| ("0".to_owned(), 0.0))));
    }
    for target in targets {
        let name = format!("{target} per batch, mean");
        rows.push((
            name,
            Box::new(move |m| {
                let calls = m.calls.get(&target).copied().unwrap_or_default();
                (calls_text(calls), calls)
            }),
        ));
    }
    rows
}

fn spread(spread: &Spread) -> (String, f64) {
    let Spread { median, min, max } = *spread;
    let text = format!("{} ({} to {})", duration(median), duration(min), duration(max));
    (text, median.as_secs_f64())
}

pub(crate) fn memory(kib: u64) -> (String, f64) {
    // A u32 is enough for 4 TiB, and an f64 holds it exactly.
    let kib = f64::from(u32::try_from(kib).unwrap_or(u32::MAX));
    (format!("{:.1} MiB", kib / 1_024.0), kib)
}

fn calls_text(calls: f64) -> String {
    let text = format!("{calls:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// In milliseconds, to three digits or so.
fn duration(duration: Duration) -> String {
    format!("{} ms", three_digits(duration.as_secs_f64() * 1_000.0))
}

fn ratio(amount: f64, base: f64) -> String {
    if base > 0.0 { format!("{} x", three_digits(amount / base)) } else { "-".to_owned() }
}

fn three_digits(value: f64) -> String {
    match value {
        value if value < 1.0 => format!("{value:.3}"),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits() {
        for (micros, expected) in [(85, "0.085 ms"), (1_234, "1.23 ms"), (56_789, "56.8 ms"), (987_654, "988 ms")] {
            assert_eq!(duration(Duration::from_micros(micros)), expected);
        }
        assert_eq!(ratio(859.0, 1.0), "859 x");
        assert_eq!(ratio(1.0, 0.0), "-");
        assert_eq!(memory(18_637).0, "18.2 MiB");
        assert_eq!([calls_text(2.0), calls_text(2.013), calls_text(400.0)], ["2", "2.01", "400"]);
    }
}
