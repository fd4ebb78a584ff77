//! `usage-rollup`: turns the bucket table's stream into hourly, daily and monthly usage snapshots, exact however
//! often and in whatever parts a batch is delivered.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`handler`] | the story of one batch |
//! | `invocation` | one invocation as Lambda makes it |
//! | `posting` | the postings of a batch, each within its own time |
//! | `refusal` | the records of postings that the table refused |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod handler;
mod invocation;
mod posting;
mod refusal;
pub mod report;
