//! What one invocation did, in numbers.

use std::ops::AddAssign;

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_aws::{
    batch::{Batch, Parked},
    snapshots::{PostOutcome, Receipt},
    stream::StreamEvent,
};
use tidegate_domain::sequence::SequenceNumber;

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 5] = ["Records", "Posted", "Parked", "Failed", "Poison"];

tidegate_lambda::report! {
    /// The counts of one invocation. Unless the stream is misconfigured, every record is in exactly one of `not_ours`,
    /// `changes` and `poison`, and every posting in exactly one of `posted`, `remainders`, `already_posted`, `refused` and `failed`.
    pub struct RollupReport {
        /// Records delivered.
        records,
        /// Records of items that are not buckets: they cost no further work.
        not_ours,
        /// Changes of buckets, with consumption or without.
        changes,
        /// Records that cannot be decoded.
        poison,
        /// Dead letters sent: poison, and records of postings that were refused.
        parked,
        /// Dead letters that could not be sent.
        unparked,
        /// Changes behind a record that could not be parked or posted: they are delivered again with it.
        withheld,
        /// Changes that add to no snapshot: refills, removals, clones, records that the batch contains twice.
        unused,
        /// Sums to be written to a snapshot. A snapshot may have two: from before and after poison.
        postings,
        /// Postings that were written whole.
        posted,
        /// Postings that had been written in part before.
        remainders,
        /// Postings that had been written before.
        already_posted,
        /// Postings that the table will never accept.
        refused,
        /// Postings that failed, and are delivered again.
        failed,
        /// Conditional writes made for the postings that succeeded.
        writes,
    }
}

impl RollupReport {
    /// Counts a posting that succeeded.
    pub(crate) fn count_posted(&mut self, receipt: Receipt) {
        self.writes += receipt.writes as usize;
        match receipt.outcome {
            PostOutcome::Posted => self.posted += 1,
            PostOutcome::RemainderPosted => self.remainders += 1,
            PostOutcome::AlreadyPosted => self.already_posted += 1,
        }
    }
}

/// What was done with a batch so far: the counts, and the sequence numbers of failed records. Lambda retries from the
/// lowest. `None` stands for a failed record without a sequence number.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(crate) report: RollupReport,
    pub(crate) failures: Vec<Option<SequenceNumber>>,
}

impl BatchResult {
    /// The result of decoding a batch.
    pub(crate) fn of(event: &StreamEvent, batch: &Batch<'_>) -> Self {
        let report = RollupReport {
            records: event.records.len(),
            not_ours: batch.not_ours,
            changes: batch.changes.len(),
            poison: batch.poison.len(),
            ..RollupReport::default()
        };
        Self { report, failures: Vec::new() }
    }
}

impl AddAssign for BatchResult {
    fn add_assign(&mut self, other: Self) {
        self.report += &other.report;
        self.failures.extend(other.failures);
    }
}

impl AddAssign<Parked<'_, '_>> for BatchResult {
    fn add_assign(&mut self, Parked { parked, unparked }: Parked<'_, '_>) {
        self.report.parked += parked;
        self.report.unparked += unparked.len();
        self.failures.extend(unparked.iter().map(|record| record.sequence));
    }
}
