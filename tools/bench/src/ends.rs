//! Messages of a queue, each with an event of EventBridge that an EMR cluster has ended.

use std::fmt;

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate_domain::time::EpochMillis;

/// What the ids of clusters without a token begin with.
const UNTRACKED: &str = "j-UNTRACKED";
/// How long ago they ended, in seconds: too long for a token to be still on its way.
const AGO: i64 = 3_600;

/// Ends of clusters, no two of the same.
#[derive(Clone, Debug)]
pub struct Ends {
    records: u32,
    tracked: bool,
    told: u64,
    time: String,
}

/// The id of a cluster, which has a token or not.
pub fn id(tracked: bool, number: u64) -> String {
    let prefix = if tracked { "j-" } else { UNTRACKED };
    format!("{prefix}{number:013}")
}

/// Whether it is the id of a resource with a token.
pub fn has_token(id: &str) -> bool {
    !id.starts_with(UNTRACKED)
}

impl Ends {
    /// Batches of `records` messages each; whether the clusters have tokens.
    pub fn new(records: u32, tracked: bool, now: EpochMillis) -> anyhow::Result<Self> {
        let time = jiff::Timestamp::from_second(now.get() / 1000 - AGO).context("the time of the ends")?;
        Ok(Self { records, tracked, told: 0, time: time.to_string() })
    }

    pub fn next_batch(&mut self) -> Vec<u8> {
        let records: Vec<_> = (0..self.records).map(|_| self.message()).collect();
        json!({"Records": records}).to_string().into_bytes()
    }

    fn message(&mut self) -> Value {
        self.told += 1;
        let (number, cluster) = (self.told, id(self.tracked, self.told));
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
    fn each_message_tells_of_a_cluster_of_its_own() {
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
            let expect: Vec<_> = (1..=4).map(|number| id(tracked, number)).collect();
            assert_eq!(clusters, expect);
            assert!(clusters.iter().all(|cluster| has_token(cluster) == tracked));
        }
    }
}
