//! Proof of the client's rules on a model of several clients that share one bucket.
//!
//! The model is the items of a bucket. Rust clients decide with the real code, and each of their writes applies under the
//! conditions that the table checks. Python clients write as zae-limiter 0.10 and 0.17 do. The clients act in any order,
//! one call at a time. Their clocks differ, and what they have seen of an item may be outdated. Responses are lost, and
//! writes arrive late.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod examples;
mod interleavings;
#[path = "../bucket_keeper/items.rs"]
mod items;
mod python;
mod reference;
mod rust;
mod table;
