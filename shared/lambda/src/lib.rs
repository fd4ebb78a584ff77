//! What surrounds every function's handler: a process on Lambda, its logs and its metrics.
//!
//! | module | holds |
//! |---|---|
//! | [`process`] | [`process::run`]: one [`process::Invocation`] after the other, until Lambda ends the process |
//! | [`telemetry`] | logs, metrics, the line of a panic; [`report!`] declares what an invocation counts |
//!
//! Functions use the Lambda runtime only through this crate, so that the same rules hold for all of them: a panic fails
//! its invocation and the process lives, every line names its invocation, and when the process ends nothing waits to be
//! written.

pub mod process;
pub mod telemetry;
