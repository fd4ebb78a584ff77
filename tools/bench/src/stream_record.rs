//! A DynamoDB stream record as Lambda delivers it, to be written as JSON: fields and attributes keep
//! their order, because a decoder may be quicker on one order than on another.
//!
//! AWS: [the event's shape](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// An invocation's event.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Batch<'a> {
    pub records: Vec<Record<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record<'a> {
    #[serde(rename = "eventID")]
    pub event_id: String,
    pub event_name: &'static str,
    pub event_version: &'static str,
    pub event_source: &'static str,
    pub aws_region: &'static str,
    pub dynamodb: Change<'a>,
    #[serde(rename = "eventSourceARN")]
    pub event_source_arn: &'static str,
}

/// What a record says of its item.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Change<'a> {
    /// Epoch seconds.
    pub approximate_creation_date_time: u64,
    pub keys: Image<'a>,
    pub sequence_number: String,
    pub size_bytes: u64,
    pub stream_view_type: &'static str,
    pub new_image: Image<'a>,
    pub old_image: Image<'a>,
}

/// An item, or its key: names and values.
pub struct Image<'a>(pub Vec<(Cow<'a, str>, Value<'a>)>);

impl Serialize for Image<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// An attribute's value, in `DynamoDB`'s JSON.
#[derive(Serialize)]
pub enum Value<'a> {
    #[serde(rename = "S")]
    Text(Cow<'a, str>),
    #[serde(rename = "N")]
    Number(String),
    #[serde(rename = "BOOL")]
    Boolean(bool),
}

/// A string attribute.
pub fn text<'a>(name: &'a str, value: impl Into<Cow<'a, str>>) -> (Cow<'a, str>, Value<'a>) {
    (name.into(), Value::Text(value.into()))
}

pub fn number<'a>(name: impl Into<Cow<'a, str>>, value: u64) -> (Cow<'a, str>, Value<'a>) {
    (name.into(), Value::Number(value.to_string()))
}

pub fn boolean(name: &str, value: bool) -> (Cow<'_, str>, Value<'_>) {
    (name.into(), Value::Boolean(value))
}
