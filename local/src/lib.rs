//! All of Tidegate on embedded services, in one process: to see it work, to test it, to measure it.
//!
//! | module | holds |
//! |---|---|
//! | [`dynamodb`], [`queue`], [`emr`], [`s3`] | the embedded services |
//! | [`services`] | what a run needs: a table and a queue, embedded or elsewhere |
//! | [`faults`] | throttling, errors, broken connections and crashes under the SDK |
//! | [`mapping`] | the event source mapping, by AWS's rules |
//! | [`pump`] | delivery of a stream shard to the handler, with faults on purpose |
//! | [`stream`] | the table's stream in the words of Lambda |
//! | [`traffic`] | clients at work, and the ledger of what they were granted |
//! | `item` | bucket items as clients write and read them |
//! | [`books`] | usage by snapshot, read as the clients' readers read it, compared |
//! | [`rollup`] | the run: clients, pump, comparison |
//! | [`keeper`] | the same clients with the bucket keeper and without it, side by side |
//! | [`rates`] | workers and the rate aggregator, simulated: the fleet's total against its cap |
//! | [`tokens`] | clients that start resources, and the token sweeper that frees their tokens, or does not |
//! | [`progress`], [`verdict`], `sparkline` | what a person sees of it |
//! | `process` | a function's binary as Lambda runs it, driven by a test (Linux) |
//! | `bench` | a function's release binary, measured from outside (Linux) |

#[cfg(target_os = "linux")]
pub mod bench;
pub mod books;
pub mod dynamodb;
pub mod emr;
pub mod faults;
pub mod item;
pub mod keeper;
pub mod mapping;
#[cfg(target_os = "linux")]
pub mod process;
pub mod progress;
pub mod pump;
pub mod queue;
pub mod rates;
pub mod rollup;
pub mod s3;
pub mod services;
mod sparkline;
pub mod stream;
pub mod tokens;
pub mod traffic;
pub mod verdict;
