//! What the scenarios share: a table, a queue, and `usage-rollup` between them; [`keeper`] has the same for
//! `bucket-keeper`, [`sweeper`] for `token-sweeper`, [`aggregator`] for `rate-aggregator`.

pub mod aggregator;
pub mod keeper;
pub mod observed;
pub mod poison;
pub mod python;
pub mod records;
pub mod sweeper;

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use serde_json::{Value, value::RawValue};
use tidegate_aws::stream::StreamEvent;
use tidegate_domain::{time::EpochMillis, window::Window};
use tidegate_sandbox::{
    faults::{FaultRates, FaultyHttp},
    functions::usage_rollup,
    mapping::StreamRecord,
    services::Services,
    usage_totals::{SnapshotName, UsageTotals},
};
use tokio::time::{Duration, Instant};
use usage_rollup::{UsageRollup, handler::Handled};

/// `usage-rollup` on embedded services of its own.
#[derive(Debug)]
pub struct Scene {
    /// The table and the queue, undisturbed.
    pub services: Services,
    /// The function's connection to the table.
    pub http: FaultyHttp,
    pub function: Arc<UsageRollup>,
}

impl Scene {
    /// The function with all three windows and a dead-letter queue; its calls of the table meet faults
    /// at these rates.
    pub async fn new(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
        let services = Services::embedded(None, "tidegate-test-buckets").await?;
        let http = FaultyHttp::new(rates, seed);
        let function = usage_rollup(&services, &http);
        Ok(Self { services, http, function })
    }

    /// The same with a change to the function.
    pub fn with(self, change: impl FnOnce(&mut UsageRollup)) -> Self {
        let mut function = UsageRollup::clone(&self.function);
        change(&mut function);
        Self { function: Arc::new(function), ..self }
    }

    /// One invocation with more time than it needs.
    pub async fn invoke(&self, event: &StreamEvent) -> Handled {
        self.function.handle(event, Instant::now() + Duration::from_mins(1)).await
    }

    /// The snapshots, as the clients' readers read them.
    pub async fn books(&self) -> anyhow::Result<UsageTotals> {
        UsageTotals::read(&self.services.dynamodb, &self.services.table).await
    }
}

/// The identifier that an invocation's answer names, if any.
pub fn failure(handled: &Handled) -> Option<String> {
    let failures = &handled.answer.as_ref().ok()?.batch_item_failures;
    failures.first().and_then(|failure| failure.item_identifier.clone())
}

/// An event of these records.
pub fn event<'a>(records: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<StreamEvent> {
    let records = records.into_iter().map(|record| RawValue::from_string(record.to_string()));
    Ok(StreamEvent { records: records.collect::<Result<_, _>>()? })
}

/// The project's root.
pub fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The stream that a real client, zae-limiter 0.17.0, caused in three hours over the turn of a year.
pub fn captured_records() -> anyhow::Result<Vec<StreamRecord>> {
    let lines = std::fs::read_to_string(root().join("tests/fixtures/zae-limiter-0.17/records.ndjson"))?;
    lines
        .lines()
        .map(|line| {
            let record: Value = serde_json::from_str(line)?;
            let sequence = record["dynamodb"]["SequenceNumber"].as_str().context("a record without sequence number")?;
            Ok(StreamRecord { sequence: sequence.to_owned(), json: line.into() })
        })
        .collect()
}

/// What that client was granted, by snapshot: 242 of them. The truth tells only tokens; the events are
/// counted here, one a record in which a limit's net consumption moved.
pub fn captured_truth() -> anyhow::Result<UsageTotals> {
    let truth = std::fs::read_to_string(root().join("tests/fixtures/zae-limiter-0.17/truth.json"))?;
    let truth: Value = serde_json::from_str(&truth)?;
    let mut books = UsageTotals::default();
    for (name, limits) in truth["usage"].as_object().context("usage is no object")? {
        let [entity, resource, window, start] = name.split('|').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{name} is no snapshot");
        };
        let [entity, resource, window, start] = [entity, resource, window, start].map(str::to_owned);
        let snapshot = SnapshotName { entity, resource, window, start };
        for (limit, tokens) in limits.as_object().context("limits are no object")? {
            books.add_tokens(&snapshot, limit, tokens.as_i64().context("tokens are no integer")?.into());
        }
    }
    for record in captured_records()? {
        count_event(&serde_json::from_str(&record.json)?, &mut books)?;
    }
    Ok(books)
}

fn count_event(record: &Value, books: &mut UsageTotals) -> anyhow::Result<()> {
    let change = &record["dynamodb"];
    let consumed = |limit: &str| {
        let of = |image: &str| change[image][format!("b_{limit}_tc")]["N"].as_str().unwrap_or("0").to_owned();
        of("NewImage") != of("OldImage")
    };
    if change["Keys"]["SK"]["S"] != "#STATE" || !(consumed("rpm") || consumed("tpm")) {
        return Ok(());
    }
    let text =
        |name: &str| change["NewImage"][name]["S"].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
    let created = change["ApproximateCreationDateTime"].as_i64().context("no creation time")?;
    for window in Window::ALL {
        books.add_event(&SnapshotName {
            entity: text("entity_id")?,
            resource: text("resource")?,
            window: window.to_string(),
            start: window.containing(EpochMillis::new(created * 1000)?).to_string(),
        });
    }
    Ok(())
}
