//! Where Tidegate meets AWS: bytes become values of `tidegate-domain`, and its plans become calls.
//!
//! | module | holds |
//! |---|---|
//! | [`schema`] | every key and attribute name of the bucket table |
//! | [`stream`] | a stream record becomes a bucket change, "not ours", or a permanent error |
//! | [`snapshots`] | postings become conditional writes of usage snapshots |
//! | [`dead_letters`] | records that cannot be processed are parked in a queue |
//! | [`client`] | SDK clients with the retry policy of a stream consumer |
//! | [`table`] | makes the bucket table, for the embedded services |
//! | [`telemetry`] | logs and metrics |
//! | [`clock`] | the time of day |
//! | [`error`] | what a failed call means: try again, or not |

pub mod client;
pub mod clock;
pub mod dead_letters;
pub mod error;
pub mod schema;
pub mod snapshots;
pub mod stream;
pub mod table;
pub mod telemetry;
