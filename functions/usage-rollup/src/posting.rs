//! Posts the usage in some changes: folds it by snapshot, writes each snapshot, and parks the records of postings that
//! the table will never accept.

use std::{collections::HashMap, num::NonZeroUsize};

use tidegate_aws::{
    batch::{FailedRecord, park_all},
    concurrent::concurrently,
    dead_letters::{DeadLetter, DeadLetterQueue},
    error::causes,
    snapshots::{self, PostError, Snapshots},
    stream::{StreamEvent, sequence_number},
};
use tidegate_domain::{
    bucket::BucketChange,
    sequence::SequenceNumber,
    usage::{self, Posting},
    window::Window,
};
use tokio::time::Instant;

use crate::{report::BatchResult, snapshot_write::write};

/// Posts changes of one event.
pub(crate) struct Poster<'p> {
    pub(crate) event: &'p StreamEvent,
    pub(crate) windows: &'p [Window],
    pub(crate) snapshots: &'p Snapshots,
    pub(crate) dead_letters: Option<&'p DeadLetterQueue>,
    pub(crate) concurrency: NonZeroUsize,
    /// What is not done by this time has failed.
    pub(crate) deadline: Instant,
}

/// Postings that a snapshot will never accept, and why.
struct Rejection<'a> {
    postings: Vec<Posting<'a>>,
    reason: String,
}

impl Poster<'_> {
    /// Posts the usage in some changes.
    pub(crate) async fn post(&self, changes: &[BucketChange<'_>]) -> BatchResult {
        let postings = usage::fold(changes, self.windows);
        let mut result = BatchResult::default();
        result.report.postings = postings.len();
        result.report.unused = changes.len() - counted_changes(&postings);
        let mut rejections = Vec::new();
        let write_one = |posting| async move { (posting, write(self.snapshots, posting, self.deadline).await) };
        for (posting, written) in concurrently(&postings, self.concurrency, write_one).await {
            let PostError { source, unposted } = match written {
                Ok(receipt) => {
                    result.report.count_posted(receipt);
                    continue;
                }
                Err(error) => error,
            };
            let (snapshot, reason) = (snapshots::describe(posting.snapshot()), causes(&source));
            if source.is_retryable() {
                result.report.failed += 1;
                tracing::warn!(snapshot, error = reason, "posting failed");
                result.failures.push(unposted.iter().flat_map(Posting::sequences).min());
            } else {
                result.report.refused += 1;
                tracing::error!(snapshot, error = reason, "posting refused");
                rejections.push(Rejection { postings: unposted, reason });
            }
        }
        let missing = self.missing_records(&rejections, result.failures.iter().flatten().min().copied());
        result += park_all(self.dead_letters, &missing, self.deadline, self.concurrency).await;
        result
    }

    /// Returns the records that are missing from their snapshots, once for each snapshot. Records from the first
    /// redelivered one on are left out: the next delivery tries them again.
    fn missing_records(
        &self,
        rejections: &[Rejection<'_>],
        redelivered_from: Option<SequenceNumber>,
    ) -> Vec<FailedRecord<'_>> {
        if rejections.is_empty() {
            return Vec::new();
        }
        let records = self.event.records.iter().map(|record| record.get());
        let records: HashMap<_, _> = records.filter_map(|record| Some((sequence_number(record)?, record))).collect();
        let mut missing_records = Vec::new();
        for Rejection { postings, reason } in rejections {
            for posting in postings {
                let snapshot = snapshots::describe(posting.snapshot());
                let not_redelivered =
                    posting.sequences().filter(|sequence| redelivered_from.is_none_or(|from| *sequence < from));
                let missing = not_redelivered.filter_map(|sequence| Some((sequence, *records.get(&sequence)?)));
                missing_records.extend(missing.map(|(sequence, record)| FailedRecord {
                    changes_before: 0,
                    sequence: Some(sequence),
                    dead_letter: DeadLetter { record, reason: reason.clone(), snapshot: Some(snapshot.clone()) },
                }));
            }
        }
        missing_records
    }
}

/// Returns how many changes the postings count: those of one window's postings, because every window has the same.
fn counted_changes(postings: &[Posting<'_>]) -> usize {
    let window = |posting: &Posting<'_>| posting.snapshot().period.window();
    let Some(first) = postings.first().map(window) else { return 0 };
    postings.iter().filter(|posting| window(posting) == first).map(|posting| posting.sequences().count()).sum()
}
