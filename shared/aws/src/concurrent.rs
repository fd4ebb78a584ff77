//! Calls for many items, some of them at the same time, and calls within a deadline.

use std::num::NonZeroUsize;

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

use crate::error::{CallError, StoreError};

/// Makes a call for each item, `concurrency` of them at a time; the outputs in the order in which the
/// calls end. `caller` is what every call needs, such as a client.
///
/// `call` is a function, not a closure, since a future that holds a generic closure is not known to be
/// [`Send`].
pub async fn for_each<'p, C: Copy, T, F: Future>(
    caller: C,
    items: &'p [T],
    call: fn(C, &'p T, Instant) -> F,
    deadline: Instant,
    concurrency: NonZeroUsize,
) -> Vec<F::Output> {
    let mut calls = FuturesUnordered::new();
    let mut outputs = Vec::with_capacity(items.len());
    for item in items {
        if calls.len() == concurrency.get() {
            outputs.extend(calls.next().await);
        }
        calls.push(call(caller, item, deadline));
    }
    while let Some(output) = calls.next().await {
        outputs.push(output);
    }
    outputs
}

/// Makes a call within the deadline.
pub async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, CallError> {
    timeout_at(deadline, call).await.map_err(|_| CallError::Deadline).and_then(|done| Ok(done?))
}
