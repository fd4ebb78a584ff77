//! `rate-aggregator`: what the workers of a fleet read and write, summed up for all of them every few seconds.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`handler`] | the function; an aggregation: find the jobs, do each |
//! | [`job`] | the aggregation of one job: list, fetch, judge, sum up |
//! | `publication` | the summary, written unless a newer one is there |
//! | [`time`] | when an aggregation must be done with what |
//! | `invocation` | one invocation as Lambda makes it: aggregations until its time is nearly up |
//! | [`report`] | what an aggregation and an invocation did, in numbers |
//! | [`metrics`] | those numbers as CloudWatch metrics |

pub mod config;
pub mod event;
pub mod handler;
mod invocation;
pub mod job;
pub mod metrics;
mod publication;
pub mod report;
pub mod time;
