//! Calls for many items, some of them at the same time, and calls within a deadline.

use std::num::NonZeroUsize;

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use tokio::time::{Instant, timeout_at};

pub use crate::dynamodb::Backoff;
use crate::error::{CallError, StoreError};

/// Runs `call` for each item, `limit` calls at a time, and returns their outputs in the order in which the calls end. A
/// call starts only when it is its turn.
///
/// This is not an `async fn`: a future that holds a generic closure is not known to be [`Send`].
pub fn concurrently<'a, I, F>(
    items: I,
    limit: NonZeroUsize,
    call: impl FnMut(I::Item) -> F + Send + 'a,
) -> BoxFuture<'a, Vec<F::Output>>
where
    I: IntoIterator<IntoIter: Send + 'a>,
    F: Future<Output: Send> + Send + 'a,
{
    stream::iter(items.into_iter().map(call)).buffer_unordered(limit.get()).collect().boxed()
}

/// Makes a call. Fails with [`CallError::Deadline`] if it is not done by `deadline`.
pub async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, CallError> {
    timeout_at(deadline, call).await.map_err(|_| CallError::Deadline).and_then(|done| Ok(done?))
}
