//! What was parked or discarded is counted by a redrive, exactly once.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod batches;
mod calls;
mod letters;
mod scene;
