//! Usage by snapshot: as clients were granted it, and as the table holds it.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::{Client, types::AttributeValue};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName {
    /// Who consumed.
    pub entity: String,
    pub resource: String,
    /// `hourly`, `daily` or `monthly`.
    pub window: String,
    /// The period's start, like `2026-01-01T14:00:00Z`.
    pub start: String,
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records with consumption.
    pub events: u64,
    /// Whole tokens by limit. No entry and zero are the same.
    pub tokens: BTreeMap<String, i128>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals(BTreeMap<SnapshotName, Usage>);

impl UsageTotals {
    /// Adds to a limit of a snapshot.
    pub fn add_tokens(&mut self, snapshot: &SnapshotName, limit: &str, tokens: i128) {
        *self.usage(snapshot).tokens.entry(limit.to_owned()).or_default() += tokens;
    }

    /// Adds one event to a snapshot.
    pub fn add_event(&mut self, snapshot: &SnapshotName) {
        self.usage(snapshot).events += 1;
    }

    fn usage(&mut self, snapshot: &SnapshotName) -> &mut Usage {
        self.0.entry(snapshot.clone()).or_default()
    }

    /// The snapshots and what they hold.
    pub fn iter(&self) -> impl Iterator<Item = (&SnapshotName, &Usage)> {
        self.0.iter()
    }

    /// One line for each snapshot that differs from the one in `truth`.
    pub fn differences(&self, truth: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(truth.0.keys()).collect();
        let nothing = Usage::default();
        names
            .into_iter()
            .filter_map(|name| {
                let (found, expected) = (self.0.get(name).unwrap_or(&nothing), truth.0.get(name).unwrap_or(&nothing));
                let SnapshotName { entity, resource, window, start } = name;
                (!found.equals(expected)).then(|| {
                    format!(
                        "{entity} {resource} {window} {start}: the snapshot holds {found:?}, the truth is {expected:?}"
                    )
                })
            })
            .collect()
    }

    /// Reads every usage snapshot of a table by the rules of the clients' readers: each numeric
    /// attribute but `total_events` and `ttl` is a limit's counter, and an integer.
    pub async fn read(client: &Client, table: &str) -> anyhow::Result<Self> {
        let mut totals = Self::default();
        let mut pages = client
            .scan()
            .table_name(table)
            .consistent_read(true)
            .filter_expression("begins_with(SK, :usage)")
            .expression_attribute_values(":usage", AttributeValue::S("#USAGE#".to_owned()))
            .into_paginator()
            .items()
            .send();
        while let Some(item) = pages.next().await {
            totals.read_item(&item?)?;
        }
        Ok(totals)
    }

    fn read_item(&mut self, item: &HashMap<String, AttributeValue>) -> anyhow::Result<()> {
        let text = |name: &str| match item.get(name) {
            Some(AttributeValue::S(text)) if !text.is_empty() => Ok(text.clone()),
            other => Err(anyhow::anyhow!("attribute {name} of a snapshot is {other:?}")),
        };
        let snapshot = SnapshotName {
            entity: text("entity_id")?,
            resource: text("resource")?,
            window: text("window")?,
            start: text("window_start")?,
        };
        ensure!(!self.0.contains_key(&snapshot), "two items for {snapshot:?}");
        for (name, value) in item {
            let AttributeValue::N(number) = value else { continue };
            let number: i128 = number.parse().with_context(|| format!("{name} of {snapshot:?} is {number}"))?;
            match name.as_str() {
                "ttl" => {}
                "total_events" => self.usage(&snapshot).events = u64::try_from(number)?,
                limit => self.add_tokens(&snapshot, limit, number),
            }
        }
        Ok(())
    }
}

impl Usage {
    fn equals(&self, other: &Self) -> bool {
        let counted = |usage: &Self| -> BTreeMap<String, i128> {
            usage
                .tokens
                .iter()
                .filter(|(_, tokens)| **tokens != 0)
                .map(|(limit, tokens)| (limit.clone(), *tokens))
                .collect()
        };
        self.events == other.events && counted(self) == counted(other)
    }
}

#[cfg(test)]
mod tests;
