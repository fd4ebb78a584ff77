//! Each conditional write of the bucket keeper, against a real table: what it writes, and when it writes
//! nothing.

mod refill;
mod registry;
mod shards;
mod split;
