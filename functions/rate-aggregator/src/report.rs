//! The metrics: of each job's aggregation, and of the whole invocation.

use std::{collections::BTreeMap, mem, time::Duration};

use metrique::{
    unit::{Count, Millisecond},
    unit_of_work::metrics,
};
use tidegate_domain::rates::{Reason, tally::Tally};

use crate::outcome::{Aggregated, Aggregation, AggregationReport, SummaryOutcome};

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 5] = ["Succeeded", "Published", "Failed", "Active", "Rejected"];

/// The aggregation of one job, as its log line shows it.
#[metrics(rename_all = "PascalCase")]
#[derive(Debug)]
pub struct JobLine {
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
    report: AggregationReport,
}

impl JobLine {
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

/// How many workers were rejected, by reason, for a person to read.
fn rejections(tally: &Tally) -> String {
    let counts = Reason::ALL.into_iter().map(|reason| (reason, tally.rejected_for(reason)));
    let counts = counts.filter(|(_, count)| *count > 0).map(|(reason, count)| format!("{reason}: {count}"));
    counts.collect::<Vec<_>>().join("; ")
}

/// The counts of an invocation: how many aggregations of jobs had which outcome.
#[metrics(rename_all = "PascalCase")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InvocationReport {
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
    /// Summaries not written, because other aggregations replaced the stored one before each attempt.
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
    /// Jobs of the last aggregation, including idle ones that were not listed.
    #[metrics(unit = Count)]
    pub jobs: usize,
    /// How long the slowest aggregation took.
    #[metrics(unit = Millisecond)]
    pub longest_aggregation: Duration,
    /// The numbers of all jobs together: counts of calls as sums over all aggregations, and of rates, workers and ages the
    /// highest of any aggregation.
    #[metrics(flatten)]
    pub total: AggregationReport,
}

impl InvocationReport {
    /// Counts an aggregation of all jobs.
    pub(crate) fn count(&mut self, aggregation: &Aggregation, succeeded: bool, took: Duration) {
        let Aggregation { jobs, resting, error } = aggregation;
        self.aggregations += 1;
        self.succeeded += usize::from(succeeded);
        self.failed += usize::from(error.is_some());
        self.resting += resting;
        self.jobs = jobs.len() + resting;
        self.longest_aggregation = self.longest_aggregation.max(took);
        let mut total = AggregationReport::default();
        for job in jobs {
            *match job.outcome {
                Ok(SummaryOutcome::Published { .. }) => &mut self.published,
                Ok(SummaryOutcome::Superseded) => &mut self.superseded,
                Ok(SummaryOutcome::Lost) => &mut self.lost,
                Ok(SummaryOutcome::Idle) => &mut self.idle,
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
