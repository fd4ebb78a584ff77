//! What is decided on one event, and why.

use serde::Serialize;
use tidegate_aws::{
    error::{CallError, causes},
    event::BusEvent,
    processors::Unprocessable,
};
use tidegate_domain::sweep::{Outcome, Removals};

use crate::event::NoEvent;

/// What is decided on one event.
#[derive(Debug)]
pub enum Decision {
    /// It is no end: it does not match its processor's pattern.
    NoEnd,
    /// A resource has ended, and this is what became of its tokens.
    Decided(Outcome, Removals),
    /// A resource has ended, and a dry run leaves this many tokens of it.
    Found(usize),
    /// It could not be dealt with.
    Failed(Failure),
}

/// Why an event could not be dealt with.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Malformed(#[from] NoEvent),
    /// No processor can say what has ended.
    #[error(transparent)]
    Unprocessable(#[from] Unprocessable),
    /// It does not tell since when a token is missing.
    #[error("the event has no time and the resource has no token, so the grace period cannot be checked")]
    Timeless,
    /// A call did not succeed.
    #[error("{reason}")]
    Call {
        /// Why, with all causes.
        reason: String,
        /// Whether it may succeed later.
        is_retryable: bool,
    },
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self::Call { reason: causes(error), is_retryable: error.is_retryable() }
    }
}

/// A decision, and on what it was made.
#[derive(Debug)]
pub struct EventDecision {
    /// The event's own id.
    pub event: Option<String>,
    pub source: Option<String>,
    /// What kind of event it is.
    pub detail_type: Option<String>,
    pub processor: Option<String>,
    pub resource: Option<String>,
    pub decision: Decision,
}

/// A decision, as it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventResponse {
    /// The event's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What was decided: [`Decision::name`].
    pub decision: &'static str,
    pub why: String,
    pub deleted: usize,
}

impl Decision {
    /// The decision in a word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoEnd => "no-end",
            Self::Decided(Outcome::Deleted, _) => "deleted",
            Self::Decided(Outcome::AlreadyGone, _) => "already-gone",
            Self::Decided(Outcome::Early, _) => "early",
            Self::Decided(Outcome::Untracked, _) => "untracked",
            Self::Found(_) => "would-delete",
            Self::Failed(_) => "failed",
        }
    }

    pub fn why(&self) -> String {
        match self {
            Self::NoEnd => "the event does not match the processor's pattern".to_owned(),
            Self::Decided(Outcome::Deleted, removals) => match removals.already_gone + removals.changed {
                0 => "the resource has ended".to_owned(),
                others => format!("the resource has ended; of its tokens, {others} were gone or another's by then"),
            },
            Self::Decided(Outcome::AlreadyGone, Removals { changed: 0, .. }) => "its tokens were gone".to_owned(),
            Self::Decided(Outcome::AlreadyGone, Removals { changed, .. }) => {
                format!("of its tokens, {changed} bear another resource by now, and none is left")
            }
            Self::Decided(Outcome::Early, _) => "no token yet: one may still be written".to_owned(),
            Self::Decided(Outcome::Untracked, _) => "no token, and none is to be expected".to_owned(),
            Self::Found(tokens) => format!("the resource has ended; a dry run leaves its tokens ({tokens})"),
            Self::Failed(failure) => causes(failure),
        }
    }

    /// Whether the event is done with. If not, its message must come again.
    pub const fn is_done(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Decided(Outcome::Early, _))
    }
}

impl EventDecision {
    /// What an event says of itself. `decision` is what holds unless a resource has ended by it.
    pub(crate) fn on(event: Option<&BusEvent>, decision: Decision) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            event: owned(event.and_then(BusEvent::id)),
            source: owned(event.map(BusEvent::source)),
            detail_type: owned(event.and_then(BusEvent::detail_type)),
            processor: None,
            resource: None,
            decision,
        }
    }

    pub fn response(&self) -> EventResponse {
        let deleted = match &self.decision {
            Decision::Decided(_, removals) => removals.deleted,
            _ => 0,
        };
        EventResponse {
            event: self.event.clone(),
            processor: self.processor.clone(),
            resource: self.resource.clone(),
            decision: self.decision.name(),
            why: self.decision.why(),
            deleted,
        }
    }

    /// As it is logged: one line an event.
    pub(crate) fn log(&self, message: Option<&str>) {
        let Self { event, source, detail_type, processor, resource, decision } = self;
        let (event, source, detail_type) = (event.as_deref(), source.as_deref(), detail_type.as_deref());
        let (processor, resource) = (processor.as_deref(), resource.as_deref());
        let (name, why) = (decision.name(), decision.why());
        // The level of a line must be known when it is compiled.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    message_id = message,
                    event,
                    source,
                    detail_type,
                    processor,
                    resource,
                    decision = name,
                    why
                )
            };
        }
        match decision {
            Decision::Failed(Failure::Call { is_retryable: true, .. }) => line!(warn),
            Decision::Failed(_) => line!(error),
            _ => line!(info),
        }
    }
}
