//! Aggregations, as the function makes them over a real bucket.

mod churn;
mod jobs;
mod reading;
mod rest;
mod summary;
