//! Writes one snapshot within its own time.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;
use tidegate_aws::{
    error::CallError,
    snapshots::{PostError, PostOutcome, Receipt, Snapshots},
};
use tidegate_domain::usage::Posting;
use tokio::time::{Instant, timeout_at};

/// The most time for one posting. A throttled partition must not delay other postings. A posting that times
/// out is delivered again.
const POSTING_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds a posting to its snapshot by the deadline. If our code panics, a retry would panic too, so the error is not
/// retryable.
pub(crate) async fn write<'a>(
    snapshots: &Snapshots,
    posting: &Posting<'a>,
    deadline: Instant,
) -> Result<Receipt, PostError<'a>> {
    let late = || Err(PostError { source: CallError::Deadline, unposted: vec![posting.clone()] });
    let now = Instant::now();
    if now >= deadline {
        // Starting thousands of calls would take longer than is left for the answer.
        return late();
    }
    let deadline = deadline.min(now + POSTING_TIMEOUT);
    match timeout_at(deadline, AssertUnwindSafe(snapshots.post(posting)).catch_unwind()).await {
        Ok(Ok(posted)) => posted,
        Ok(Err(_)) => after_panic(snapshots, posting, deadline).await,
        Err(_) => late(),
    }
}

/// Finds the part of the posting that the snapshot does not hold yet: its records must be parked.
async fn after_panic<'a>(
    snapshots: &Snapshots,
    posting: &Posting<'a>,
    deadline: Instant,
) -> Result<Receipt, PostError<'a>> {
    match timeout_at(deadline, AssertUnwindSafe(snapshots.missing(posting)).catch_unwind()).await {
        Ok(Ok(Ok(None))) => Ok(Receipt { outcome: PostOutcome::AlreadyPosted, writes: 0 }),
        Ok(Ok(Ok(Some(missing)))) => Err(PostError { source: CallError::Panicked, unposted: vec![missing] }),
        _ => Err(PostError { source: CallError::Unproven, unposted: vec![posting.clone()] }),
    }
}
