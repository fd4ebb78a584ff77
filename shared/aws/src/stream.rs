//! The table's stream: from the bytes of a Lambda event to what they say of a bucket.
//!
//! An event is split into its records without looking into them ([`StreamEvent`]), so that a
//! malformed record fails alone. Each is then decoded once, borrowing its names from the text, and
//! only the attributes that matter are read; the rest is skipped as it is scanned.
//!
//! AWS: [the event's shape](https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html).

use std::{borrow::Cow, fmt, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, InvalidName, Limit},
    sequence::SequenceNumber,
    time::EpochMillis,
    tokens::Millitokens,
};

use crate::schema::{self, InvalidBucketKey, bucket};

/// What an event source mapping delivers: the records of one batch, in stream order, undecoded.
#[derive(Debug, Deserialize)]
pub struct StreamEvent {
    /// Each record's JSON text.
    #[serde(rename = "Records")]
    pub records: Vec<Box<RawValue>>,
}

/// What a record is about.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A change of a bucket item.
    Change(BucketChange<'a>),
    /// A change of some other item of the table: a snapshot, a configuration, an audit entry.
    NotOurs,
}

/// Decodes one record of a [`StreamEvent`].
///
/// # Errors
/// [`DecodeError`], which is permanent, if the record is not a stream record with both images, or
/// says of a bucket what a bucket cannot be.
pub fn decode(record: &str) -> Result<Record<'_>, DecodeError> {
    let RawRecord { event_name, dynamodb } = parse(record)?;
    let change = required(dynamodb, "dynamodb")?;
    let keys = required(change.keys, "dynamodb.Keys")?;
    if keys.sk.s.0 != bucket::STATE {
        return Ok(Record::NotOurs);
    }
    let Some(parsed) = keys.pk.parse_bucket() else { return Ok(Record::NotOurs) };
    let bucket = parsed.map_err(|source| DecodeError::invalid("dynamodb.Keys.PK", &keys.pk.s.0, source))?;

    let event_name = required(event_name, "eventName")?.0;
    let kind = match event_name.as_ref() {
        "INSERT" => ChangeKind::Created,
        "MODIFY" => ChangeKind::Updated,
        "REMOVE" => ChangeKind::Removed,
        other => return Err(DecodeError::invalid("eventName", other, "expected INSERT, MODIFY or REMOVE")),
    };
    let sequence = required(change.sequence_number, "dynamodb.SequenceNumber")?.0;
    let sequence = SequenceNumber::parse(&sequence)
        .map_err(|source| DecodeError::invalid("dynamodb.SequenceNumber", &sequence, source))?;
    let created = creation_time(required(change.creation_time, "dynamodb.ApproximateCreationDateTime")?)?;
    // Without both images of an update, its consumption would be counted from zero.
    let old = match kind {
        ChangeKind::Created => Counters::default(),
        ChangeKind::Updated | ChangeKind::Removed => counters(change.old_image, "dynamodb.OldImage")?,
    };
    let new = match kind {
        ChangeKind::Created | ChangeKind::Updated => counters(change.new_image, "dynamodb.NewImage")?,
        ChangeKind::Removed => Counters::default(),
    };
    Ok(Record::Change(BucketChange { bucket, sequence, created, kind, old, new }))
}

/// The sequence number of a record, whatever else is wrong with it; `None` if it has none by which a
/// batch item failure could name it.
#[must_use]
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

/// Why a record cannot be decoded: which field, and the value that is wrong. Never worth a retry.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DecodeError {
    field: String,
    problem: String,
}

impl DecodeError {
    /// The path of the field, like `dynamodb.NewImage.b_rpm_tc`.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    fn invalid(field: impl Into<String>, value: &str, reason: impl fmt::Display) -> Self {
        // A log line is no place for a whole item.
        const QUOTED: usize = 200;
        let ellipsis = if value.chars().nth(QUOTED).is_some() { "..." } else { "" };
        let value: String = value.chars().take(QUOTED).collect();
        Self { field: field.into(), problem: format!("{value:?}{ellipsis} is invalid: {reason}") }
    }
}

fn required<T>(value: Option<T>, field: &str) -> Result<T, DecodeError> {
    value.ok_or_else(|| DecodeError { field: field.to_owned(), problem: "is missing".to_owned() })
}

#[derive(Deserialize)]
struct RawRecord<'a> {
    #[serde(borrow, rename = "eventName")]
    event_name: Option<Text<'a>>,
    #[serde(borrow)]
    dynamodb: Option<RawChange<'a>>,
}

#[derive(Deserialize)]
struct RawChange<'a> {
    #[serde(borrow, rename = "Keys")]
    keys: Option<Keys<'a>>,
    #[serde(borrow, rename = "OldImage")]
    old_image: Option<Image<'a>>,
    #[serde(borrow, rename = "NewImage")]
    new_image: Option<Image<'a>>,
    #[serde(borrow, rename = "SequenceNumber")]
    sequence_number: Option<Text<'a>>,
    #[serde(borrow, rename = "ApproximateCreationDateTime")]
    creation_time: Option<&'a RawValue>,
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

#[derive(Deserialize)]
struct NumberAttribute<'a> {
    #[serde(borrow, rename = "N")]
    n: Text<'a>,
}

/// A string that borrows from the JSON text unless an escape forbids it.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn parse(record: &str) -> Result<RawRecord<'_>, DecodeError> {
    serde_json::from_str(record).or_else(|_| {
        // Parsed again for the path to the fault: poison is rare, and its price is not the others'.
        let json = &mut serde_json::Deserializer::from_str(record);
        serde_path_to_error::deserialize(json)
            .map_err(|error| DecodeError { field: error.path().to_string(), problem: error.into_inner().to_string() })
    })
}

fn counters<'a>(image: Option<Image<'a>>, path: &str) -> Result<Counters<'a>, DecodeError> {
    required(image, path)?.counters(path)
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

impl<'a> StringAttribute<'a> {
    fn parse_bucket(&self) -> Option<Result<BucketKey<'a>, InvalidBucketKey>> {
        match &self.s.0 {
            Cow::Borrowed(pk) => schema::parse_bucket_pk(pk),
            Cow::Owned(pk) => schema::parse_bucket_pk(pk).map(|key| key.map(BucketKey::into_owned)),
        }
    }
}

/// Of an image, the attributes from which counters are made.
#[derive(Default)]
struct Image<'a> {
    consumed: Vec<Attribute<'a>>,
    tokens: Vec<Attribute<'a>>,
    /// Empty unless a limit is soft, so the tokens of the others are never parsed.
    soft: Vec<Attribute<'a>>,
}

struct Attribute<'a> {
    name: Cow<'a, str>,
    value: &'a RawValue,
}

impl<'a> Image<'a> {
    fn counters(self, path: &str) -> Result<Counters<'a>, DecodeError> {
        let overdrawn: Vec<_> = self.soft.iter().filter_map(Attribute::limit).collect();
        let overdrawn: Vec<_> = self
            .tokens
            .iter()
            .filter(|tokens| tokens.limit().is_some_and(|limit| overdrawn.contains(&limit)))
            .map(|tokens| Ok((tokens.integer(path)? < 0).then(|| tokens.limit()).flatten()))
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        self.consumed
            .iter()
            .map(|consumed| {
                let limit = consumed.limit_name().map_err(|source| consumed.invalid(path, source))?;
                let overdrawn = overdrawn.contains(&limit.as_str());
                Ok((limit, Counter { consumed: Millitokens::new(consumed.integer(path)?), overdrawn }))
            })
            .collect()
    }
}

impl<'a> Attribute<'a> {
    fn limit(&self) -> Option<&str> {
        bucket::limit_and_field(&self.name).map(|(limit, _)| limit)
    }

    fn limit_name(&self) -> Result<Limit<'a>, InvalidName> {
        match &self.name {
            Cow::Borrowed(name) => Limit::new(bucket::limit_and_field(name).map_or("", |(limit, _)| limit)),
            Cow::Owned(_) => Limit::new(self.limit().unwrap_or_default().to_owned()),
        }
    }

    fn integer(&self, path: &str) -> Result<i64, DecodeError> {
        serde_json::from_str::<NumberAttribute<'_>>(self.value.get())
            .ok()
            .and_then(|number| number.n.0.parse().ok())
            .ok_or_else(|| self.invalid(path, "expected an integer of 64 bits, as {\"N\": \"...\"}"))
    }

    fn invalid(&self, path: &str, reason: impl fmt::Display) -> DecodeError {
        DecodeError::invalid(format!("{path}.{}", self.name), self.value.get(), reason)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Image<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ImageVisitor;

        impl<'de> Visitor<'de> for ImageVisitor {
            type Value = Image<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Image<'de>, A::Error> {
                let mut image = Image::default();
                while let Some(Text(name)) = map.next_key()? {
                    let attributes = match bucket::limit_and_field(&name) {
                        Some((_, bucket::CONSUMED)) => &mut image.consumed,
                        Some((_, bucket::TOKENS)) => &mut image.tokens,
                        Some((_, bucket::SOFT)) => &mut image.soft,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    attributes.push(Attribute { name, value: map.next_value()? });
                }
                Ok(image)
            }
        }

        deserializer.deserialize_map(ImageVisitor)
    }
}
