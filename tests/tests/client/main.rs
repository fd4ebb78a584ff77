//! The client crate takes tokens from an embedded table.

mod acquires;
mod cancellation;
mod capacity;
mod cascade;
mod configuration;
mod entities;
mod faults;
mod leases;
mod limits;
mod memory;
mod metrics;
mod operations;
mod python_operators;
mod registry;
mod shards;
mod stored;
mod switches;
mod tower;
mod usage;
