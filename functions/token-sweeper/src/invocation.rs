//! One invocation as Lambda makes it: its event, its metrics, its answer.

use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};

use crate::{
    decision::{Decision, Failure},
    event::{Answer, Event},
    handler::TokenSweeper,
};

impl TokenSweeper {
    /// Does what the event asks for, and tells what it came to.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, now, deadline, emitter) = invocation.into_parts();
        match event {
            Event::Batch(messages) => {
                let handled = Box::pin(self.handle(&messages, now, deadline)).await;
                emitter.emit("batch", handled.report);
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("Unreportable", &error))
            }
            Event::Direct(event) => {
                let (decided, report) = Box::pin(self.handle_event(event, now, deadline)).await;
                emitter.emit("event", report);
                match &decided.decision {
                    Decision::Failed(failure) => Err(diagnostic(error_type(failure), failure)),
                    _ => Ok(Answer::Direct(decided.response())),
                }
            }
            Event::Reconcile => {
                let reconciled = Box::pin(self.reconcile(now, deadline)).await;
                let (report, answer) = (reconciled.report.clone(), reconciled.response());
                emitter.emit("reconcile", report);
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
