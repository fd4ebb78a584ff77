//! One invocation as Lambda makes it: aggregations until its time is nearly up.

use std::{
    collections::BTreeMap,
    error::Error,
    hash::{BuildHasher as _, RandomState},
};

use lambda_runtime::{Diagnostic, LambdaEvent};
use tidegate_aws::{clock, error::causes, telemetry::Metrics};
use tidegate_domain::rates::cadence::{Pace, wait};
use tokio::time::{Instant, sleep_until};

use crate::{
    event::{Answer, Event, JobTold},
    handler::{Aggregation, RateAggregator},
    job::{Aggregated, Outcome},
    metrics,
    report::{Failures, Summed},
    time::Times,
};

impl RateAggregator {
    /// Does what the event asks for, and emits what it came to.
    ///
    /// # Errors
    /// [`Diagnostic`], Lambda's own kind, if the last aggregation of a job failed, or if the system's clock is beyond
    /// all calendars.
    pub async fn invoke(&self, event: LambdaEvent<Event>, metrics: &Metrics) -> Result<Answer, Diagnostic> {
        let started = Instant::now();
        let id = &event.context.request_id;
        let deadline = clock::answer_by(event.context.deadline).map_err(|error| diagnostic("ClockError", &error))?;
        let (mut summed, mut pace) = (Summed::default(), Pace::default());
        let last = loop {
            let start = Instant::now();
            let began = clock::now().map_err(|error| diagnostic("ClockError", &error))?;
            let aggregation = Box::pin(self.aggregate(began, Times::new(start, self.interval, deadline))).await;
            summed.aggregations += 1;
            summed.failed += usize::from(aggregation.error.is_some());
            summed.jobs = aggregation.jobs.len();
            for aggregated in &aggregation.jobs {
                summed.count(&aggregated.outcome);
                metrics.emit(&metrics::aggregation(id, aggregated));
            }
            pace.took(start.elapsed());
            let next = start + wait(self.interval, chance());
            if event.payload == Event::Once || !pace.has_room(deadline.saturating_duration_since(next)) {
                break aggregation;
            }
            sleep_until(next).await;
        };
        let kind = if event.payload == Event::Once { "once" } else { "schedule" };
        let aggregations = summed.aggregations;
        metrics.emit(&metrics::invocation(id, kind, started.elapsed(), summed));
        match self.failures(&last) {
            Some(failures) => Err(diagnostic("AggregationError", &failures)),
            None => Ok(Answer { aggregations, jobs: last.jobs.iter().filter_map(told).collect() }),
        }
    }

    fn failures(&self, aggregation: &Aggregation) -> Option<Failures> {
        let failed = |job: &Aggregated| Some((job.prefix.clone(), causes(job.outcome.as_ref().err()?)));
        let mut failures: BTreeMap<_, _> = aggregation.jobs.iter().filter_map(failed).collect();
        failures.extend(aggregation.error.iter().map(|error| (self.prefix.clone(), causes(error))));
        (!failures.is_empty()).then_some(Failures(failures))
    }
}

fn told(job: &Aggregated) -> Option<JobTold> {
    Some(JobTold {
        prefix: job.prefix.clone(),
        outcome: job.outcome_name(),
        sequence: match job.outcome.as_ref().ok()? {
            Outcome::Published { sequence } => Some(*sequence),
            Outcome::Superseded | Outcome::Lost => None,
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

fn diagnostic(error_type: &str, error: &(dyn Error + 'static)) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: causes(error) }
}
