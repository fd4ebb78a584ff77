//! What one invocation did, in numbers.

use std::ops::AddAssign;

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_aws::snapshots::{Outcome, Receipt};

/// The counts of one invocation. Every record is in exactly one of `not_ours`, `changes` and `poison`,
/// and every posting in exactly one of `posted`, `remainders`, `already_posted`, `refused`,
/// `given_up` and `failed`.
#[metrics(rename_all = "PascalCase")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records delivered.
    #[metrics(unit = Count)]
    pub records: usize,
    /// Records of items that are no buckets: they cost no further work.
    #[metrics(unit = Count)]
    pub not_ours: usize,
    /// Changes of buckets, with consumption or without.
    #[metrics(unit = Count)]
    pub changes: usize,
    /// Records that cannot be decoded.
    #[metrics(unit = Count)]
    pub poison: usize,
    /// Dead letters sent: poison, and records of postings that were refused or given up.
    #[metrics(unit = Count)]
    pub parked: usize,
    /// Dead letters that could not be sent.
    #[metrics(unit = Count)]
    pub unparked: usize,
    /// Changes behind a record that could not be parked: they wait, and come again with it.
    #[metrics(unit = Count)]
    pub withheld: usize,
    /// Changes that add to no snapshot: refills, removals, clones, records that the batch has twice.
    #[metrics(unit = Count)]
    pub unused: usize,
    /// Snapshots that the batch adds to.
    #[metrics(unit = Count)]
    pub postings: usize,
    /// Postings that were written whole.
    #[metrics(unit = Count)]
    pub posted: usize,
    /// Postings of which a part was in already.
    #[metrics(unit = Count)]
    pub remainders: usize,
    /// Postings that were in already.
    #[metrics(unit = Count)]
    pub already_posted: usize,
    /// Postings that the table will never take.
    #[metrics(unit = Count)]
    pub refused: usize,
    /// Postings that did not succeed for so long that their records are parked.
    #[metrics(unit = Count)]
    pub given_up: usize,
    /// Postings with records so old that it is written down which were counted.
    #[metrics(unit = Count)]
    pub late: usize,
    /// Postings that did not succeed, and come again.
    #[metrics(unit = Count)]
    pub failed: usize,
    /// Conditional writes made for the postings that succeeded.
    #[metrics(unit = Count)]
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

impl AddAssign<&Self> for Report {
    fn add_assign(&mut self, other: &Self) {
        let Self {
            records,
            not_ours,
            changes,
            poison,
            parked,
            unparked,
            withheld,
            unused,
            postings,
            posted,
            remainders,
            already_posted,
            refused,
            given_up,
            late,
            failed,
            writes,
        } = other;
        self.records += records;
        self.not_ours += not_ours;
        self.changes += changes;
        self.poison += poison;
        self.parked += parked;
        self.unparked += unparked;
        self.withheld += withheld;
        self.unused += unused;
        self.postings += postings;
        self.posted += posted;
        self.remainders += remainders;
        self.already_posted += already_posted;
        self.refused += refused;
        self.given_up += given_up;
        self.late += late;
        self.failed += failed;
        self.writes += writes;
    }
}
