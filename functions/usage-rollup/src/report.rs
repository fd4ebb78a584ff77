//! What one invocation did, in numbers.

use tidegate_aws::snapshots::{Outcome, Receipt};

/// The counts of one invocation. Every record is in exactly one of `not_ours`, `changes` and `poison`,
/// and every posting in exactly one of `posted`, `remainders`, `already_posted`, `refused` and
/// `failed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records delivered.
    pub records: usize,
    /// Records of items that are no buckets: they cost no further work.
    pub not_ours: usize,
    /// Changes of buckets, with consumption or without.
    pub changes: usize,
    /// Records that cannot be decoded.
    pub poison: usize,
    /// Dead letters sent: poison, and records of refused postings.
    pub parked: usize,
    /// Dead letters that could not be sent.
    pub unparked: usize,
    /// Snapshots that the batch adds to.
    pub postings: usize,
    /// Postings that were written whole.
    pub posted: usize,
    /// Postings of which a part was in already.
    pub remainders: usize,
    /// Postings that were in already.
    pub already_posted: usize,
    /// Postings that the table will never take.
    pub refused: usize,
    /// Postings that did not succeed before the deadline.
    pub failed: usize,
    /// Conditional writes made for the postings that succeeded.
    pub writes: u32,
}

impl Report {
    /// Counts a posting that succeeded.
    pub(crate) fn count(&mut self, receipt: Receipt) {
        self.writes += receipt.writes;
        match receipt.outcome {
            Outcome::Posted => self.posted += 1,
            Outcome::RemainderPosted => self.remainders += 1,
            Outcome::AlreadyPosted => self.already_posted += 1,
        }
    }
}
