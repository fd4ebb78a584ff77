//! One invocation as Lambda makes it: its time, its event, its metrics, its answer.

use std::{error::Error, time::Instant};

use lambda_runtime::{Diagnostic, LambdaEvent};
use tidegate_aws::{clock, error::causes, telemetry::Metrics};

use crate::{
    decision::{Decision, Failure},
    event::{Answer, Event},
    handler::TokenSweeper,
    metrics,
};

impl TokenSweeper {
    /// Does what the event asks for, and emits what it came to.
    ///
    /// # Errors
    /// [`Diagnostic`], Lambda's own kind, if a message without an id failed, if a direct event could not be
    /// dealt with, if the tokens cannot be read, or if the system's clock is beyond all calendars.
    pub async fn invoke(&self, event: LambdaEvent<Event>, metrics: &Metrics) -> Result<Answer, Diagnostic> {
        let started = Instant::now();
        let id = &event.context.request_id;
        let deadline = clock::answer_by(event.context.deadline).map_err(|error| diagnostic("ClockError", &error))?;
        let now = clock::now().map_err(|error| diagnostic("ClockError", &error))?;
        match event.payload {
            Event::Batch(messages) => {
                let handled = Box::pin(self.handle(&messages, now, deadline)).await;
                metrics.emit(&metrics::invocation(id, "batch", started.elapsed(), handled.report));
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("Unreportable", &error))
            }
            Event::Direct(event) => {
                let (decided, report) = Box::pin(self.handle_event(event, now, deadline)).await;
                metrics.emit(&metrics::invocation(id, "event", started.elapsed(), report));
                match &decided.decision {
                    Decision::Failed(failure) => Err(diagnostic(error_type(failure), failure)),
                    _ => Ok(Answer::Direct(decided.told())),
                }
            }
            Event::Reconcile => {
                let reconciled = Box::pin(self.reconcile(now, deadline)).await;
                let (report, answer) = (reconciled.report.clone(), reconciled.told());
                metrics.emit(&metrics::invocation(id, "reconcile", started.elapsed(), report));
                match reconciled.error {
                    Some(error) => Err(diagnostic("ReconcileError", &error)),
                    None => Ok(answer),
                }
            }
        }
    }
}

fn error_type(failure: &Failure) -> &'static str {
    match failure {
        Failure::Malformed(_) | Failure::Timeless => "MalformedEvent",
        Failure::Unprocessable(_) => "UnprocessableEvent",
        Failure::Call { .. } => "SweepError",
    }
}

fn diagnostic(error_type: &str, error: &(dyn Error + 'static)) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: causes(error) }
}
