//! What the function did, in numbers.

use std::{collections::BTreeMap, mem, time::Duration};

use metrique::{
    unit::{Count, Millisecond},
    unit_of_work::metrics,
};
use tidegate_domain::{
    rates::{Reason, tally::Tally},
    time::EpochMillis,
};

use crate::{
    handler::Aggregation,
    job::{Aggregated, Outcome},
};

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 5] = ["Succeeded", "Published", "Failed", "Active", "Rejected"];

/// The aggregation of one job, as its log line shows it.
#[metrics(rename_all = "PascalCase")]
#[derive(Debug)]
pub struct AggregationReport {
    /// The job's prefix: not a dimension, since jobs come and go.
    #[metrics(name = "prefix")]
    prefix: String,
    /// What became of the summary.
    #[metrics(name = "outcome")]
    outcome: &'static str,
    /// How many workers were rejected, by reason.
    #[metrics(name = "rejections")]
    rejections: String,
    /// How long it took.
    #[metrics(unit = Millisecond)]
    aggregation_time: Duration,
    #[metrics(flatten)]
    report: Report,
}

impl AggregationReport {
    pub(crate) fn of(aggregated: &Aggregated) -> Self {
        Self {
            prefix: aggregated.prefix.clone(),
            outcome: aggregated.outcome_name(),
            rejections: rejections(&aggregated.tally),
            aggregation_time: aggregated.took,
            report: aggregated.report.clone(),
        }
    }
}

/// What makes a job's line worth writing: while none of this changes, no line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headline {
    outcome: &'static str,
    active: Option<usize>,
    stale: Option<usize>,
    rejected: Option<usize>,
    unknown: usize,
}

impl Headline {
    pub(crate) fn of(aggregated: &Aggregated) -> Self {
        let Report { active, stale, rejected, unknown, .. } = aggregated.report;
        Self { outcome: aggregated.outcome_name(), active, stale, rejected, unknown }
    }
}

/// What the aggregation of one job came to.
///
/// Every report that is listed is in exactly one of `active`, `stale`, `rejected`, `vanished` and `unknown`. What is
/// not known is left out: the sums, if too many workers are unknown, and all of these if the listing failed.
#[metrics(subfield)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Read capacity units a second of all active workers.
    pub read_rate: Option<f64>,
    /// Write capacity units a second of all active workers.
    pub write_rate: Option<f64>,
    /// Workers that count.
    #[metrics(unit = Count)]
    pub active: Option<usize>,
    /// Workers that have not reported for longer than the cutoff.
    #[metrics(unit = Count)]
    pub stale: Option<usize>,
    /// Workers that have reported what cannot be.
    #[metrics(unit = Count)]
    pub rejected: Option<usize>,
    /// Reports that were deleted since they were listed.
    #[metrics(unit = Count)]
    pub vanished: usize,
    /// Workers whose report could not be read, and of which no earlier one counts: the sums lack them.
    #[metrics(unit = Count)]
    pub unknown: usize,
    /// The age of the oldest report that counts, if any does.
    #[metrics(unit = Millisecond)]
    pub oldest_age: Option<Duration>,
    #[metrics(unit = Count)]
    pub pages: usize,
    /// Reports that were fetched, whether or not they came.
    #[metrics(unit = Count)]
    pub gets: usize,
    /// Of these, those that did not come; of some, an earlier one counts.
    #[metrics(unit = Count)]
    pub gets_failed: usize,
    /// Reports that were not fetched, because they have not changed, are stale by the listing, or are too large.
    #[metrics(unit = Count)]
    pub gets_saved: usize,
}

impl Report {
    /// Takes over what was judged, now that all reports were looked at.
    pub(crate) fn judged(&mut self, tally: &Tally) {
        self.stale = Some(tally.stale);
        self.rejected = Some(tally.rejected());
    }

    /// Takes over what was summed up by the moment `now`, and stands for all workers.
    pub(crate) fn summed(&mut self, tally: &Tally, now: EpochMillis) {
        self.read_rate = Some(tally.read().units());
        self.write_rate = Some(tally.write().units());
        self.active = Some(tally.active);
        self.oldest_age = tally.oldest_age(now);
    }

    /// Combines two reports: `rates` and `workers` combine what exists at a moment; counts of calls are added up.
    fn merge(self, other: &Self, rates: fn(f64, f64) -> f64, workers: fn(usize, usize) -> usize) -> Self {
        Self {
            read_rate: both(self.read_rate, other.read_rate, rates),
            write_rate: both(self.write_rate, other.write_rate, rates),
            active: both(self.active, other.active, workers),
            stale: both(self.stale, other.stale, workers),
            rejected: both(self.rejected, other.rejected, workers),
            vanished: self.vanished + other.vanished,
            unknown: workers(self.unknown, other.unknown),
            oldest_age: self.oldest_age.max(other.oldest_age),
            pages: self.pages + other.pages,
            gets: self.gets + other.gets,
            gets_failed: self.gets_failed + other.gets_failed,
            gets_saved: self.gets_saved + other.gets_saved,
        }
    }
}

fn both<T>(one: Option<T>, other: Option<T>, combine: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(combine(one, other)),
        (one, other) => one.or(other),
    }
}

/// How many workers were rejected, by reason, for a person to read.
pub fn rejections(tally: &Tally) -> String {
    let counts = Reason::ALL.into_iter().map(|reason| (reason, tally.rejected_for(reason)));
    let counts = counts.filter(|(_, count)| *count > 0).map(|(reason, count)| format!("{reason}: {count}"));
    counts.collect::<Vec<_>>().join("; ")
}

/// What an invocation came to: of how many aggregations of jobs the summary went which way.
#[metrics(rename_all = "PascalCase")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summed {
    /// Times that it aggregated.
    #[metrics(unit = Count)]
    pub aggregations: usize,
    /// Times that nothing failed, in any job.
    #[metrics(unit = Count)]
    pub succeeded: usize,
    /// Summaries written.
    #[metrics(unit = Count)]
    pub published: usize,
    /// Summaries not written, because a newer one was there.
    #[metrics(unit = Count)]
    pub superseded: usize,
    /// Summaries not written, because others wrote again and again in between.
    #[metrics(unit = Count)]
    pub lost: usize,
    /// Summaries not written, because the job is idle.
    #[metrics(unit = Count)]
    pub idle: usize,
    /// Aggregations of a job, or searches for jobs, that failed: the last summary stayed.
    #[metrics(unit = Count)]
    pub failed: usize,
    /// Idle jobs that were not listed.
    #[metrics(unit = Count)]
    pub resting: usize,
    /// Jobs of the last aggregation, with those that were not listed.
    #[metrics(unit = Count)]
    pub jobs: usize,
    /// How long the slowest aggregation took.
    #[metrics(unit = Millisecond)]
    pub longest_aggregation: Duration,
    /// The numbers of all jobs together: counts of calls as sums over all aggregations, and of rates, workers and ages the
    /// highest of any aggregation.
    #[metrics(flatten)]
    pub total: Report,
}

impl Summed {
    /// Counts an aggregation of all jobs.
    pub(crate) fn count(&mut self, aggregation: &Aggregation, succeeded: bool, took: Duration) {
        let Aggregation { jobs, resting, error } = aggregation;
        self.aggregations += 1;
        self.succeeded += usize::from(succeeded);
        self.failed += usize::from(error.is_some());
        self.resting += resting;
        self.jobs = jobs.len() + resting;
        self.longest_aggregation = self.longest_aggregation.max(took);
        let mut total = Report::default();
        for job in jobs {
            *match job.outcome {
                Ok(Outcome::Published { .. }) => &mut self.published,
                Ok(Outcome::Superseded) => &mut self.superseded,
                Ok(Outcome::Lost) => &mut self.lost,
                Ok(Outcome::Idle) => &mut self.idle,
                Err(_) => &mut self.failed,
            } += 1;
            total = total.merge(&job.report, |one, other| one + other, |one, other| one + other);
        }
        self.total = mem::take(&mut self.total).merge(&total, f64::max, usize::max);
    }
}

/// Jobs whose last aggregation failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("the last aggregation of {} failed, so the summary before it stays: {}", self.names(), self.first())]
pub struct Failures(pub BTreeMap<String, String>);

impl Failures {
    /// A few of the jobs' prefixes.
    fn names(&self) -> String {
        let mut names: Vec<_> = self.0.keys().take(3).map(String::as_str).collect();
        if self.0.len() > names.len() {
            names.push("others");
        }
        names.join(", ")
    }

    fn first(&self) -> &str {
        self.0.values().next().map_or("", String::as_str)
    }
}
