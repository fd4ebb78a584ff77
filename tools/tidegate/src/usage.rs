//! `tidegate usage`: shows what was consumed.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate::{Limiter, UsageSnapshot, UsageSummary, Window};
use tidegate_domain::time::EpochMillis;

use crate::output::{Output, table};

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The entity; without it, all entities on --resource
    #[arg(required_unless_present = "resource")]
    entity: Option<String>,
    /// The resource
    #[arg(long, value_name = "NAME")]
    resource: Option<String>,
    /// hourly, daily or monthly, as far as usage-rollup writes it
    #[arg(long, default_value = "daily")]
    window: Window,
    /// Leaves out what begins before: a day like 2026-01-01, or a moment like 2026-01-01T14:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<SystemTime>,
    /// Leaves out what begins then or later
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<SystemTime>,
}

impl Options {
    pub async fn run(self, limiter: &Limiter) -> anyhow::Result<Output> {
        let mut usage = limiter.usage(self.window);
        if let Some(entity) = &self.entity {
            usage = usage.entity(entity);
        }
        if let Some(resource) = &self.resource {
            usage = usage.resource(resource);
        }
        if let Some(from) = self.from {
            usage = usage.from(from);
        }
        if let Some(to) = self.to {
            usage = usage.to(to);
        }
        let snapshots = usage.snapshots().await?;
        let summary = UsageSummary::of(&snapshots);
        let json = json!({
            "window": self.window.as_str(),
            "snapshots": snapshots.iter().map(json_of).collect::<Value>(),
            "total": {"events": summary.events, "tokens": summary.tokens, "overdrawn": summary.overdrawn},
        });
        if snapshots.is_empty() {
            return Ok(Output::new(format!("no {} usage is recorded", self.window), json));
        }
        Ok(Output::new(shown(&snapshots, &summary), json))
    }
}

fn shown(snapshots: &[UsageSnapshot], summary: &UsageSummary) -> String {
    let limits: BTreeSet<_> = summary.tokens.keys().collect();
    let columns = ["start", "entity", "resource", "events"].into_iter().map(str::to_owned);
    let columns = columns.chain(limits.iter().map(ToString::to_string));
    let cells = |events: i64, tokens: &std::collections::BTreeMap<String, i64>| -> Vec<String> {
        let counts = limits.iter().map(|limit| tokens.get(*limit).map_or_else(String::new, ToString::to_string));
        [events.to_string()].into_iter().chain(counts).collect()
    };
    let mut rows: Vec<Vec<String>> = snapshots
        .iter()
        .map(|of| {
            let names = [&of.start, &of.entity, &of.resource].map(Clone::clone);
            names.into_iter().chain(cells(of.events, &of.tokens)).collect()
        })
        .collect();
    let total = ["total", "", ""].map(str::to_owned);
    rows.push(total.into_iter().chain(cells(summary.events, &summary.tokens)).collect());
    let overdrawn: Vec<_> =
        summary.overdrawn.iter().map(|(limit, times)| format!("\nsoft limit {limit}: {times} overdrafts")).collect();
    format!("{}{}", table(columns, rows, 3..), overdrawn.concat())
}

fn json_of(snapshot: &UsageSnapshot) -> Value {
    let UsageSnapshot { entity, resource, start, events, tokens, overdrawn, .. } = snapshot;
    json!({
        "start": start, "entity": entity, "resource": resource, "events": events, "tokens": tokens,
        "overdrawn": overdrawn,
    })
}

/// Reads a day or a moment, in UTC.
fn moment(text: &str) -> anyhow::Result<SystemTime> {
    let moment = EpochMillis::parse(text).or_else(|| EpochMillis::parse(&format!("{text}T00:00:00Z")));
    let moment = moment
        .ok_or_else(|| anyhow!("{text:?} is neither a day like 2026-01-01 nor a moment like 2026-01-01T14:00:00Z"))?;
    Ok(UNIX_EPOCH + Duration::from_millis(moment.get().unsigned_abs()))
}
