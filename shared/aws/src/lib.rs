//! Where Tidegate meets AWS: bytes become values of `tidegate-domain`, and its plans become calls.
//!
//! | module | holds |
//! |---|---|
//! | [`schema`] | every key and attribute name of the bucket table |
//! | [`stream`] | a stream record becomes a bucket change, "not ours", or a permanent error |
//! | [`image`] | a bucket item as a whole becomes a state, or a reason why it is none |
//! | [`batch`] | a batch, decoded record by record |
//! | [`parking`] | what cannot be processed is parked, and what failed is answered |
//! | [`snapshots`] | postings become conditional writes of usage snapshots |
//! | [`buckets`] | refills, splits and alignments become conditional writes of bucket items |
//! | [`registry`] | which buckets are sharded, and how far the repair has come |
//! | [`pattern`] | EventBridge's event patterns |
//! | [`dead_letters`] | records that cannot be processed are parked in a queue |
//! | [`concurrent`] | calls for many items, some at a time |
//! | [`settings`] | environment variables, checked |
//! | [`client`] | SDK clients with the retry policy of a stream consumer |
//! | [`table`] | makes the bucket table, for the embedded services |
//! | [`telemetry`] | logs and metrics |
//! | [`clock`] | the time of day |
//! | [`error`] | what a failed call means: try again, or not |

pub mod batch;
pub mod buckets;
pub mod client;
pub mod clock;
pub mod concurrent;
pub mod dead_letters;
pub mod error;
mod expression;
pub mod image;
pub mod parking;
pub mod pattern;
pub mod registry;
pub mod schema;
pub mod settings;
pub mod snapshots;
pub mod stream;
pub mod table;
pub mod telemetry;
mod transaction;
