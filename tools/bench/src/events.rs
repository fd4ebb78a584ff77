//! The events of the measured invocations: a hot bucket's stream records, messages of ended clusters, or a file.

use std::{fmt, fs, path::Path};

use anyhow::Context as _;
use axum::body::Bytes;
use serde_json::{Value, json};
use tidegate_domain::time::EpochMillis;

use crate::hot_bucket::HotBucket;

/// A source of events. Clones give the same events.
#[derive(Clone, Debug)]
pub(crate) enum Events {
    /// Batches of one bucket's records, each batch later in the stream than the one before.
    Generated(HotBucket),
    /// Batches of messages, each about the end of another cluster.
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
    pub(crate) fn generated(records: u32) -> anyhow::Result<Self> {
        Ok(Self::Generated(HotBucket::new(records, tidegate_aws::clock::now()?)?))
    }

    /// Batches of `records` records each, of a bucket that has run dry.
    pub(crate) fn dry(records: u32) -> anyhow::Result<Self> {
        Ok(Self::Generated(HotBucket::new(records, tidegate_aws::clock::now()?)?.dry()))
    }

    /// Batches of `records` messages each; whether the clusters have tokens.
    pub(crate) fn ends(records: u32, tracked: bool) -> anyhow::Result<Self> {
        Ok(Self::Ends(Ends::new(records, tracked, tidegate_aws::clock::now()?)?))
    }

    /// An event from a file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let event = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let value: Value = serde_json::from_slice(&event).with_context(|| format!("{} is not JSON", file.display()))?;
        let records = value.get("Records").and_then(Value::as_array).map(Vec::len);
        Ok(Self::Same { event: event.into(), records })
    }

    pub(crate) fn next(&mut self) -> anyhow::Result<Bytes> {
        match self {
            Self::Generated(bucket) => Ok(bucket.next_batch(tidegate_aws::clock::now()?)?.into()),
            Self::Ends(ends) => Ok(ends.next_batch().into()),
            Self::Same { event, .. } => Ok(event.clone()),
        }
    }

    /// What an event is: its records and its size.
    pub(crate) fn description(&self) -> anyhow::Result<String> {
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

/// The prefix of the ids of clusters without a token.
const UNTRACKED: &str = "j-UNTRACKED";
/// How long ago the clusters ended, in seconds: longer than the sweeper waits for a token.
const AGO: i64 = 3_600;

/// Messages of a queue, each with an EventBridge event that another EMR cluster has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    records: u32,
    tracked: bool,
    sent: u64,
    time: String,
}

/// The id of a cluster with a token or without.
pub(crate) fn cluster_id(tracked: bool, number: u64) -> String {
    let prefix = if tracked { "j-" } else { UNTRACKED };
    format!("{prefix}{number:013}")
}

/// Returns whether the resource has a token.
pub(crate) fn has_token(id: &str) -> bool {
    !id.starts_with(UNTRACKED)
}

impl Ends {
    /// Batches of `records` messages each; whether the clusters have tokens.
    pub(crate) fn new(records: u32, tracked: bool, now: EpochMillis) -> anyhow::Result<Self> {
        let time = jiff::Timestamp::from_second(now.get() / 1000 - AGO).context("the time of the ends")?;
        Ok(Self { records, tracked, sent: 0, time: time.to_string() })
    }

    pub(crate) fn next_batch(&mut self) -> Vec<u8> {
        let records: Vec<_> = (0..self.records).map(|_| self.message()).collect();
        json!({"Records": records}).to_string().into_bytes()
    }

    fn message(&mut self) -> Value {
        self.sent += 1;
        let (number, cluster) = (self.sent, cluster_id(self.tracked, self.sent));
        let event = json!({
            "version": "0",
            "id": format!("00000000-0000-4000-8000-{number:012}"),
            "detail-type": "EMR Cluster State Change",
            "source": "aws.emr",
            "account": "123456789012",
            "time": self.time,
            "region": "us-east-1",
            "resources": [],
            "detail": {
                "severity": "INFO",
                "stateChangeReason": r#"{"code":"USER_REQUEST","message":"Terminated by user request"}"#,
                "name": "nightly",
                "clusterId": cluster,
                "state": "TERMINATED",
                "message": format!("Amazon EMR cluster {cluster} (nightly) has terminated with a reason of USER_REQUEST."),
            },
        });
        json!({
            "messageId": format!("00000000-0000-4000-9000-{number:012}"),
            "receiptHandle": format!("AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a{number}"),
            "body": event.to_string(),
            "attributes": {"ApproximateReceiveCount": "1", "SenderId": "AIDAIENQZJOLO23YVJ4VO"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:ended",
            "awsRegion": "us-east-1",
        })
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = if self.tracked { "a token each" } else { "no tokens" };
        write!(f, "{} messages of clusters with {tokens}", self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_about_another_cluster() {
        for tracked in [true, false] {
            let mut ends = Ends::new(2, tracked, EpochMillis::new(1_767_225_600_000).unwrap()).unwrap();
            let mut clusters = Vec::new();
            for _ in 0..2 {
                let batch: Value = serde_json::from_slice(&ends.next_batch()).unwrap();
                for message in batch["Records"].as_array().unwrap() {
                    let event: Value = serde_json::from_str(message["body"].as_str().unwrap()).unwrap();
                    assert_eq!(event["time"], "2025-12-31T23:00:00Z");
                    clusters.push(event["detail"]["clusterId"].as_str().unwrap().to_owned());
                }
            }
            let expect: Vec<_> = (1..=4).map(|number| cluster_id(tracked, number)).collect();
            assert_eq!(clusters, expect);
            assert!(clusters.iter().all(|cluster| has_token(cluster) == tracked));
        }
    }
}
