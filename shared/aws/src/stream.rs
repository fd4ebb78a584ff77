//! The table's stream: from the bytes of a Lambda event to what they say of a bucket.
//!
//! An event is split into its records without looking into them ([`StreamEvent`]), so that a
//! malformed record fails alone. Each is then decoded once, borrowing its names from the text, and
//! only the attributes that matter are read; the rest is skipped as it is scanned.
//!
//! AWS: [the event's shape](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).

mod images;

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, value::RawValue};
use serde_path_to_error::Segment;
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counters},
    sequence::{SequenceNumber, StreamLabel},
    time::EpochMillis,
};

use crate::schema::{self, InvalidBucketKey, bucket};

/// What an event source mapping delivers: the records of one batch, in stream order, undecoded.
#[derive(Debug, Deserialize)]
pub struct StreamEvent {
    /// Each record's JSON text.
    #[serde(rename = "Records")]
    pub records: Vec<Box<RawValue>>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a, I = Counters<'a>> {
    /// A change of a bucket item.
    Change(BucketChange<'a, I>),
    /// A change of some other item of the table: a snapshot, a configuration, an audit entry.
    NotOurs,
}

/// What of a bucket item's image a function reads: its [`Counters`], or the whole
/// [`BucketImage`](tidegate_domain::state::BucketImage).
pub trait StreamImage<'a>: Default {
    /// The attributes that matter, as they stand in the JSON text.
    type Raw: Deserialize<'a>;

    /// What the attributes say; `path` leads to the image in the record.
    fn read(raw: Self::Raw, path: &str) -> Result<Self, DecodeError>;
}

/// Decodes one record of a [`StreamEvent`].
pub fn decode<'a, I: StreamImage<'a>>(record: &'a str) -> Result<Record<'a, I>, DecodeError> {
    let RawRecord { event_name, source, dynamodb } = match serde_json::from_str::<RawRecord<'a, I::Raw>>(record) {
        Ok(record) => record,
        Err(_) if is_foreign(record) => return Ok(Record::NotOurs),
        Err(_) => return Err(locate_fault::<I::Raw>(record)),
    };
    let change = required(dynamodb, "dynamodb")?;
    if let Some(Text(view)) = change.view_type
        && view != VIEW_TYPE
    {
        let problem = format!("is {view:?}: the table's stream must be enabled with {VIEW_TYPE}");
        return Err(DecodeError { field: "dynamodb.StreamViewType".to_owned(), problem, is_systemic: true });
    }
    let keys = required(change.keys, "dynamodb.Keys")?;
    let Some(parsed) = keys.parse_bucket() else { return Ok(Record::NotOurs) };
    let bucket = parsed.map_err(|source| DecodeError::invalid("dynamodb.Keys.PK", &keys.pk.s.0, source))?;

    let event_name = required(event_name, "eventName")?.0;
    let kind = match event_name.as_ref() {
        "INSERT" => ChangeKind::Created,
        "MODIFY" => ChangeKind::Updated,
        "REMOVE" => ChangeKind::Removed,
        other => return Err(DecodeError::invalid("eventName", other, "expected INSERT, MODIFY or REMOVE")),
    };
    let Text(source) = required(source, "eventSourceARN")?;
    let label = source.split_once("/stream/").map_or("", |(_, label)| label);
    let stream = StreamLabel::parse(label).map_err(|error| DecodeError::invalid("eventSourceARN", &source, error))?;
    let sequence = required(change.sequence_number, "dynamodb.SequenceNumber")?.0;
    let sequence = SequenceNumber::parse(&sequence)
        .map_err(|source| DecodeError::invalid("dynamodb.SequenceNumber", &sequence, source))?;
    let created = creation_time(required(change.creation_time, "dynamodb.ApproximateCreationDateTime")?)?;
    // Without both images of an update, its consumption would be counted from zero.
    let old = match kind {
        ChangeKind::Created | ChangeKind::Removed => I::default(),
        ChangeKind::Updated => image(change.old_image, "dynamodb.OldImage")?,
    };
    let new = match kind {
        ChangeKind::Created | ChangeKind::Updated => image(change.new_image, "dynamodb.NewImage")?,
        ChangeKind::Removed => I::default(),
    };
    Ok(Record::Change(BucketChange { bucket, stream, sequence, created, kind, old, new }))
}

/// The sequence number of a record, whatever else is wrong with it; `None` if it has none by which a
/// batch item failure could name it.
pub fn sequence_number(record: &str) -> Option<SequenceNumber> {
    #[derive(Deserialize)]
    struct Identified<'a> {
        #[serde(borrow)]
        dynamodb: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Sequenced<'a> {
        #[serde(borrow, rename = "SequenceNumber")]
        sequence_number: Text<'a>,
    }
    let record: Identified<'_> = serde_json::from_str(record).ok()?;
    let change: Sequenced<'_> = serde_json::from_str(record.dynamodb.get()).ok()?;
    SequenceNumber::parse(&change.sequence_number.0).ok()
}

/// The table that a record says it is of; `None` if it says nothing of the kind.
pub fn table_name(record: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Sourced<'a> {
        #[serde(borrow, rename = "eventSourceARN")]
        source: Text<'a>,
    }
    let Sourced { source: Text(source) } = serde_json::from_str(record).ok()?;
    let (_, table) = source.split_once(":table/")?;
    Some(table.split_once("/stream/")?.0.to_owned())
}

/// What the stream must show of each change.
///
/// AWS: [stream view types](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html#Streams.Enabling).
const VIEW_TYPE: &str = "NEW_AND_OLD_IMAGES";

/// Why a record cannot be decoded: which field, and the value that is wrong. Never worth a retry.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DecodeError {
    field: String,
    problem: String,
    is_systemic: bool,
}

impl DecodeError {
    /// The path of the field, like `dynamodb.NewImage.b_rpm_tc`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Whether all records of the stream are wrong in this way, until an operator corrects its configuration.
    pub(crate) const fn is_systemic(&self) -> bool {
        self.is_systemic
    }

    fn invalid(field: impl Into<String>, value: &str, reason: impl fmt::Display) -> Self {
        let problem = format!("{} is invalid: {}", excerpt(&format!("{value:?}")), excerpt(&reason.to_string()));
        Self { field: field.into(), problem, is_systemic: false }
    }
}

/// The beginning of a text: a log line must not hold a whole item.
fn excerpt(text: &str) -> Cow<'_, str> {
    const LENGTH: usize = 200;
    match text.char_indices().nth(LENGTH) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, DecodeError> {
    value.ok_or_else(|| DecodeError { field: field.to_owned(), problem: "is missing".to_owned(), is_systemic: false })
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct RawRecord<'a, R> {
    #[serde(borrow, rename = "eventName")]
    event_name: Option<Text<'a>>,
    #[serde(borrow, rename = "eventSourceARN")]
    source: Option<Text<'a>>,
    #[serde(borrow)]
    dynamodb: Option<RawChange<'a, R>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
struct RawChange<'a, R> {
    #[serde(borrow, rename = "Keys")]
    keys: Option<Keys<'a>>,
    #[serde(rename = "OldImage")]
    old_image: Option<R>,
    #[serde(rename = "NewImage")]
    new_image: Option<R>,
    #[serde(borrow, rename = "SequenceNumber")]
    sequence_number: Option<Text<'a>>,
    #[serde(borrow, rename = "ApproximateCreationDateTime")]
    creation_time: Option<&'a RawValue>,
    #[serde(borrow, rename = "StreamViewType")]
    view_type: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(borrow, rename = "PK")]
    pk: StringAttribute<'a>,
    #[serde(borrow, rename = "SK")]
    sk: StringAttribute<'a>,
}

#[derive(Deserialize)]
struct StringAttribute<'a> {
    #[serde(borrow, rename = "S")]
    s: Text<'a>,
}

/// A string that borrows from the JSON text unless an escape forbids it.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns whether an unparsable record belongs to another kind of item and can be skipped.
fn is_foreign(record: &str) -> bool {
    #[derive(Deserialize)]
    struct Keyed<'a> {
        #[serde(borrow)]
        dynamodb: KeyedChange<'a>,
    }
    #[derive(Deserialize)]
    struct KeyedChange<'a> {
        #[serde(borrow, rename = "Keys")]
        keys: Keys<'a>,
    }
    serde_json::from_str::<Keyed<'_>>(record).is_ok_and(|record| record.dynamodb.keys.parse_bucket().is_none())
}

/// Parses a record again, for the path to what is wrong with it. Only malformed records pay for this second parse.
fn locate_fault<'a, R: Deserialize<'a>>(record: &'a str) -> DecodeError {
    let json = &mut serde_json::Deserializer::from_str(record);
    match serde_path_to_error::deserialize::<_, RawRecord<'a, R>>(json) {
        Ok(_) => DecodeError::invalid("record", record, "something follows its end"),
        Err(error) => {
            let (field, value) = locate(record, error.path());
            DecodeError::invalid(field, &value, error.into_inner())
        }
    }
}

/// The path to a fault, down to an attribute, and the JSON that stands there.
fn locate(record: &str, path: &serde_path_to_error::Path) -> (String, String) {
    let mut value = serde_json::from_str(record).unwrap_or(Value::Null);
    let mut field = String::new();
    for segment in path {
        let Segment::Map { key } = segment else { break };
        let Some(inner) = value.get_mut(key) else { break };
        // The type inside an attribute is part of its value.
        if inner.is_string() && matches!(key.as_str(), "S" | "N") {
            break;
        }
        value = inner.take();
        field.push_str(if field.is_empty() { "" } else { "." });
        field.push_str(key);
    }
    if field.is_empty() {
        field.push_str("record");
    }
    (field, value.to_string())
}

fn image<'a, I: StreamImage<'a>>(raw: Option<I::Raw>, path: &str) -> Result<I, DecodeError> {
    I::read(required(raw, path)?, path)
}

fn creation_time(seconds: &RawValue) -> Result<EpochMillis, DecodeError> {
    let invalid =
        |reason: &dyn fmt::Display| DecodeError::invalid("dynamodb.ApproximateCreationDateTime", seconds.get(), reason);
    // Lambda writes a double, at times with an exponent; a Duration takes only what is a time.
    let parsed: f64 = serde_json::from_str(seconds.get()).map_err(|_| invalid(&"expected epoch seconds"))?;
    let since_epoch = Duration::try_from_secs_f64(parsed).map_err(|error| invalid(&error))?;
    let millis = i64::try_from(since_epoch.as_millis()).map_err(|error| invalid(&error))?;
    EpochMillis::new(millis).map_err(|error| invalid(&error))
}

impl<'a> Keys<'a> {
    /// The bucket item's key; `None` if it is another item's.
    fn parse_bucket(&self) -> Option<Result<BucketKey<'a>, InvalidBucketKey>> {
        if self.sk.s.0 != bucket::STATE {
            return None;
        }
        match &self.pk.s.0 {
            Cow::Borrowed(pk) => schema::parse_bucket_pk(pk),
            Cow::Owned(pk) => schema::parse_bucket_pk(pk).map(|key| key.map(BucketKey::into_owned)),
        }
    }
}

/// The limit in the name of a limit's attribute, borrowed where the name is.
fn limit(attribute: Cow<'_, str>) -> Cow<'_, str> {
    fn part(name: &str) -> &str {
        bucket::limit_and_field(name).map_or("", |(limit, _)| limit)
    }
    match attribute {
        Cow::Borrowed(name) => Cow::Borrowed(part(name)),
        Cow::Owned(name) => Cow::Owned(part(&name).to_owned()),
    }
}

/// A number attribute that holds an integer: `{"N": "-1500"}`.
#[derive(Deserialize)]
#[serde(from = "IntegerAttribute")]
struct Integer(i64);

#[derive(Deserialize)]
struct IntegerAttribute {
    #[serde(rename = "N", deserialize_with = "integer")]
    n: i64,
}

impl From<IntegerAttribute> for Integer {
    fn from(attribute: IntegerAttribute) -> Self {
        Self(attribute.n)
    }
}

fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let Text(digits) = Text::deserialize(deserializer)?;
    digits.parse().map_err(|_| D::Error::custom("expected an integer of 64 bits"))
}
