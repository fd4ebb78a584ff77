//! `token-sweeper`: deletes a token when its cluster, step or job has ended, and not before.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with |
//! | `removal` | deletes the tokens of resources that have ended |
//! | [`decision`] | one event: read, then decided on |
//! | [`reconcile`] | all tokens, page by page: deletes those whose event was lost |
//! | [`handler`] | the story of one invocation, and its answer |
//! | [`report`] | what an invocation did, in numbers |

use std::{num::NonZeroUsize, time::Duration};

use tidegate_aws::{emr::Clusters, processors::Processors, tokens::Tokens};

use self::config::Config;

pub mod config;
pub mod decision;
pub mod event;
pub mod handler;
pub mod reconcile;
mod removal;
pub mod report;

/// The function: what it reads and deletes, and when.
#[derive(Debug)]
pub struct TokenSweeper {
    pub tokens: Tokens,
    /// Tells which clusters have ended, if the configuration allows asking.
    clusters: Option<Clusters>,
    /// Which events are ends.
    processors: Processors,
    /// How long after a resource's end its token may still be written.
    grace: Duration,
    /// Whether nothing is deleted.
    dry_run: bool,
    /// How many resources are dealt with at the same time.
    concurrency: NonZeroUsize,
}

impl TokenSweeper {
    /// Creates the function as it is configured. It asks `clusters` only if the configuration says so.
    pub fn new(config: Config, tokens: Tokens, clusters: Clusters) -> Self {
        let Config { processors, grace, reconcile_emr, dry_run, concurrency, .. } = config;
        let clusters = reconcile_emr.then_some(clusters);
        Self { tokens, clusters, processors, grace, dry_run, concurrency }
    }
}
