//! A redrive counts what was parked or discarded, exactly once.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod batches;
mod calls;
mod parked;
mod scene;
