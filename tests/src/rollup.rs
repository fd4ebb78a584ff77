//! `usage-rollup` between an embedded table and an embedded queue.

use std::sync::Arc;

use tidegate_aws::stream::StreamEvent;
use tidegate_domain::window::Window;
use tidegate_sandbox::{
    functions::usage_rollup,
    mapping::StreamRecord,
    services::Services,
    usage_totals::{SnapshotName, UsageTotals},
};
use usage_rollup::{UsageRollup, handler::Handled};

use crate::prelude::*;

/// What the scenarios of `usage-rollup` use.
pub mod prelude {
    pub use tidegate_sandbox::records::{
        BUCKET, CREATED, STREAM, acquire, acquire_of, consumed, dead_letter, discarded_batch, poisoned, record,
        sequence,
    };

    pub use super::{RollupScene, captured_records, captured_truth};
    pub use crate::prelude::*;
}

/// `usage-rollup` on embedded services of its own.
#[derive(Debug)]
pub struct RollupScene {
    /// The table and the queue, undisturbed.
    pub services: Services,
    /// The function's connection to the table.
    pub http: FaultyHttp,
    pub function: Arc<UsageRollup>,
}

impl RollupScene {
    /// The function with all three windows and a dead-letter queue, undisturbed.
    pub async fn new() -> anyhow::Result<Self> {
        Self::with_faults(FaultRates::default(), 0).await
    }

    /// The same; its calls of the table meet faults at these rates.
    pub async fn with_faults(rates: FaultRates, seed: u64) -> anyhow::Result<Self> {
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
        self.function.handle(event, in_time()).await
    }

    /// The snapshots, as the clients' readers read them.
    pub async fn usage(&self) -> anyhow::Result<UsageTotals> {
        UsageTotals::read(&self.services.dynamodb, &self.services.table).await
    }

    /// The tokens and the events of each of the three snapshots, which must be equal.
    pub async fn counted(&self) -> anyhow::Result<(i128, u64)> {
        let totals = self.usage().await?;
        let mut counted: Vec<_> = totals.iter().map(|(_, usage)| (usage.tokens["rpm"], usage.events)).collect();
        ensure!(counted.len() == 3, "{totals:?}");
        counted.dedup();
        ensure!(counted.len() == 1, "{totals:?}");
        Ok(counted[0])
    }
}

/// The records of a real client, zae-limiter 0.17.0, in three hours over the turn of a year.
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

/// What that client was granted, by snapshot: 242 of them. The file has only tokens. The events are counted here, one for
/// each record in which a limit's net consumption changed.
pub fn captured_truth() -> anyhow::Result<UsageTotals> {
    let truth = std::fs::read_to_string(root().join("tests/fixtures/zae-limiter-0.17/truth.json"))?;
    let truth: Value = serde_json::from_str(&truth)?;
    let mut usage = UsageTotals::default();
    for (name, limits) in truth["usage"].as_object().context("usage is no object")? {
        let [entity, resource, window, start] = name.split('|').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{name} is no snapshot");
        };
        let [entity, resource, window, start] = [entity, resource, window, start].map(str::to_owned);
        let snapshot = SnapshotName { entity, resource, window, start };
        for (limit, tokens) in limits.as_object().context("limits are no object")? {
            usage.add_tokens(&snapshot, limit, tokens.as_i64().context("tokens are no integer")?.into());
        }
    }
    for record in captured_records()? {
        count_event(&serde_json::from_str(&record.json)?, &mut usage)?;
    }
    Ok(usage)
}

fn count_event(record: &Value, usage: &mut UsageTotals) -> anyhow::Result<()> {
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
        usage.add_event(&SnapshotName {
            entity: text("entity_id")?,
            resource: text("resource")?,
            window: window.to_string(),
            start: window.containing(EpochMillis::new(created * 1000)?).to_string(),
        });
    }
    Ok(())
}
