//! One invocation: aggregations until its time is nearly up. An aggregation finds the jobs, and sums up each.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    mem,
    num::NonZeroUsize,
    sync::PoisonError,
};

use tidegate_aws::{
    clock,
    concurrent::{concurrently, within},
    error::{CallError, causes},
};
use tidegate_domain::{
    rates::{Pace, wait},
    time::EpochMillis,
};
use tidegate_lambda::process::{Diagnostic, Invocation, diagnostic};
use tokio::time::{Instant, sleep_until};

use crate::{
    RateAggregator,
    event::{Answer, Event, JobResponse},
    job::{self, Context, Job},
    outcome::{Aggregated, Aggregation, SummaryOutcome},
    publication::Times,
    report::{Failures, InvocationReport, JobLine},
};

impl RateAggregator {
    /// Does what the event asks for, and writes the metrics.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, mut began, deadline, emitter) = invocation.into_parts();
        let (mut report, mut pace) = (InvocationReport::default(), Pace::default());
        let last = loop {
            let start = Instant::now();
            let aggregation = Box::pin(self.aggregate(began, Times::new(start, self.interval, deadline))).await;
            report.count(&aggregation, self.failures(&aggregation).is_none(), start.elapsed());
            for aggregated in aggregation.jobs.iter().filter(|aggregated| aggregated.is_news) {
                emitter.emit_part("aggregation", JobLine::of(aggregated));
            }
            pace.took(start.elapsed());
            let next = start + wait(self.interval, chance());
            if event == Event::Once || !pace.has_room(deadline.saturating_duration_since(next)) {
                break aggregation;
            }
            sleep_until(next).await;
            began = clock::now().map_err(|error| diagnostic("ClockError", &error))?;
        };
        let aggregations = report.aggregations;
        emitter.emit(if event == Event::Once { "once" } else { "schedule" }, report);
        match self.failures(&last) {
            Some(failures) => Err(diagnostic("AggregationError", &failures)),
            None => Ok(Answer { aggregations, jobs: last.jobs.iter().filter_map(response).collect() }),
        }
    }

    /// Aggregates all jobs at the same time, at the moment `began`. Each job has its share of the concurrent calls, so that a
    /// job that is throttled, or hangs, does not delay the others. A summary is written on the condition that the one that it
    /// replaces is still there and is older. Another process at the same time only keeps leases from growing.
    pub async fn aggregate(&self, began: EpochMillis, times: Times) -> Aggregation {
        let prefixes = match self.prefixes(times.read_by).await {
            Ok(prefixes) => prefixes,
            Err(error) => {
                tracing::error!(prefix = self.prefix, error = causes(&error), "no jobs");
                return Aggregation { jobs: Vec::new(), resting: 0, error: Some(error) };
            }
        };
        // A concurrent aggregation may hold a job's cache. This one then reads the files again.
        let mut known = mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        let jobs = prefixes.into_iter().map(|prefix| (known.remove(&prefix).unwrap_or_default(), prefix));
        let (resting, due): (Vec<_>, Vec<_>) = jobs.partition(|(job, _)| job.rests(began));
        let concurrency = NonZeroUsize::new(self.concurrency.get() / due.len().max(1)).unwrap_or(NonZeroUsize::MIN);
        let context = Context {
            files: &self.files,
            may_rest: self.discover_jobs,
            concurrency,
            cutoff: self.cutoff,
            cap: self.cap,
            interval: self.interval,
            began,
            times,
        };
        let aggregate = |(mut job, prefix): (Job, String)| async move {
            let aggregated = Box::pin(job::aggregate(context, &prefix, &mut job)).await;
            (prefix, job, aggregated)
        };
        let mut aggregation = Aggregation { jobs: Vec::new(), resting: resting.len(), error: None };
        let mut remembered: BTreeMap<_, _> = resting.into_iter().map(|(job, prefix)| (prefix, job)).collect();
        for (prefix, job, aggregated) in concurrently(due, self.concurrency, aggregate).await {
            remembered.insert(prefix, job);
            aggregation.jobs.push(aggregated);
        }
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = remembered;
        aggregation
    }

    /// The number of remembered reports, of all jobs.
    pub fn remembered(&self) -> usize {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).values().map(|job| job.memory.len()).sum()
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

    fn failures(&self, aggregation: &Aggregation) -> Option<Failures> {
        let failed = |job: &Aggregated| Some((job.prefix.clone(), causes(job.outcome.as_ref().err()?)));
        let mut failures: BTreeMap<_, _> = aggregation.jobs.iter().filter_map(failed).collect();
        failures.extend(aggregation.error.iter().map(|error| (self.prefix.clone(), causes(error))));
        (!failures.is_empty()).then_some(Failures(failures))
    }
}

fn response(job: &Aggregated) -> Option<JobResponse> {
    Some(JobResponse {
        prefix: job.prefix.clone(),
        outcome: job.outcome_name(),
        sequence: match job.outcome.as_ref().ok()? {
            SummaryOutcome::Published { sequence } => Some(*sequence),
            SummaryOutcome::Superseded | SummaryOutcome::Lost | SummaryOutcome::Idle => None,
        },
        active_workers: job.tally.active,
        stale_workers: job.tally.stale,
        rejected_workers: job.tally.rejected(),
    })
}

/// A number from 0 to 1: the keys of each hasher are random, and nothing here needs more than that.
fn chance() -> f64 {
    let drawn = u32::try_from(RandomState::new().hash_one(0_u8) >> 32).unwrap_or_default();
    f64::from(drawn) / f64::from(u32::MAX)
}
