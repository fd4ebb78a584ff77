//! What every function is around its handler: a process on Lambda that tells what it does.
//!
//! | module | holds |
//! |---|---|
//! | [`process`] | [`process::run`]: one invocation after the other, until Lambda ends the process |
//! | [`invocation`] | [`invocation::Invocation`]: an event, its time, and what is told of it |
//! | [`report!`] | what an invocation did, in numbers |
//! | [`telemetry`] | logs, metrics, and the line of a panic |
//!
//! Functions use the Lambda runtime through this crate alone, so that what holds for one of them holds for
//! all: a panic is that invocation's failure and the process lives, every line says which invocation it
//! is of, and when the process ends nothing waits to be written.

pub mod invocation;
pub mod process;
mod report;
pub mod telemetry;
