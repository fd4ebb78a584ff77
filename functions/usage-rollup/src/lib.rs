//! `usage-rollup`: the bucket table's stream becomes hourly, daily and monthly usage snapshots, right
//! to the last token however often and in whatever parts a batch is delivered.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`handler`] | decode, park, fold, post, answer |
//! | `refusal` | what goes to the dead-letter queue because the table refused it |
//! | [`report`] | what an invocation did, in numbers |
//! | [`metrics`] | those numbers as CloudWatch metrics |

pub mod config;
pub mod handler;
pub mod metrics;
mod refusal;
pub mod report;
