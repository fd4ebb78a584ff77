//! One invocation: reads the request, carries it out, writes the metrics, and answers.

use serde_json::Value;
use tidegate_domain::time::EpochMillis;
use tidegate_lambda::process::{Diagnostic, Invocation, diagnostic};
use tokio::time::Instant;

use crate::{
    CapacityCoordinator,
    answer::Answer,
    event::Event,
    failure::Failure,
    report::{CoordinatorReport, Counts},
    time::Time,
};

impl CapacityCoordinator {
    /// Does what the request asks for, and writes the metrics.
    pub async fn invoke(&self, invocation: Invocation<'_, Value>) -> Result<Answer, Diagnostic> {
        let (event, now, deadline, emitter) = invocation.into_parts();
        let mut report = CoordinatorReport::default();
        let event = Event::try_from(event);
        let kind = event.as_ref().map_or("malformed", Event::name);
        let done = match event {
            Ok(event) => Box::pin(self.handle(event, now, deadline, &mut report)).await,
            Err(malformed) => Err(malformed.into()),
        };
        if let Err(failure) = &done {
            count(failure, &mut report.counts);
        }
        emitter.emit(kind, report);
        done.map_err(|failure| diagnostic(failure.error_type(), &failure))
    }

    /// Carries out a request at the moment `now`. What is not done by `deadline` has failed. Any request may be repeated,
    /// and any number of them may overlap.
    pub async fn handle(
        &self,
        event: Event,
        now: EpochMillis,
        deadline: Instant,
        report: &mut CoordinatorReport,
    ) -> Result<Answer, Failure> {
        let time = Time::new(now, deadline);
        match event {
            Event::Announce(announce) => self.announce(announce, time, report).await.map(Answer::Announce),
            Event::Release(release) => self.release(release, time, &mut report.counts).await.map(Answer::Release),
            Event::Restore => self.restore(time, &mut report.counts).await.map(Answer::Restore),
            Event::List => self.list(time).await.map(Answer::List),
            Event::Status(target) => self.status(target, time).await.map(Answer::Status),
        }
    }
}

fn count(failure: &Failure, counts: &mut Counts) {
    match failure {
        // Its targets are counted already.
        Failure::Unsettled { .. } | Failure::Unreadable(_) => {}
        failure if failure.is_refusal() => counts.refused += 1,
        _ => counts.failed += 1,
    }
}
