//! Reads an event, and decides on it after the tokens of its resource were deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tidegate_aws::{
    error::{CallError, causes},
    event::BusEvent,
    processors::{Processors, Reading, Unprocessable},
};
use tidegate_domain::{
    sweep::{self, Outcome, Removals},
    time::EpochMillis,
};

use crate::{event::NoEvent, removal::Removed};

/// What an event says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// The event's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(skip)]
    pub source: Option<String>,
    #[serde(skip)]
    pub detail_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The resource that has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
}

/// What is decided on one event. It serializes as the answer to a direct event.
#[derive(Debug, Serialize)]
pub struct EventDecision {
    #[serde(flatten)]
    pub about: About,
    #[serde(flatten)]
    pub decision: Decision,
}

/// What is decided on one event.
#[derive(Debug)]
pub enum Decision {
    /// It is not an end: it does not match its processor's pattern.
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

/// An event that was read and is not decided on yet.
pub(crate) struct ReadEvent {
    about: About,
    /// The end of a resource, or the decision if the event is not an end.
    end: Result<End, Decision>,
}

/// The end of a resource.
struct End {
    resource: String,
    time: Option<EpochMillis>,
}

impl ReadEvent {
    /// Reads what an event says.
    pub(crate) fn read(processors: &Processors, event: Result<BusEvent, NoEvent>) -> Self {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Self { about: About::default(), end: Err(Decision::Failed(error.into())) },
        };
        let (processor, end) = match processors.read(&event) {
            Ok(Reading::Ended { processor, resource }) => {
                (Some(processor), Ok(End { resource: resource.to_owned(), time: event.time() }))
            }
            Ok(Reading::NotAnEnd { processor }) => (Some(processor), Err(Decision::NoEnd)),
            Err(error) => (None, Err(Decision::Failed(error.into()))),
        };
        let about = About {
            event: event.id().map(str::to_owned),
            source: Some(event.source().to_owned()),
            detail_type: event.detail_type().map(str::to_owned),
            processor: processor.map(str::to_owned),
            resource: None,
        };
        Self { about, end }
    }

    /// Decides on the event, now that it is known what became of the tokens of all resources that have ended.
    pub(crate) fn decide(
        self,
        removed: &BTreeMap<String, Removed>,
        now: EpochMillis,
        grace: Duration,
    ) -> EventDecision {
        let Self { mut about, end } = self;
        let decision = match end {
            Ok(End { resource, time }) => {
                let decision = decide(&removed[&resource], time, now, grace);
                about.resource = Some(resource);
                decision
            }
            Err(decision) => decision,
        };
        EventDecision { about, decision }
    }
}

/// Returns the resources that have ended by these events.
pub(crate) fn ended(events: &[ReadEvent]) -> BTreeSet<&str> {
    events.iter().filter_map(|event| Some(event.end.as_ref().ok()?.resource.as_str())).collect()
}

/// Decides on the end of a resource by what became of its tokens.
fn decide(removed: &Removed, ended: Option<EpochMillis>, now: EpochMillis, grace: Duration) -> Decision {
    match (&removed.error, ended) {
        (Some(error), _) => Decision::Failed(error.into()),
        (None, _) if removed.kept > 0 => Decision::Found(removed.kept),
        (None, None) if removed.removals.found() == 0 => Decision::Failed(Failure::Timeless),
        (None, ended) => {
            let age = ended.map_or(Duration::ZERO, |ended| now.since(ended));
            Decision::Decided(sweep::decide(&removed.removals, age, grace), removed.removals)
        }
    }
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

    pub const fn deleted(&self) -> usize {
        match self {
            Self::Decided(_, removals) => removals.deleted,
            _ => 0,
        }
    }

    /// Whether the event is dealt with. If not, its message must be delivered again.
    pub const fn is_done(&self) -> bool {
        !matches!(self, Self::Failed(_) | Self::Decided(Outcome::Early, _))
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Decision", 3)?;
        fields.serialize_field("decision", self.name())?;
        fields.serialize_field("why", &self.why())?;
        fields.serialize_field("deleted", &self.deleted())?;
        fields.end()
    }
}

impl EventDecision {
    /// Writes one line for the event.
    pub(crate) fn log(&self, message: Option<&str>) {
        let Self { about: About { event, source, detail_type, processor, resource }, decision } = self;
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
