//! `usage-rollup`: turns the bucket table's stream into hourly, daily and monthly usage snapshots, exact however
//! often and in whatever parts a batch is delivered.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`handler`] | the story of one invocation |
//! | `posting` | posts the usage in some changes, and parks the records of rejected postings |
//! | `snapshot_write` | writes one snapshot within its own time |
//! | [`report`] | what an invocation did, in numbers |

use std::num::NonZeroUsize;

use tidegate_aws::{
    client::{DynamoDb, Sqs},
    dead_letters::DeadLetterQueue,
    snapshots::Snapshots,
};
use tidegate_domain::window::Window;

use self::config::Config;

pub mod config;
pub mod handler;
mod posting;
pub mod report;
mod snapshot_write;

/// The function: what it writes to, and how.
#[derive(Clone, Debug)]
pub struct UsageRollup {
    /// The kinds of snapshots that are kept.
    pub windows: Vec<Window>,
    pub snapshots: Snapshots,
    /// The queue for records that cannot be processed.
    pub dead_letters: Option<DeadLetterQueue>,
    /// The number of calls at the same time.
    pub concurrency: NonZeroUsize,
}

impl UsageRollup {
    /// Creates the function as it is configured.
    pub fn new(config: Config, dynamodb: DynamoDb, sqs: Sqs) -> Self {
        let Config { table, windows, retention_days, dead_letter_queue, concurrency } = config;
        Self {
            windows,
            snapshots: Snapshots::new(dynamodb, table, retention_days),
            dead_letters: dead_letter_queue.map(|url| DeadLetterQueue::new(sqs, url, env!("CARGO_PKG_NAME"))),
            concurrency,
        }
    }
}
