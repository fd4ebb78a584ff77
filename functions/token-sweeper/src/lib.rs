//! `token-sweeper`: a token goes when its cluster, step or job has ended, and not before.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`decision`] | what is decided on one event, and why |
//! | [`handler`] | the function; events: read, sweep each resource once, decide, answer |
//! | [`reconcile`] | all tokens, page by page: what no event told of |
//! | `invocation` | one invocation as Lambda makes it |
//! | [`report`] | what an invocation did, in numbers |

pub mod config;
pub mod decision;
pub mod event;
pub mod handler;
mod invocation;
pub mod reconcile;
pub mod report;
