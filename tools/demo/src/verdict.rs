//! What a run has shown, for a person to read.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use tidegate_sandbox::{
    s3::{self, EmbeddedS3},
    services::Services,
    usage_totals::{SnapshotName, Usage, UsageTotals},
};

use crate::rollup::Outcome;

/// The table of a run: windows and tokens, what it cost, and what it survived.
pub fn table(outcome: &Outcome) -> String {
    let mut windows = Table::new();
    windows.load_style(UTF8_FULL_CONDENSED).set_header([
        "window",
        "snapshots",
        "tokens",
        "granted",
        "events",
        "off by",
    ]);
    for (window, sums) in by_window(&outcome.books, &outcome.ledger) {
        windows.add_row([
            window,
            sums.snapshots.to_string(),
            sums.tokens.to_string(),
            sums.granted.to_string(),
            sums.events.to_string(),
            (sums.tokens - sums.granted).to_string(),
        ]);
    }
    align_numbers(&mut windows, 1..6);

    let report = &outcome.report;
    let seconds = outcome.elapsed.as_secs_f64();
    let mut facts = Table::new();
    facts.load_style(UTF8_FULL_CONDENSED);
    for (name, value) in [
        ("stream records, those of the snapshots included", outcome.delivered.to_string()),
        ("records handled, redeliveries included", report.records.to_string()),
        ("invocations that answered", outcome.invocations.to_string()),
        ("records per second, clients included", format!("{:.0}", float(outcome.delivered) / seconds)),
        ("snapshot writes that reached the table", outcome.table_writes.to_string()),
        (
            "snapshot writes per client write",
            format!("{:.3}", float(outcome.table_writes) / float(outcome.client_writes.max(1))),
        ),
        ("postings found in already, whole or in part", (report.already_posted + report.remainders).to_string()),
        ("poison records parked, of those written", format!("{} of {}", outcome.poison.1, outcome.poison.0)),
    ] {
        facts.add_row([name, &value]);
    }
    for (fault, count) in &outcome.delivery_faults {
        facts.add_row([format!("fault: {fault}"), count.to_string()]);
    }
    for (fault, count) in outcome.call_faults.iter() {
        facts.add_row([format!("fault: {fault}"), count.to_string()]);
    }
    align_numbers(&mut facts, 1..2);
    format!("{windows}\n{facts}")
}

pub fn line(outcome: &Outcome) -> String {
    let problems = outcome.problems().len();
    let snapshots = outcome.ledger.iter().count();
    if snapshots == 0 && problems == 0 {
        "the clients wrote nothing, so there was nothing to compare".to_owned()
    } else if problems == 0 {
        format!("EXACT: all {snapshots} snapshots hold what the clients were granted, to the last token")
    } else {
        format!("WRONG: {problems} differences in {snapshots} snapshots")
    }
}

/// How to reach the services that were left open.
pub fn invitation(services: &Services, s3: &EmbeddedS3, prefix: &str) -> String {
    format!(
        "The services stay open until Ctrl-C. To run a function against them:\n\n  \
         export AWS_ENDPOINT_URL_DYNAMODB={} AWS_ENDPOINT_URL_SQS={}\n  \
         export AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test\n  \
         export TABLE_NAME={} DEAD_LETTER_QUEUE_URL={}\n  \
         export LIMITER_TABLES_BASE_NAME={}\n  \
         export AWS_ENDPOINT_URL_S3={} S3_FORCE_PATH_STYLE=true BUCKET={} PREFIX={prefix}",
        services.endpoint,
        services.queue.endpoint(),
        services.table,
        services.queue.url(),
        services.table,
        s3.endpoint(),
        s3::BUCKET,
    )
}

#[derive(Default)]
struct Sums {
    snapshots: usize,
    tokens: i128,
    granted: i128,
    events: u64,
}

fn by_window(books: &UsageTotals, ledger: &UsageTotals) -> BTreeMap<String, Sums> {
    fn tokens(usage: &Usage) -> i128 {
        usage.tokens.values().sum()
    }
    let mut windows: BTreeMap<String, Sums> = BTreeMap::new();
    for (SnapshotName { window, .. }, usage) in books.iter() {
        let sums = windows.entry(window.clone()).or_default();
        sums.snapshots += 1;
        sums.tokens += tokens(usage);
        sums.events += usage.events;
    }
    for (SnapshotName { window, .. }, usage) in ledger.iter() {
        windows.entry(window.clone()).or_default().granted += tokens(usage);
    }
    windows
}

fn align_numbers(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a person reads three digits of it")]
fn float(count: usize) -> f64 {
    count as f64
}
