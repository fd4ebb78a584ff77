//! One invocation as Lambda makes it: its event, its metrics, its answer.

use tidegate_lambda::invocation::{Diagnostic, Invocation, diagnostic};

use crate::{
    decision::{Decision, Failure},
    event::{Answer, Event},
    handler::TokenSweeper,
};

impl TokenSweeper {
    /// Does what the event asks for, and tells what it came to.
    ///
    /// # Errors
    /// [`Diagnostic`], Lambda's own kind, if a message without an id failed, if a direct event could not be
    /// dealt with, or if the tokens cannot be read.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, now, deadline, teller) = invocation.into_parts();
        match event {
            Event::Batch(messages) => {
                let handled = Box::pin(self.handle(&messages, now, deadline)).await;
                teller.tell("batch", handled.report);
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("Unreportable", &error))
            }
            Event::Direct(event) => {
                let (decided, report) = Box::pin(self.handle_event(event, now, deadline)).await;
                teller.tell("event", report);
                match &decided.decision {
                    Decision::Failed(failure) => Err(diagnostic(error_type(failure), failure)),
                    _ => Ok(Answer::Direct(decided.told())),
                }
            }
            Event::Reconcile => {
                let reconciled = Box::pin(self.reconcile(now, deadline)).await;
                let (report, answer) = (reconciled.report.clone(), reconciled.told());
                teller.tell("reconcile", report);
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
