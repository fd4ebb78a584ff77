//! What the function is invoked with: a batch of the stream, or the schedule's call for a repair.

use aws_lambda_events::streams::DynamoDbEventResponse;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_aws::stream::StreamEvent;

/// The function's event.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Shape")]
pub enum Event {
    /// `{"Records": [...]}`, from an event source mapping.
    Batch(StreamEvent),
    /// `{"action": "repair"}`, from a schedule.
    Repair,
}

/// The function's answer.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Batch(DynamoDbEventResponse),
    Repair {
        /// How many sharded buckets were looked at.
        buckets: usize,
        /// Whether those were all that were left; if not, the next repair goes on where this one stopped.
        complete: bool,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum UnknownEvent {
    #[error("expected an event with `Records`, or with the `action` \"repair\"")]
    Neither,
    #[error("action is {0:?}: expected \"repair\"")]
    Action(String),
}

#[derive(Deserialize)]
struct Shape {
    #[serde(rename = "Records")]
    records: Option<Vec<Box<RawValue>>>,
    action: Option<String>,
}

impl TryFrom<Shape> for Event {
    type Error = UnknownEvent;

    fn try_from(shape: Shape) -> Result<Self, UnknownEvent> {
        match shape {
            Shape { records: Some(records), .. } => Ok(Self::Batch(StreamEvent { records })),
            Shape { action: Some(action), .. } if action == "repair" => Ok(Self::Repair),
            Shape { action: Some(action), .. } => Err(UnknownEvent::Action(action)),
            Shape { .. } => Err(UnknownEvent::Neither),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(event: &str, expect: &str) {
        let message = serde_json::from_str::<Event>(event).unwrap_err().to_string();
        assert!(message.contains(expect), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn an_event_is_a_batch_or_a_repair() {
        assert!(matches!(serde_json::from_str(r#"{"action": "repair"}"#), Ok(Event::Repair)));
        let batch = r#"{"Records": [{"any": 1}, 7]}"#;
        assert!(matches!(serde_json::from_str(batch), Ok(Event::Batch(StreamEvent { records })) if records.len() == 2));
        check_error("{}", "`Records`");
        check_error(r#"{"action": "rapair"}"#, "\"rapair\"");
        check_error(r#"{"Records": 7}"#, "7");
    }
}
