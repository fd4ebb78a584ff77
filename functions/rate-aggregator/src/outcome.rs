//! What an aggregation came to: the outcome for each job, and its numbers.

use std::time::Duration;

use metrique::{
    unit::{Count, Millisecond},
    unit_of_work::metrics,
};
use tidegate_aws::error::CallError;
use tidegate_domain::{rates::tally::Tally, time::EpochMillis};

/// What one aggregation of all jobs came to.
#[derive(Debug)]
pub struct Aggregation {
    pub jobs: Vec<Aggregated>,
    /// How many idle jobs were not listed.
    pub resting: usize,
    /// Why the jobs could not be found, if they could not.
    pub error: Option<CallError>,
}

/// What became of a job's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryOutcome {
    Published {
        sequence: u64,
    },
    /// The stored summary began at the same time or later.
    Superseded,
    /// Other aggregations replaced the stored summary before each attempt. Their summaries are hardly older.
    Lost,
    /// There are no reports, or all are stale and the summary says so: the summaries of finished jobs stay as they are.
    Idle,
}

/// Why an aggregation wrote no summary of a job.
#[derive(Debug, thiserror::Error)]
pub enum AggregationError {
    /// A call failed that the summary depends on.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Too many reports could not be read for the sums to stand for all workers.
    #[error("{unknown} of {workers} workers' reports could not be read; the first error")]
    Unread {
        /// Workers without a report that counts.
        unknown: usize,
        /// These, and the active workers.
        workers: usize,
        /// Why the first one could not be read.
        source: CallError,
    },
}

impl AggregationError {
    /// Whether the same aggregation may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Call(error) | Self::Unread { source: error, .. } => error.is_retryable(),
        }
    }
}

/// What the aggregation of a job came to.
#[derive(Debug)]
pub struct Aggregated {
    /// The job's prefix.
    pub prefix: String,
    /// What its reports come to, if they could be listed.
    pub tally: Tally,
    /// The same and what it cost, in numbers.
    pub report: AggregationReport,
    pub took: Duration,
    /// What became of the summary.
    pub outcome: Result<SummaryOutcome, AggregationError>,
    /// Whether this differs from the job's last aggregation, or failed.
    pub is_news: bool,
}

impl Aggregated {
    pub const fn outcome_name(&self) -> &'static str {
        match self.outcome {
            Ok(SummaryOutcome::Published { .. }) => "published",
            Ok(SummaryOutcome::Superseded) => "superseded",
            Ok(SummaryOutcome::Lost) => "lost",
            Ok(SummaryOutcome::Idle) => "idle",
            Err(_) => "failed",
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
        let AggregationReport { active, stale, rejected, unknown, .. } = aggregated.report;
        Self { outcome: aggregated.outcome_name(), active, stale, rejected, unknown }
    }
}

/// What the aggregation of one job came to.
///
/// Every report that is listed is in exactly one of `active`, `stale`, `rejected`, `vanished` and `unknown`. What is
/// not known is left out: the sums, if too many workers are unknown, and all of these if the listing failed.
#[metrics(subfield)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AggregationReport {
    /// Read capacity units a second of all active workers.
    pub read_rate: Option<f64>,
    /// Write capacity units a second of all active workers.
    pub write_rate: Option<f64>,
    /// Workers that count.
    #[metrics(unit = Count)]
    pub active: Option<usize>,
    /// Those of them that hold leases, or want one.
    #[metrics(unit = Count)]
    pub leasing: Option<usize>,
    /// Workers that have not reported for longer than the cutoff.
    #[metrics(unit = Count)]
    pub stale: Option<usize>,
    /// Workers whose report is invalid.
    #[metrics(unit = Count)]
    pub rejected: Option<usize>,
    /// Reports that were deleted since they were listed.
    #[metrics(unit = Count)]
    pub vanished: usize,
    /// Workers whose report could not be read, and whose earlier reports do not count: the sums miss them.
    #[metrics(unit = Count)]
    pub unknown: usize,
    /// The age of the oldest report that counts, if any does.
    #[metrics(unit = Millisecond)]
    pub oldest_age: Option<Duration>,
    #[metrics(unit = Count)]
    pub pages: usize,
    /// Fetches of reports, including failed ones.
    #[metrics(unit = Count)]
    pub gets: usize,
    /// Fetches that failed. For some of these workers, an earlier report counts.
    #[metrics(unit = Count)]
    pub gets_failed: usize,
    /// Reports that were not fetched, because they have not changed, are stale by the listing, or are too large.
    #[metrics(unit = Count)]
    pub gets_saved: usize,
}

impl AggregationReport {
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
    pub(crate) fn merge(self, other: &Self, rates: fn(f64, f64) -> f64, workers: fn(usize, usize) -> usize) -> Self {
        Self {
            read_rate: both(self.read_rate, other.read_rate, rates),
            write_rate: both(self.write_rate, other.write_rate, rates),
            active: both(self.active, other.active, workers),
            leasing: both(self.leasing, other.leasing, workers),
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
