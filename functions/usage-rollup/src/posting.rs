//! The postings of a batch: each is written within a time of its own.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
use tidegate_aws::{
    concurrent::for_each,
    error::{CallError, causes},
    snapshots::{self, Outcome, Receipt},
};
use tidegate_domain::{
    bucket::BucketChange,
    sequence::SequenceNumber,
    usage::{self, Posting},
};
use tokio::time::{Instant, timeout_at};

use crate::{handler::UsageRollup, refusal::Refusal, report::Report};

/// The most time for one posting. A throttled partition must not take the time of the others; its posting is
/// delivered again.
const POSTING_TIMEOUT: Duration = Duration::from_secs(5);

/// How the postings of some changes ended.
pub(crate) struct Posted<'a> {
    pub(crate) report: Report,
    /// Of each posting that is delivered again, the lowest sequence number.
    pub(crate) failures: Vec<Option<SequenceNumber>>,
    /// Postings that their snapshots will never take.
    pub(crate) refusals: Vec<Refusal<'a>>,
}

/// A posting that failed, wholly or in part.
struct NotPosted<'a> {
    error: CallError,
    unposted: Vec<Posting<'a>>,
}

impl UsageRollup {
    /// Posts the usage in some changes, some postings at the same time.
    pub(crate) async fn post_all<'a>(&self, changes: &[BucketChange<'a>], deadline: Instant) -> Posted<'a> {
        let postings = usage::fold(changes, &self.windows);
        let mut report =
            Report { postings: postings.len(), unused: changes.len() - used(&postings), ..Report::default() };
        let (mut failures, mut refusals) = (Vec::new(), Vec::new());
        for (posting, result) in for_each(self, &postings, Self::post_one, deadline, self.concurrency).await {
            let NotPosted { error, unposted } = match result {
                Ok(receipt) => {
                    report.count(receipt);
                    continue;
                }
                Err(not_posted) => not_posted,
            };
            let (snapshot, reason) = (snapshots::describe(posting.snapshot()), causes(&error));
            if error.is_retryable() {
                report.failed += 1;
                tracing::warn!(snapshot, error = reason, "posting failed");
                failures.push(unposted.iter().flat_map(Posting::sequences).min());
            } else {
                report.refused += 1;
                tracing::error!(snapshot, error = reason, "posting refused");
                refusals.push(Refusal { postings: unposted, reason });
            }
        }
        Posted { report, failures, refusals }
    }

    async fn post_one<'p, 'a>(
        &self,
        posting: &'p Posting<'a>,
        deadline: Instant,
    ) -> (&'p Posting<'a>, Result<Receipt, NotPosted<'a>>) {
        let now = Instant::now();
        if now >= deadline {
            // To begin thousands of calls would take longer than is left for the answer.
            return (posting, Err(NotPosted { error: CallError::Deadline, unposted: vec![posting.clone()] }));
        }
        let deadline = deadline.min(now + POSTING_TIMEOUT);
        let post = AssertUnwindSafe(self.snapshots.post(posting)).catch_unwind();
        let result = match timeout_at(deadline, post).await {
            Ok(Ok(Ok(receipt))) => Ok(receipt),
            Ok(Ok(Err(error))) => Err(NotPosted { error: error.source.into(), unposted: error.unposted }),
            Ok(Err(_)) => self.after_panic(posting, deadline).await,
            Err(_) => Err(NotPosted { error: CallError::Deadline, unposted: vec![posting.clone()] }),
        };
        (posting, result)
    }

    /// A posting that panicked will panic again, so its records must be parked: those that the snapshot does not hold.
    async fn after_panic<'a>(&self, posting: &Posting<'a>, deadline: Instant) -> Result<Receipt, NotPosted<'a>> {
        let missing = AssertUnwindSafe(self.snapshots.missing(posting)).catch_unwind();
        match timeout_at(deadline, missing).await {
            Ok(Ok(Ok(None))) => Ok(Receipt { outcome: Outcome::AlreadyPosted, writes: 0 }),
            Ok(Ok(Ok(Some(missing)))) => Err(NotPosted { error: CallError::Panicked, unposted: vec![missing] }),
            _ => Err(NotPosted { error: CallError::Unproven, unposted: vec![posting.clone()] }),
        }
    }
}

/// How many changes the postings count. Each has a part in one posting of every window.
fn used(postings: &[Posting<'_>]) -> usize {
    let window = |posting: &Posting<'_>| posting.snapshot().period.window();
    let Some(first) = postings.first().map(window) else { return 0 };
    postings.iter().filter(|posting| window(posting) == first).map(|posting| posting.sequences().count()).sum()
}
