//! Calls that several callers of a process share.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// The last result of a call. One caller makes the call while the others wait for it.
#[derive(Debug)]
pub(crate) struct SharedCall<T> {
    /// With the number of the call.
    last: Mutex<Option<(u64, T)>>,
    begun: AtomicU64,
}

impl<T> Default for SharedCall<T> {
    fn default() -> Self {
        Self { last: Mutex::default(), begun: AtomicU64::default() }
    }
}

impl<T: Clone> SharedCall<T> {
    /// Returns the result of a call that began after this function was called. Shares another caller's result if `is_enough`
    /// accepts it, and makes the call otherwise. Errors are shared, too: callers that wait do not repeat a call that has just
    /// timed out.
    pub(crate) async fn get(&self, is_enough: impl Fn(&T) -> bool, call: impl Future<Output = T>) -> T {
        let first = self.begun.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if let Some((number, result)) = &*last
            && *number >= first
            && is_enough(result)
        {
            return result.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::AcqRel);
        let result = call.await;
        *last = Some((number, result.clone()));
        result
    }
}
