//! The laws of Tidegate, as pure code: values in, decisions out.
//!
//! Nothing here reads a clock, an environment variable, a socket or a file. `now` is always an argument. `Cargo.toml`
//! proves it: the dependencies include no runtime, no SDK and no logging. The crate `tidegate-aws` turns bytes into these values and plans into calls.
//!
//! | module | holds |
//! |---|---|
//! | [`activity`] | [`activity::fold`]: turns a batch of changes into the demand on each bucket shard |
//! | [`admission`] | what a shard grants a request at a moment, and the write that takes it |
//! | [`bucket`] | names, shards, and [`bucket::BucketChange`]: the bucket change in one stream record |
//! | [`capacity`] | how work is announced to a table, and the minimum that auto scaling keeps meanwhile |
//! | [`configuration`] | which limits are configured for an entity on a resource |
//! | [`fungible`] | what a row of fungible tokens grants at a moment, and the write that takes it |
//! | [`lease`] | how the workers of a fleet share one cap, and what a worker may use at a moment |
//! | [`pressure`] | whether a bucket needs more shards, and whether they would help |
//! | [`rates`] | what a fleet of workers reads and writes together, from their fresh reports |
//! | [`redrive`] | whether to count a record that was parked or discarded |
//! | [`refill`] | what has accrued in a bucket, and whether a write of it pays |
//! | [`repair`] | aligns shards with shard 0, and moves tokens to a dry shard |
//! | [`reservation`] | which slots of a limit a client may take, beside clients that count tokens |
//! | [`sequence`] | [`sequence::Position`]: the order of a table's records, also across its streams |
//! | [`slot`] | [`slot::Slot`]: a token of a limit with one holder at most, and the writes to it |
//! | [`split`] | creates the missing shards of a bucket in one transaction |
//! | [`state`] | [`state::BucketState`]: a whole bucket item, and a shard's share of a limit |
//! | [`sweep`] | when to delete a resource's token, and on which condition |
//! | [`throttle`] | when each of many callers may use capacity units, so that all of them keep a limit |
//! | [`time`] | [`time::EpochMillis`]: a moment, in milliseconds |
//! | [`token_limits`] | what a file of limits changes in the token tables |
//! | [`tokens`] | [`tokens::Millitokens`] and whole [`tokens::Tokens`] |
//! | [`usage`] | [`usage::fold`]: turns a batch of changes into one [`usage::Posting`] for each snapshot |
//! | [`window`] | hourly, daily and monthly [`window::Period`]s, in UTC |
//!
//! # Example
//!
//! A bucket is created at 14:03 by an acquire of 2.5 tokens of `rpm`; a second one takes 1 more.
//! Both land in the hour's snapshot, in one posting: 3 whole tokens, 2 events.
//!
//! ```
//! use tidegate_domain::{
//!     bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, Entity, Limit, Namespace, Resource, Shard},
//!     sequence::{SequenceNumber, StreamLabel},
//!     time::EpochMillis,
//!     tokens::{Millitokens, Tokens},
//!     usage,
//!     window::Window,
//! };
//!
//! let rpm = |consumed| -> Result<Counters<'static>, Box<dyn std::error::Error>> {
//!     let counter = Counter { consumed: Millitokens::new(consumed), overdrawn: false };
//!     Ok([(Limit::new("rpm")?, counter)].into_iter().collect())
//! };
//! let bucket = BucketKey {
//!     namespace: Namespace::new("TQ5vSMvQTm4")?,
//!     entity: Entity::new("user-1")?,
//!     resource: Resource::new("api")?,
//!     shard: Shard::new(0),
//! };
//! let created = BucketChange {
//!     bucket: bucket.clone(),
//!     stream: StreamLabel::parse("2026-01-01T00:00:00.000")?,
//!     sequence: SequenceNumber::parse("100000000000000000001")?,
//!     created: EpochMillis::new(1_767_276_180_000)?,
//!     kind: ChangeKind::Created,
//!     old: Counters::default(),
//!     new: rpm(2_500)?,
//! };
//! let taken = BucketChange {
//!     sequence: SequenceNumber::parse("100000000000000000002")?,
//!     kind: ChangeKind::Updated,
//!     old: rpm(2_500)?,
//!     new: rpm(3_500)?,
//!     ..created.clone()
//! };
//!
//! let postings = usage::fold(&[created, taken], &[Window::Hourly]);
//! let tally = postings[0].tally();
//! assert_eq!(postings.len(), 1);
//! assert_eq!(postings[0].snapshot().period.to_string(), "2026-01-01T14:00:00Z");
//! assert_eq!(tally.events, 2);
//! assert_eq!(tally.tokens[&Limit::new("rpm")?], Tokens::new(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

pub mod activity;
pub mod admission;
pub mod bucket;
pub mod capacity;
pub mod configuration;
pub mod fungible;
pub mod lease;
pub mod pressure;
pub mod rates;
pub mod redrive;
pub mod refill;
pub mod repair;
pub mod reservation;
pub mod sequence;
pub mod slot;
pub mod split;
pub mod state;
pub mod sweep;
pub mod throttle;
pub mod time;
pub mod token_limits;
pub mod tokens;
pub mod usage;
pub mod window;
