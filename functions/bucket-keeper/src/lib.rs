//! `bucket-keeper`: refills token buckets, so that clients' speculative writes succeed, doubles the shards of hot ones,
//! and creates and repairs shards. It keeps no state between invocations.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`handler`] | the story of one invocation; a batch: decode, park, fold, keep each bucket, answer |
//! | `shards` | the shards of one bucket: refilled, completed, doubled under pressure |
//! | [`repair`] | the sharded buckets, one after the other |
//! | [`report`] | what an invocation did, in numbers |

use std::num::NonZeroUsize;

use tidegate_aws::{
    buckets::Buckets,
    client::{DynamoDb, Sqs},
    dead_letters::DeadLetterQueue,
    registry::Registry,
};
use tidegate_domain::pressure;

use self::config::Config;

pub mod config;
pub mod event;
pub mod handler;
pub mod repair;
pub mod report;
mod shards;

/// The function: what it writes to, and its policy. It has no state of its own: what it does follows from the
/// images, the batch, the time and the policy, so any process may handle any batch.
#[derive(Debug)]
pub struct BucketKeeper {
    pub buckets: Buckets,
    /// The sharded buckets.
    pub registry: Registry,
    /// The queue for records that cannot be processed.
    pub dead_letters: Option<DeadLetterQueue>,
    /// When shards are doubled.
    pub pressure: pressure::Policy,
    /// How many buckets are kept at the same time.
    pub concurrency: NonZeroUsize,
    /// Whether the table belongs to Tidegate's stack.
    pub own_table: bool,
}

impl BucketKeeper {
    /// Creates the function as it is configured.
    pub fn new(config: Config, dynamodb: DynamoDb, sqs: Sqs) -> Self {
        let Config { table, pressure, own_table, dead_letter_queue, concurrency } = config;
        Self {
            buckets: Buckets::new(dynamodb.clone(), &table),
            registry: Registry::new(dynamodb, table),
            dead_letters: dead_letter_queue.map(|url| DeadLetterQueue::new(sqs, url, env!("CARGO_PKG_NAME"))),
            pressure,
            concurrency,
            own_table,
        }
    }
}
