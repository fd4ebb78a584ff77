//! What functions read of a bucket item's image: its counters alone, or its whole state.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tidegate_domain::{
    bucket::{Counter, Counters, Limit},
    state::BucketImage,
    tokens::Millitokens,
};

use super::{DecodeError, Integer, StreamImage, Text, limit};
use crate::{
    image::{Attribute, ImageBuilder, bytes_of_number},
    schema::bucket,
};

/// The attributes of an image from which its [`Counters`] are made.
#[derive(Default)]
pub struct CounterAttributes<'a> {
    consumed: Vec<(Cow<'a, str>, i64)>,
    /// By limit. Parsed only if the limit is soft, so that no usage is lost over an attribute that does not matter.
    tokens: Vec<(Cow<'a, str>, &'a RawValue)>,
    soft: Vec<Cow<'a, str>>,
    /// A malformed number is no reason to lose usage: the record then counts as one acquire.
    merged_acquires: Option<&'a RawValue>,
}

impl<'a> StreamImage<'a> for Counters<'a> {
    type Raw = CounterAttributes<'a>;

    fn read(raw: CounterAttributes<'a>, path: &str) -> Result<Self, DecodeError> {
        let mut overdrawn = Vec::new();
        for (limit, tokens) in raw.tokens.iter().filter(|(limit, _)| raw.soft.contains(limit)) {
            let Integer(left) = serde_json::from_str(tokens.get()).map_err(|error| {
                let attribute = bucket::attribute(limit, bucket::TOKENS);
                DecodeError::invalid(format!("{path}.{attribute}"), tokens.get(), error)
            })?;
            if left < 0 {
                overdrawn.push(limit.as_ref());
            }
        }
        let counter = |(limit, consumed): (Cow<'a, str>, i64)| {
            let overdrawn = overdrawn.contains(&limit.as_ref());
            let attribute = || format!("{path}.{}", bucket::attribute(&limit, bucket::CONSUMED));
            let name = Limit::new(limit.clone()).map_err(|error| DecodeError::invalid(attribute(), &limit, error))?;
            Ok((name, Counter { consumed: Millitokens::new(consumed), overdrawn }))
        };
        let merged = raw.merged_acquires.and_then(|number| serde_json::from_str(number.get()).ok());
        let merged = merged.and_then(|Integer(number)| u64::try_from(number).ok()).unwrap_or_default();
        let counters: Result<Self, _> = raw.consumed.into_iter().map(counter).collect();
        Ok(counters?.with_merged_acquires(merged))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for CounterAttributes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CounterVisitor;

        impl<'de> Visitor<'de> for CounterVisitor {
            type Value = CounterAttributes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CounterAttributes<'de>, A::Error> {
                let mut image = CounterAttributes::default();
                while let Some(Text(name)) = map.next_key()? {
                    match bucket::limit_and_field(&name) {
                        Some((_, bucket::CONSUMED)) => {
                            let Integer(consumed) = map.next_value()?;
                            image.consumed.push((limit(name), consumed));
                        }
                        Some((_, bucket::TOKENS)) => image.tokens.push((limit(name), map.next_value()?)),
                        Some((_, bucket::SOFT)) => {
                            map.next_value::<IgnoredAny>()?;
                            image.soft.push(limit(name));
                        }
                        None if name == bucket::ACQUIRES => image.merged_acquires = Some(map.next_value()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(image)
            }
        }

        deserializer.deserialize_map(CounterVisitor)
    }
}

impl<'a> StreamImage<'a> for BucketImage<'a> {
    type Raw = ImageBuilder<'a>;

    fn read(raw: ImageBuilder<'a>, path: &str) -> Result<Self, DecodeError> {
        raw.build()
            .map_err(|error| DecodeError::invalid(format!("{path}.{}", error.attribute), &error.limit, error.source))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ImageBuilder<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ImageVisitor;

        impl<'de> Visitor<'de> for ImageVisitor {
            type Value = ImageBuilder<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an item")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ImageBuilder<'de>, A::Error> {
                let mut image = ImageBuilder::default();
                while let Some(Text(name)) = map.next_key()? {
                    image.measure(name.len());
                    match Attribute::of(&name) {
                        Attribute::Number(number) => {
                            let Integer(value) = map.next_value()?;
                            image.measure(bytes_of_integer(value));
                            image.number(number, value);
                        }
                        Attribute::LimitNumber(_, number) => {
                            let Integer(value) = map.next_value()?;
                            image.measure(bytes_of_integer(value));
                            image.limit_number(limit(name), number, value);
                        }
                        Attribute::Switch => {
                            let value = map.next_value()?;
                            image.measure(bytes_of_attribute(value));
                            if !is_false(value) {
                                image.switch_off();
                            }
                        }
                        Attribute::Unsupported(rule) => {
                            image.measure(bytes_of_attribute(map.next_value()?));
                            image.mark_unsupported(rule);
                        }
                        Attribute::Other => image.measure(bytes_of_attribute(map.next_value()?)),
                    }
                }
                Ok(image)
            }
        }

        deserializer.deserialize_map(ImageVisitor)
    }
}

fn is_false(value: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(rename = "BOOL")]
        is_set: bool,
    }
    serde_json::from_str(value.get()).is_ok_and(|Flag { is_set }| !is_set)
}

fn bytes_of_integer(value: i64) -> usize {
    bytes_of_number(value.unsigned_abs().checked_ilog10().map_or(1, |log| log as usize + 1))
}

/// The size of an attribute's value, in Lambda's compact JSON: `{"S":"text"}`.
fn bytes_of_attribute(value: &RawValue) -> usize {
    let value = value.get();
    let content = value.get(r#"{"S":""#.len()..value.len().saturating_sub(r#""}"#.len())).unwrap_or_default();
    match value.get(2..4) {
        Some("S\"") => content.len(),
        Some("N\"") => bytes_of_number(content.trim_start_matches('-').len()),
        _ => 1,
    }
}
