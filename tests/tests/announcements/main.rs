//! Announcements of work, by the client of `capacity-coordinator`, on an embedded Lambda.

mod answers;
mod cancellation;
mod failures;
mod function;
mod waiting;
