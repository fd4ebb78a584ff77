//! Proof of the bucket keeper's rules on a model of its clients and its table.
//!
//! The model is the items of one bucket and their stream. Clients write to it as zae-limiter 0.10 and 0.17 do. The
//! keeper decides with the real code, and each of its writes applies under the conditions that the table checks.
//! Records come late, again and in any batches; writes come late, twice or never; and any process handles a batch.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod activity;
mod clients;
mod exact;
mod histories;
mod keeper;
mod pressure;
mod refills;
mod repairs;
mod splits;
mod table;
mod writes;
