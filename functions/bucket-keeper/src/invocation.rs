//! One invocation as Lambda makes it: its time, its event, its metrics, its answer.

use std::{error::Error, time::Instant};

use lambda_runtime::{Diagnostic, LambdaEvent};
use tidegate_aws::{clock, error::causes, telemetry::Metrics};

use crate::{
    event::{Answer, Event},
    handler::BucketKeeper,
    metrics,
};

impl BucketKeeper {
    /// Does what the event asks for, and emits what it came to.
    ///
    /// # Errors
    /// [`Diagnostic`], Lambda's own kind, if nothing can be said of single records, if the registry
    /// cannot be read, or if the system's clock is beyond all calendars.
    pub async fn invoke(&self, event: LambdaEvent<Event>, metrics: &Metrics) -> Result<Answer, Diagnostic> {
        let started = Instant::now();
        let id = &event.context.request_id;
        let deadline = clock::answer_by(event.context.deadline).map_err(|error| diagnostic("ClockError", &error))?;
        let now = clock::now().map_err(|error| diagnostic("ClockError", &error))?;
        match event.payload {
            Event::Batch(batch) => {
                let handled = Box::pin(self.handle(&batch, now, deadline)).await;
                metrics.emit(&metrics::invocation(id, "batch", started.elapsed(), handled.report));
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("Unreportable", &error))
            }
            Event::Repair => {
                let repaired = Box::pin(self.repair(now, deadline)).await;
                let buckets = repaired.report.buckets;
                metrics.emit(&metrics::invocation(id, "repair", started.elapsed(), repaired.report));
                let complete = repaired.complete.map_err(|error| diagnostic("RepairError", &error))?;
                Ok(Answer::Repair { buckets, complete })
            }
        }
    }
}

fn diagnostic(error_type: &str, error: &(dyn Error + 'static)) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: causes(error) }
}
