//! Where Tidegate meets AWS: bytes become values of `tidegate-domain`, and its plans become calls.
//!
//! | module | holds |
//! |---|---|
//! | [`schema`] | every key and attribute name of the bucket table and the token tables, every field of the worker-rate files |
//! | [`stream`] | a stream record becomes a bucket change, "not ours", or a permanent error |
//! | [`image`] | a bucket item as a whole becomes a state, or a reason to leave it to its clients |
//! | [`batch`] | a batch: decoded record by record, its poison parked, its failures answered |
//! | [`snapshots`] | postings become conditional writes of usage snapshots |
//! | [`redrive`] | what was parked or discarded is counted, once |
//! | [`acquires`] | writes of clients: they take tokens speculatively or with a refill, and give them back |
//! | [`bucket_item`] | a bucket item as clients see it and create it |
//! | [`buckets`] | refills, splits and alignments become conditional writes of bucket items |
//! | [`rates`] | workers' reports and their summary, in S3 |
//! | [`registry`] | which buckets are sharded, and how far the repair has come |
//! | [`event`] | events of EventBridge |
//! | [`pattern`] | EventBridge's event patterns |
//! | [`processors`] | which events tell that a resource has ended |
//! | [`tokens`] | tokens of running resources are found, and deleted on conditions |
//! | [`announcements`] | the coordinator's table: announcements, and the targets whose minimum they raise |
//! | [`scaling`], [`consumption`], [`table_capacity`] | scalable targets, what tables consume, and the capacity that they have |
//! | [`emr`] | whether EMR clusters have ended |
//! | [`dead_letters`] | records that cannot be processed are parked in a queue |
//! | [`invocation_record`] | what an event source mapping stores of a batch that it discards |
//! | [`configurations`] | the limits that clients configure |
//! | [`limits`] | the same, as operators write them, and the registry of what is configured |
//! | [`fanout`] | changed limits and switches reach the existing buckets |
//! | [`entities`] | entities, their parents and children |
//! | [`usage`] | usage snapshots, as operators read them |
//! | [`audit`] | what operators have changed |
//! | [`namespaces`] | the id of a namespace by its name |
//! | [`concurrent`] | calls for many items, some at a time, and calls within a deadline |
//! | [`settings`] | environment variables, checked |
//! | [`client`] | SDK clients with the retry policy of a function that has a deadline |
//! | [`slots`] | reservations of clients: slots of the table of non-fungible tokens |
//! | [`token_limits`] | the limits of the token tables |
//! | [`token_rows`] | rows of fungible tokens: conditional writes that take and refill |
//! | [`token_tables`] | the names of the token tables |
//! | [`table`] | creates the bucket table and the token tables, for the embedded services |
//! | [`clock`] | the time of day |
//! | [`error`] | what a failed call means: try again, or not |

#![cfg_attr(not(feature = "functions"), allow(dead_code, reason = "the functions use the rest"))]

pub mod acquires;
#[cfg(feature = "functions")]
pub mod announcements;
pub mod audit;
#[cfg(feature = "functions")]
pub mod batch;
pub mod bucket_item;
pub mod buckets;
#[cfg(feature = "functions")]
pub mod client;
pub mod clock;
pub mod concurrent;
pub mod configurations;
#[cfg(feature = "functions")]
pub mod consumption;
#[cfg(feature = "functions")]
pub mod dead_letters;
mod dynamodb;
#[cfg(feature = "functions")]
pub mod emr;
pub mod entities;
pub mod error;
#[cfg(feature = "functions")]
pub mod event;
mod expression;
pub mod fanout;
pub mod image;
#[cfg(feature = "functions")]
pub mod invocation_record;
pub mod limits;
pub mod namespaces;
#[cfg(feature = "functions")]
pub mod pattern;
#[cfg(feature = "functions")]
pub mod processors;
#[cfg(feature = "fleet")]
pub mod rates;
#[cfg(feature = "functions")]
pub mod redrive;
pub mod registry;
#[cfg(feature = "functions")]
pub mod scaling;
pub mod schema;
#[cfg(feature = "functions")]
pub mod settings;
pub mod slots;
pub mod snapshots;
#[cfg(feature = "functions")]
pub mod stream;
pub mod table;
#[cfg(feature = "functions")]
pub mod table_capacity;
pub mod token_limits;
pub mod token_rows;
pub mod token_tables;
#[cfg(feature = "functions")]
pub mod tokens;
mod transaction;
pub mod usage;
