//! Where the measured invocations' events come from.

use std::{fs, path::Path};

use anyhow::Context;
use axum::body::Bytes;
use serde_json::Value;

use crate::{ends::Ends, hot_bucket::HotBucket};

/// A source of events. Clones give the same events.
#[derive(Clone, Debug)]
pub enum Events {
    /// Batches of one bucket's records, each batch later in the stream than the one before.
    Generated(HotBucket),
    /// Batches of messages that tell of the ends of clusters, each of its own.
    Ends(Ends),
    /// The same bytes every time.
    Same {
        event: Bytes,
        /// How many records it has; `None` if it is not a batch.
        records: Option<usize>,
    },
}

impl Events {
    /// Batches of `records` records each.
    pub fn generated(records: u32) -> anyhow::Result<Self> {
        Ok(Self::Generated(HotBucket::new(records, tidegate_aws::clock::now()?)?))
    }

    /// Batches of `records` records each, of a bucket that has run dry.
    pub fn dry(records: u32) -> anyhow::Result<Self> {
        Ok(Self::Generated(HotBucket::new(records, tidegate_aws::clock::now()?)?.dry()))
    }

    /// Batches of `records` messages each; whether the clusters have tokens.
    pub fn ends(records: u32, tracked: bool) -> anyhow::Result<Self> {
        Ok(Self::Ends(Ends::new(records, tracked, tidegate_aws::clock::now()?)?))
    }

    /// An event from a file.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let event = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let value: Value = serde_json::from_slice(&event).with_context(|| format!("{} is not JSON", file.display()))?;
        let records = value.get("Records").and_then(Value::as_array).map(Vec::len);
        Ok(Self::Same { event: event.into(), records })
    }

    pub fn next(&mut self) -> anyhow::Result<Bytes> {
        match self {
            Self::Generated(bucket) => Ok(bucket.next_batch(tidegate_aws::clock::now()?)?.into()),
            Self::Ends(ends) => Ok(ends.next_batch().into()),
            Self::Same { event, .. } => Ok(event.clone()),
        }
    }

    /// What an event is: its records and its size.
    pub fn description(&self) -> anyhow::Result<String> {
        let bytes = self.clone().next()?.len();
        let size = match bytes {
            0..1_000 => format!("{bytes} bytes"),
            _ => format!("{}.{} KB", bytes / 1_000, bytes % 1_000 / 100),
        };
        Ok(match self {
            Self::Generated(bucket) => format!("{} records of one bucket, {size}", bucket.records()),
            Self::Ends(ends) => format!("{ends}, {size}"),
            Self::Same { records: Some(records), .. } => format!("{records} records from a file, {size}"),
            Self::Same { records: None, .. } => format!("an event from a file, {size}"),
        })
    }
}
