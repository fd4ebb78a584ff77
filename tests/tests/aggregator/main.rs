//! `rate-aggregator` over a real bucket.

mod jobs;
mod reading;
mod summary;
