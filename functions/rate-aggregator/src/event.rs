//! What the function is invoked with: the schedule's call, or a call for a single aggregation.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The function's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Event {
    /// Any object without an `action`, such as a schedule sends: aggregations until the time is nearly up.
    Schedule,
    /// `{"action": "once"}`: one aggregation.
    Once,
}

/// The function's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// How often it aggregated.
    pub aggregations: usize,
    /// How the last aggregation of each job ended, without the idle jobs that it did not list.
    pub jobs: Vec<JobResponse>,
}

/// How the aggregation of a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobResponse {
    /// The job's prefix.
    pub prefix: String,
    /// `published`, `superseded`, `lost` or `idle`.
    pub outcome: &'static str,
    /// The number of the summary that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    pub active_workers: usize,
    /// Workers that have not reported lately.
    pub stale_workers: usize,
    /// Workers whose report is invalid.
    pub rejected_workers: usize,
}

/// An event that is not an object, or has an unknown action.
#[derive(Debug, thiserror::Error)]
pub enum UnknownEvent {
    #[error("the event is {0}: expected an object")]
    Shape(Value),
    #[error("action is {0}: expected \"once\", or no action")]
    Action(Value),
}

impl TryFrom<Value> for Event {
    type Error = UnknownEvent;

    fn try_from(event: Value) -> Result<Self, UnknownEvent> {
        let Some(object) = event.as_object() else { return Err(UnknownEvent::Shape(event)) };
        match object.get("action") {
            None => Ok(Self::Schedule),
            Some(Value::String(action)) if action == "once" => Ok(Self::Once),
            Some(action) => Err(UnknownEvent::Action(action.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(event: &str, expect: Event) {
        assert_eq!(serde_json::from_str::<Event>(event).unwrap(), expect, "{event}");
    }

    fn check_error(event: &str, expect: &str) {
        let message = serde_json::from_str::<Event>(event).unwrap_err().to_string();
        assert!(message.contains(expect), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn an_event_is_a_schedule_or_once() {
        check("{}", Event::Schedule);
        check(r#"{"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}"#, Event::Schedule);
        check(r#"{"action": "once"}"#, Event::Once);
        check_error(r#"{"action": "twice"}"#, "\"twice\"");
        check_error(r#"{"action": null}"#, "null");
        check_error("7", "the event is 7");
    }
}
