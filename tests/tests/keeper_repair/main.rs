//! The repair: what no stream record tells of.

mod crash;
mod progress;
mod shards;
