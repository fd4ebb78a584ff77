//! Workers of a fleet that share a cap, with `rate-aggregator`, on an embedded S3.

mod announcing;
mod backfill;
mod python;
mod settings;
mod sharing;
mod store;
