//! Events of Amazon EventBridge, as they are delivered.
//!
//! AWS: [event structure](https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html).

use serde_json::Value;
use tidegate_domain::time::EpochMillis;

/// An event. Only its envelope has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct BusEvent {
    json: Value,
    source: String,
    time: Option<EpochMillis>,
}

/// Why a value is not an event.
#[derive(Debug, thiserror::Error)]
pub enum MalformedEvent {
    #[error("the event is not JSON")]
    Json(#[from] serde_json::Error),
    #[error("the event is {0}: expected an object")]
    Shape(&'static str),
    /// It does not say where it is from.
    #[error("the event has no source")]
    Source,
    /// A part of its envelope cannot be.
    #[error("{key} is {value}: expected {expected}")]
    Part { key: &'static str, value: String, expected: &'static str },
}

impl BusEvent {
    /// Reads an event's text.
    pub fn parse(text: &str) -> Result<Self, MalformedEvent> {
        Self::from_json(serde_json::from_str(text)?)
    }

    /// Reads an event.
    pub fn from_json(json: Value) -> Result<Self, MalformedEvent> {
        if !json.is_object() {
            return Err(MalformedEvent::Shape(kind(&json)));
        }
        let source = match &json["source"] {
            Value::Null => return Err(MalformedEvent::Source),
            Value::String(source) if source.is_empty() => return Err(MalformedEvent::Source),
            Value::String(source) => source.clone(),
            source => return Err(part("source", source, "a string")),
        };
        let time = match &json["time"] {
            Value::Null => None,
            time => {
                let read = time.as_str().and_then(EpochMillis::parse);
                Some(read.ok_or_else(|| part("time", time, "a time like 2026-01-01T14:00:00Z"))?)
            }
        };
        if !matches!(json["detail-type"], Value::Null | Value::String(_)) {
            return Err(part("detail-type", &json["detail-type"], "a string"));
        }
        Ok(Self { json, source, time })
    }

    /// The whole event, as patterns see it.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Which service, or whose application, it is from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What kind of event it is; `None` if that is not said.
    pub fn detail_type(&self) -> Option<&str> {
        self.json["detail-type"].as_str().filter(|detail_type| !detail_type.is_empty())
    }

    /// When it happened; `None` if that is not said.
    pub fn time(&self) -> Option<EpochMillis> {
        self.time
    }

    /// The event's own id, which repetitions share; `None` if it has none.
    pub fn id(&self) -> Option<&str> {
        self.json["id"].as_str()
    }

    /// What is at the end of a path of keys.
    pub fn at(&self, path: &[String]) -> Option<&Value> {
        path.iter().try_fold(&self.json, |value, key| value.as_object()?.get(key))
    }
}

fn part(key: &'static str, value: &Value, expected: &'static str) -> MalformedEvent {
    MalformedEvent::Part { key, value: value.to_string(), expected }
}

fn kind(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(text: &str, expect: &str) {
        let message = BusEvent::parse(text).unwrap_err().to_string();
        assert_eq!(message, expect, "{text}");
    }

    #[test]
    fn the_envelope_is_read() -> Result<(), MalformedEvent> {
        let event = BusEvent::parse(
            r#"{"id": "e-1", "source": "aws.emr", "detail-type": "EMR Cluster State Change",
                "time": "2026-01-01T00:00:00Z", "detail": {"clusterId": "j-1"}}"#,
        )?;
        assert_eq!((event.id(), event.source()), (Some("e-1"), "aws.emr"));
        assert_eq!(event.detail_type(), Some("EMR Cluster State Change"));
        assert_eq!(event.time().map(EpochMillis::get), Some(1_767_225_600_000));
        let at = |path: &[&str]| event.at(&path.iter().copied().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(at(&["detail", "clusterId"]), Some(&"j-1".into()));
        assert_eq!((at(&["detail", "stepId"]), at(&["detail", "clusterId", "0"])), (None, None));
        Ok(())
    }

    #[test]
    fn only_the_source_is_needed() -> Result<(), MalformedEvent> {
        let event = BusEvent::parse(r#"{"source": "my.jobs", "detail-type": ""}"#)?;
        assert_eq!((event.id(), event.detail_type(), event.time()), (None, None, None));
        Ok(())
    }

    #[test]
    fn invalid_events_say_why() {
        check_error("j-1", "the event is not JSON");
        check_error("[]", "the event is a list: expected an object");
        check_error("7", "the event is a number: expected an object");
        check_error("{}", "the event has no source");
        check_error(r#"{"source": null}"#, "the event has no source");
        check_error(r#"{"source": ""}"#, "the event has no source");
        check_error(r#"{"source": 7}"#, "source is 7: expected a string");
        check_error(r#"{"source": "a", "detail-type": 7}"#, "detail-type is 7: expected a string");
        check_error(
            r#"{"source": "a", "time": "yesterday"}"#,
            r#"time is "yesterday": expected a time like 2026-01-01T14:00:00Z"#,
        );
    }
}
