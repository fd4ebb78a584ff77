//! `rate-aggregator`: sums up what the workers of a fleet read and write, every few seconds.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | the environment variables, read and checked once |
//! | [`event`] | what the function is invoked with, and what it answers |
//! | [`outcome`] | what an aggregation came to |
//! | [`publication`] | the summary, written unless a newer one is there; the time of each step |
//! | `job` | the aggregation of one job: list, fetch, judge, sum up |
//! | [`handler`] | the story of one invocation; an aggregation: find the jobs, do each |
//! | [`report`] | the metrics of a job's aggregation and of an invocation |

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Mutex, time::Duration};

use tidegate_aws::rates::RateFiles;
use tidegate_domain::rates::{Cutoff, Rates};

use self::{config::Config, job::Job};

pub mod config;
pub mod event;
pub mod handler;
mod job;
pub mod outcome;
pub mod publication;
pub mod report;

/// The function: what it reads and writes, and how often.
#[derive(Debug)]
pub struct RateAggregator {
    files: RateFiles,
    prefix: String,
    discover_jobs: bool,
    interval: Duration,
    cutoff: Cutoff,
    concurrency: NonZeroUsize,
    cap: Option<Rates>,
    jobs: Mutex<BTreeMap<String, Job>>,
}

impl RateAggregator {
    /// Creates the function that aggregates these files as it is configured.
    pub fn new(files: RateFiles, config: &Config) -> Self {
        Self {
            files,
            prefix: config.prefix.clone(),
            discover_jobs: config.discover_jobs,
            interval: config.interval,
            cutoff: config.cutoff,
            concurrency: config.concurrency,
            cap: config.cap,
            jobs: Mutex::default(),
        }
    }
}
