//! One invocation as Lambda makes it: aggregations until its time is nearly up.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
};

use tidegate_aws::{clock, error::causes};
use tidegate_domain::rates::{Pace, wait};
use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};
use tokio::time::{Instant, sleep_until};

use crate::{
    event::{Answer, Event, JobResponse},
    handler::{Aggregation, RateAggregator},
    job::{Aggregated, Outcome},
    report::{AggregationReport, Failures, Summed},
    time::Times,
};

impl RateAggregator {
    /// Does what the event asks for, and tells what it came to.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, mut began, deadline, emitter) = invocation.into_parts();
        let (mut summed, mut pace) = (Summed::default(), Pace::default());
        let last = loop {
            let start = Instant::now();
            let aggregation = Box::pin(self.aggregate(began, Times::new(start, self.interval, deadline))).await;
            summed.count(&aggregation, self.failures(&aggregation).is_none(), start.elapsed());
            for aggregated in aggregation.jobs.iter().filter(|aggregated| aggregated.is_news) {
                emitter.emit_part("aggregation", AggregationReport::of(aggregated));
            }
            pace.took(start.elapsed());
            let next = start + wait(self.interval, chance());
            if event == Event::Once || !pace.has_room(deadline.saturating_duration_since(next)) {
                break aggregation;
            }
            sleep_until(next).await;
            began = clock::now().map_err(|error| diagnostic("ClockError", &error))?;
        };
        let aggregations = summed.aggregations;
        emitter.emit(if event == Event::Once { "once" } else { "schedule" }, summed);
        match self.failures(&last) {
            Some(failures) => Err(diagnostic("AggregationError", &failures)),
            None => Ok(Answer { aggregations, jobs: last.jobs.iter().filter_map(response).collect() }),
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
            Outcome::Published { sequence } => Some(*sequence),
            Outcome::Superseded | Outcome::Lost | Outcome::Idle => None,
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
