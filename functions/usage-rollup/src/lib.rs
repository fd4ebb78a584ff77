//! `usage-rollup`: the bucket table's stream becomes hourly, daily and monthly usage snapshots, right
//! to the last token however often and in whatever parts a batch is delivered.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`handler`] | decode, park, fold, post, answer |
//! | `invocation` | one invocation as Lambda makes it |
//! | `refusal` | what goes to the dead-letter queue because the table refused it |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod handler;
mod invocation;
mod refusal;
pub mod report;
