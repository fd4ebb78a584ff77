//! The throttle of the client crate, on the real SDK and an embedded table.

#![allow(clippy::float_cmp, reason = "capacity units are halves, which floats hold exactly")]

mod admissions;
mod cancellation;
mod failures;
mod limit;
mod operations;
mod runtimes;
