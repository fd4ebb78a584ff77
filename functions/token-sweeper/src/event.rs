//! What the function is invoked with: messages of a queue, an event, or the schedule's call for a reconcile. And how a
//! batch of messages is answered.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_aws::event::{BusEvent, MalformedEvent};

/// The function's event.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub enum Event {
    /// `{"Records": [...]}`, from an SQS queue.
    Batch(Vec<Message>),
    /// An event of EventBridge, from a rule whose target is the function. It is not checked yet.
    Direct(Value),
    /// `{"action": "reconcile"}`, from a schedule.
    Reconcile,
}

/// A message of a queue, in which an event should be.
///
/// AWS: [SQS events](https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html).
#[derive(Clone, Debug, PartialEq)]
pub struct Message(Value);

/// A message that cannot hold an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    #[error("the message is from {0}: expected one from \"aws:sqs\"")]
    Source(String),
    #[error("the message has no body")]
    Body,
}

/// The messages to be delivered again.
///
/// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    pub batch_item_failures: Vec<ItemFailure>,
}

/// A message to be delivered again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemFailure {
    pub item_identifier: String,
}

/// Why the whole batch must be delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message failed and has no id to report, so the whole batch must be delivered again")]
pub struct Unreportable;

/// An event with invalid `Records`, or with an unknown action.
#[derive(Debug, thiserror::Error)]
pub enum UnknownEvent {
    #[error("`Records` is {0}: expected a list")]
    Records(Value),
    #[error("action is {0}: expected \"reconcile\"")]
    Action(Value),
}

impl TryFrom<Value> for Event {
    type Error = UnknownEvent;

    fn try_from(mut event: Value) -> Result<Self, UnknownEvent> {
        let Some(object) = event.as_object_mut() else { return Ok(Self::Direct(event)) };
        match (object.remove("Records"), &object.get("action")) {
            (Some(Value::Array(records)), _) => Ok(Self::Batch(records.into_iter().map(Message).collect())),
            (Some(records), _) => Err(UnknownEvent::Records(records)),
            (None, Some(action)) if is_call(object) => match action.as_str() {
                Some("reconcile") => Ok(Self::Reconcile),
                _ => Err(UnknownEvent::Action((*action).clone())),
            },
            (None, _) => Ok(Self::Direct(event)),
        }
    }
}

/// Returns whether an object is a call, not an event.
fn is_call(object: &Map<String, Value>) -> bool {
    !object.contains_key("source")
}

impl Message {
    /// The id by which a failure is reported; `None` if it is missing or empty.
    pub fn id(&self) -> Option<&str> {
        self.0["messageId"].as_str().filter(|id| !id.is_empty())
    }

    pub(crate) fn event(&self) -> Result<BusEvent, NoEvent> {
        match &self.0["eventSource"] {
            Value::String(source) if source == "aws:sqs" => {}
            source => return Err(MalformedMessage::Source(source.to_string()).into()),
        }
        let body = self.0["body"].as_str().ok_or(MalformedMessage::Body)?;
        Ok(BusEvent::parse(body)?)
    }
}

/// Why a message holds no event.
#[derive(Debug, thiserror::Error)]
pub enum NoEvent {
    #[error(transparent)]
    Message(#[from] MalformedMessage),
    #[error(transparent)]
    Event(#[from] MalformedEvent),
}

impl BatchAnswer {
    /// Names each failed message. A null or empty identifier would make SQS deliver the whole batch again without a readable
    /// error.
    pub(crate) fn of<'a>(failures: impl IntoIterator<Item = &'a Message>) -> Result<Self, Unreportable> {
        let failure = |message: &'a Message| Some(ItemFailure { item_identifier: message.id()?.to_owned() });
        let failures = failures.into_iter().map(failure).collect::<Option<_>>();
        Ok(Self { batch_item_failures: failures.ok_or(Unreportable)? })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(event: &Value) -> Event {
        serde_json::from_str(&event.to_string()).unwrap()
    }

    fn check_error(event: &str, expect: &str) {
        let message = serde_json::from_str::<Event>(event).unwrap_err().to_string();
        assert!(message.contains(expect), "{message:?} does not say {expect:?}");
    }

    /// `expect` is what the error says.
    fn check_no_event(message: Value, expect: &str) {
        let error = Message(message).event().unwrap_err();
        assert_eq!(error.to_string(), expect);
    }

    #[test]
    fn an_event_is_one_of_three() {
        assert!(matches!(read(&json!({"action": "reconcile"})), Event::Reconcile));
        assert!(matches!(read(&json!({"Records": [{}, 7]})), Event::Batch(messages) if messages.len() == 2));
        let check_direct = |event: Value| assert!(matches!(read(&event), Event::Direct(direct) if direct == event));
        check_direct(json!({"source": "aws.emr"}));
        check_direct(json!({"source": "my.jobs", "action": "stop"}));
        check_direct(json!({}));
        check_direct(json!(7));
        check_error(r#"{"action": "recon"}"#, "\"recon\"");
        check_error(r#"{"action": null}"#, "null");
        check_error(r#"{"Records": 7}"#, "7");
    }

    #[test]
    fn a_message_is_read() {
        let body = r#"{"source": "aws.emr"}"#;
        let message = Message(json!({"messageId": "m-1", "eventSource": "aws:sqs", "body": body}));
        assert_eq!((message.id(), message.event().unwrap().source()), (Some("m-1"), "aws.emr"));
    }

    #[test]
    fn invalid_messages_say_why() {
        check_no_event(json!(7), "the message is from null: expected one from \"aws:sqs\"");
        check_no_event(
            json!({"eventSource": "aws:s3", "body": "{}"}),
            "the message is from \"aws:s3\": expected one from \"aws:sqs\"",
        );
        check_no_event(json!({"eventSource": "aws:sqs"}), "the message has no body");
        check_no_event(json!({"eventSource": "aws:sqs", "body": {}}), "the message has no body");
        check_no_event(json!({"eventSource": "aws:sqs", "body": "{"}), "the event is not JSON");
        check_no_event(json!({"eventSource": "aws:sqs", "body": "{}"}), "the event has no source");
    }

    #[test]
    fn failures_are_reported_by_id() {
        let messages = |ids: &[Value]| ids.iter().map(|id| Message(json!({"messageId": id}))).collect::<Vec<_>>();
        let check = |ids: &[Value], expect: Result<Value, Unreportable>| {
            let answer = BatchAnswer::of(&messages(ids));
            assert_eq!(answer.map(|answer| serde_json::to_value(answer).unwrap()), expect);
        };
        check(&[], Ok(json!({"batchItemFailures": []})));
        let two = json!({"batchItemFailures": [{"itemIdentifier": "m-1"}, {"itemIdentifier": "m-2"}]});
        check(&[json!("m-1"), json!("m-2")], Ok(two));
        check(&[json!("m-1"), json!("")], Err(Unreportable));
        check(&[json!(null)], Err(Unreportable));
    }
}
