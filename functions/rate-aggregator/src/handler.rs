//! The function, and one aggregation: find the jobs, do each.

use std::{
    collections::BTreeMap,
    mem,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tidegate_aws::{
    concurrent::{for_each, within},
    error::{CallError, causes},
    rates::RateFiles,
};
use tidegate_domain::{rates::Cutoff, time::EpochMillis};
use tokio::time::Instant;

use crate::{
    config::Config,
    job::{self, Aggregated, Context, Job},
    time::Times,
};

/// The function: what it reads and writes, and how often.
#[derive(Debug)]
pub struct RateAggregator {
    files: RateFiles,
    pub(crate) prefix: String,
    discover_jobs: bool,
    pub(crate) interval: Duration,
    cutoff: Cutoff,
    concurrency: NonZeroUsize,
    jobs: Mutex<BTreeMap<String, Job>>,
}

#[derive(Debug)]
pub struct Aggregation {
    pub jobs: Vec<Aggregated>,
    /// How many idle jobs were not listed.
    pub resting: usize,
    /// Why the jobs could not be found, if they could not.
    pub error: Option<CallError>,
}

/// A job on its way through an aggregation.
struct Slot {
    pub(crate) prefix: String,
    job: Mutex<Job>,
}

impl RateAggregator {
    /// The function that aggregates these files as it is configured.
    pub fn new(files: RateFiles, config: &Config) -> Self {
        Self {
            files,
            prefix: config.prefix.clone(),
            discover_jobs: config.discover_jobs,
            interval: config.interval,
            cutoff: config.cutoff,
            concurrency: config.concurrency,
            jobs: Mutex::default(),
        }
    }

    /// Aggregates all jobs, side by side, at the moment `began`. Each has its share of the calls that may be under way,
    /// so that one that is throttled, or hangs, does not hold up the others. A summary is written on the condition that the one
    /// that it replaces is still there and is older, so any other aggregation at the same time is harmless.
    pub async fn aggregate(&self, began: EpochMillis, times: Times) -> Aggregation {
        let prefixes = match self.prefixes(times.read_by).await {
            Ok(prefixes) => prefixes,
            Err(error) => {
                tracing::error!(prefix = self.prefix, error = causes(&error), "no jobs");
                return Aggregation { jobs: Vec::new(), resting: 0, error: Some(error) };
            }
        };
        // What another aggregation has taken is not here: that costs reading, nothing else.
        let mut known = mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        let jobs = prefixes.into_iter().map(|prefix| (known.remove(&prefix).unwrap_or_default(), prefix));
        let (resting, due): (Vec<_>, Vec<_>) = jobs.partition(|(job, _)| job.rests(began));
        let slots: Vec<_> = due.into_iter().map(|(job, prefix)| Slot { prefix, job: Mutex::new(job) }).collect();
        let share = NonZeroUsize::new(self.concurrency.get() / slots.len().max(1)).unwrap_or(NonZeroUsize::MIN);
        let caller = (self, began, times, share);
        let aggregated = for_each(caller, &slots, Self::aggregate_job, times.write_by, self.concurrency).await;
        let remembered =
            slots.into_iter().map(|slot| (slot.prefix, slot.job.into_inner().unwrap_or_else(PoisonError::into_inner)));
        let count = resting.len();
        let remembered = remembered.chain(resting.into_iter().map(|(job, prefix)| (prefix, job)));
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = remembered.collect();
        Aggregation { jobs: aggregated, resting: count, error: None }
    }

    /// How many reports are remembered, of all jobs.
    pub fn remembered(&self) -> usize {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).values().map(|job| job.memory.len()).sum()
    }

    async fn aggregate_job(
        (this, began, times, concurrency): (&Self, EpochMillis, Times, NonZeroUsize),
        slot: &Slot,
        _: Instant,
    ) -> Aggregated {
        let Self { files, cutoff, interval, .. } = this;
        let may_rest = this.discover_jobs;
        let context = Context { files, may_rest, concurrency, cutoff: *cutoff, interval: *interval, began, times };
        let mut job = mem::take(&mut *slot.job.lock().unwrap_or_else(PoisonError::into_inner));
        let aggregated = Box::pin(job::aggregate(context, &slot.prefix, &mut job)).await;
        *slot.job.lock().unwrap_or_else(PoisonError::into_inner) = job;
        aggregated
    }

    async fn prefixes(&self, by: Instant) -> Result<Vec<String>, CallError> {
        if !self.discover_jobs {
            return Ok(vec![self.prefix.clone()]);
        }
        let (mut prefixes, mut after) = (Vec::new(), None);
        loop {
            let page = within(by, self.files.prefixes(&self.prefix, after)).await?;
            prefixes.extend(page.entries);
            after = page.next;
            if after.is_none() {
                return Ok(prefixes);
            }
        }
    }
}
