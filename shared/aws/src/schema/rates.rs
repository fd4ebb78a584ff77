//! The worker-rate files, JSON objects in S3: their fields, and how their keys are made up. Their client is Bulk
//! Executor's `DistributedDynamoDBMonitorWorker`.
//!
//! | object | fields |
//! |---|---|
//! | `{prefix}worker-{worker_id}.json`, a report | [`WORKER_ID`], [`TIMESTAMP`], [`READ_RATE`], [`WRITE_RATE`] |
//! | `{prefix}summary.json`, the summary | [`TIMESTAMP`], `AGGREGATED_READ_RATE` to `AGGREGATION_TIME_UTC`; ours from `STALE_WORKERS` on |
//!
//! A prefix ends in [`SEPARATOR`].

/// Who reports. It is not looked at.
pub const WORKER_ID: &str = "worker_id";
/// When it was written, in seconds since the epoch, a float.
pub const TIMESTAMP: &str = "timestamp";
/// Read capacity units a second, a float.
pub const READ_RATE: &str = "read_rate";
/// Write capacity units a second, a float.
pub const WRITE_RATE: &str = "write_rate";

/// What the fleet reads.
pub(crate) const AGGREGATED_READ_RATE: &str = "aggregated_read_rate";
pub(crate) const AGGREGATED_WRITE_RATE: &str = "aggregated_write_rate";
/// How many workers were summed up.
pub(crate) const ACTIVE_WORKERS: &str = "active_workers";
/// When, for a person to read.
pub(crate) const AGGREGATION_TIME_UTC: &str = "aggregation_time_utc";
/// Ours: how many workers have not reported lately.
pub(crate) const STALE_WORKERS: &str = "stale_workers";
/// Ours: how many workers' reports are invalid.
pub(crate) const REJECTED_WORKERS: &str = "rejected_workers";
/// Ours: the time between two summaries.
pub const INTERVAL_SECONDS: &str = "interval_seconds";
/// Ours: the number of the summary, one more than the number of the previous summary.
pub const SEQUENCE: &str = "sequence";

/// The summary's name under a prefix, if nothing else is said.
pub const SUMMARY: &str = "summary.json";
/// What ends a prefix.
pub const SEPARATOR: &str = "/";

/// The key of a worker's report.
pub fn worker_key(prefix: &str, worker: &str) -> String {
    format!("{prefix}worker-{worker}.json")
}
