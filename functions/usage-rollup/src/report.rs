//! What one invocation did, in numbers.

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_aws::{
    batch::Batch,
    parking::Parked,
    snapshots::{Outcome, Receipt},
};
use tidegate_domain::sequence::SequenceNumber;

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 5] = ["Records", "Posted", "Parked", "Failed", "Poison"];

tidegate_lambda::report! {
    /// The counts of one invocation. Unless the stream is misconfigured, every record is in exactly one of `not_ours`,
    /// `changes` and `poison`, and every posting in exactly one of `posted`, `remainders`, `already_posted`, `refused` and `failed`.
    pub struct Report {
        /// Records delivered.
        records,
        /// Records of items that are no buckets: they cost no further work.
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
        /// Sums for a snapshot that were to be written. A snapshot may have two: from before and after poison.
        postings,
        /// Postings that were written whole.
        posted,
        /// Postings that had been written in part before.
        remainders,
        /// Postings that had been written before.
        already_posted,
        /// Postings that the table will never take.
        refused,
        /// Postings that failed, and are delivered again.
        failed,
        /// Conditional writes made for the postings that succeeded.
        writes,
    }
}

impl Report {
    pub(crate) fn count_batch(&mut self, batch: &Batch<'_>) {
        self.not_ours = batch.not_ours;
        self.changes = batch.changes.len();
        self.poison = batch.poison.len();
    }

    /// Counts what was parked; the sequence numbers of what was not.
    pub(crate) fn count_parked(&mut self, parked: &Parked<'_, '_>) -> Vec<Option<SequenceNumber>> {
        self.parked += parked.parked;
        self.unparked += parked.unparked.len();
        parked.unparked.iter().map(|record| record.sequence).collect()
    }

    /// Counts a posting that succeeded.
    pub(crate) fn count(&mut self, receipt: Receipt) {
        self.writes += receipt.writes as usize;
        match receipt.outcome {
            Outcome::Posted => self.posted += 1,
            Outcome::RemainderPosted => self.remainders += 1,
            Outcome::AlreadyPosted => self.already_posted += 1,
        }
    }
}
