//! `usage-rollup`: turns the bucket table's stream into hourly, daily and monthly usage snapshots, exact however
//! often and in whatever parts a batch is delivered.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`handler`] | the function; the story of one invocation |
//! | `posting` | posts the usage in some changes, and parks the records of rejected postings |
//! | `snapshot_write` | writes one snapshot within its own time |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod handler;
mod posting;
pub mod report;
mod snapshot_write;
