//! The laws of the bucket keeper: however its writes meet those of the clients, no token comes from
//! nowhere, none that could be credited is lost for good, and what is done comes to rest.
//!
//! The model is a bucket's items, written by clients and by the keeper under the conditions of their
//! writes; the stream of these writes; and a keeper that gets it late, in any batches, again, and with or
//! without its memory, while its own writes come late or twice.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod activity;
mod keeper;
mod limits_hold;
mod model;
mod pressure;
mod refills;
mod splits;
