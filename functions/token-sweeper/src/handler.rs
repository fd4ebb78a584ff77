//! One invocation: reads the events, deletes the tokens of each ended resource, decides on each event, and answers. Or it is
//! a reconcile.

use std::slice;

use serde::Serialize;
use serde_json::Value;
use tidegate_aws::event::BusEvent;
use tidegate_domain::time::EpochMillis;
use tidegate_lambda::process::{Diagnostic, Invocation, diagnostic};
use tokio::time::Instant;

use crate::{
    TokenSweeper,
    decision::{Decision, EventDecision, Failure, ReadEvent, ended},
    event::{BatchAnswer, Event, Message, NoEvent},
    reconcile::ReconcileAnswer,
    report::{Handled, SweepReport},
};

/// The function's answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To messages: only what SQS understands. The decisions are in the log.
    Batch(BatchAnswer),
    Direct(EventDecision),
    Reconcile(ReconcileAnswer),
}

impl TokenSweeper {
    /// Does what the event asks for, and writes the metrics.
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
                    _ => Ok(Answer::Direct(decided)),
                }
            }
            Event::Reconcile => {
                let reconciled = Box::pin(self.reconcile(now, deadline)).await;
                emitter.emit("reconcile", reconciled.report.clone());
                match reconciled.error {
                    Some(error) => Err(diagnostic("ReconcileError", &error)),
                    None => Ok(Answer::Reconcile(reconciled.answer())),
                }
            }
        }
    }

    /// Handles the messages of a queue at the moment `now`. What is not done by `deadline` has failed. Each token is
    /// deleted on the condition that it still is the resource's, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, messages: &[Message], now: EpochMillis, deadline: Instant) -> Handled {
        let read = |message: &Message| ReadEvent::read(&self.processors, message.event());
        let events: Vec<_> = messages.iter().map(read).collect();
        let removed = self.remove_tokens(ended(&events), now, deadline).await;
        let decided: Vec<_> = events.into_iter().map(|event| event.decide(&removed, now, self.grace)).collect();
        Handled::of(messages, decided, &removed)
    }

    /// Handles one event at the moment `now`.
    pub async fn handle_event(
        &self,
        event: Value,
        now: EpochMillis,
        deadline: Instant,
    ) -> (EventDecision, SweepReport) {
        let event = ReadEvent::read(&self.processors, BusEvent::from_json(event).map_err(NoEvent::from));
        let removed = self.remove_tokens(ended(slice::from_ref(&event)), now, deadline).await;
        let decided = event.decide(&removed, now, self.grace);
        let report = SweepReport::log_and_count(slice::from_ref(&decided), [None], &removed);
        (decided, report)
    }
}

fn error_type(failure: &Failure) -> &'static str {
    match failure {
        Failure::Malformed(_) | Failure::Timeless => "MalformedEvent",
        Failure::Unprocessable(_) => "UnprocessableEvent",
        Failure::Call { .. } => "SweepError",
    }
}
