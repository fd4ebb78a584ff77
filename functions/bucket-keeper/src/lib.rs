//! `bucket-keeper`: refills token buckets, so that clients' speculative writes succeed, doubles the shards of hot ones,
//! and creates and repairs shards. It keeps no state between invocations.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`handler`] | the function; a batch: decode, park, fold, keep each bucket, answer |
//! | `invocation` | one invocation as Lambda makes it |
//! | `shards` | the shards of one bucket: completed, doubled under pressure |
//! | [`repair`] | the sharded buckets, one after the other |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod event;
pub mod handler;
mod invocation;
pub mod repair;
pub mod report;
mod shards;
