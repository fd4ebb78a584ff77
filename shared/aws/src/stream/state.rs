//! An image as a whole, for those who refill and shard.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tidegate_domain::state::BucketImage;

use super::{DecodeError, Integer, StreamImage, Text, limit};
use crate::image::{Attribute, ImageBuilder, bytes_of_number};

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
                        Attribute::Sign(sign) => {
                            image.measure(bytes_of_attribute(map.next_value()?));
                            image.sign(sign);
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
