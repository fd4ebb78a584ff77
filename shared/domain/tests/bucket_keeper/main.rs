//! Proof of the bucket keeper's rules on a model of its clients and its table.
//!
//! The model is the items of one bucket and their stream. Clients write to it as zae-limiter 0.10 and 0.17 do. The
//! keeper decides with the real code, and each of its writes applies under the conditions that the table checks.
//! Records arrive late, repeatedly and in any batches. Writes arrive late, twice or never. Any process handles a batch.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

mod clients;
mod histories;
mod items;
mod keeper;
mod pressure;
mod refills;
mod repairs;
mod splits;
mod table;
mod writes;
