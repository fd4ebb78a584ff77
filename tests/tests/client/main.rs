//! The client crate takes tokens from an embedded table.

mod acquires;
mod cascade;
mod configuration;
mod faults;
mod leases;
mod shards;
mod tower;
