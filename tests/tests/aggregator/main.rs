//! `rate-aggregator` over a real bucket.

mod jobs;
mod leases;
mod reading;
mod summary;
