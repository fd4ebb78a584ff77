//! `bucket-keeper`: keeps token buckets warm, so that clients' speculative writes succeed, doubles the
//! shards of hot ones, creates and repairs shards, and never makes a token from nowhere.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`handler`] | the function; a batch: decode, park, fold, keep each bucket, answer |
//! | `invocation` | one invocation as Lambda makes it |
//! | `shards` | the shards of one bucket: doubled, split until complete |
//! | [`repair`] | the sharded buckets, one after the other |
//! | [`memory`] | what a process remembers, and may forget |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod event;
pub mod handler;
mod invocation;
pub mod memory;
pub mod repair;
pub mod report;
mod shards;
