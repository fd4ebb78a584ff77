//! Of an image, the counters alone: what usage is made of.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tidegate_domain::{
    bucket::{Counter, Counters, Limit},
    tokens::Millitokens,
};

use super::{DecodeError, Integer, StreamImage, Text, limit};
use crate::schema::bucket;

/// Of an image, what counters are made of.
#[derive(Default)]
pub struct Image<'a> {
    consumed: Vec<(Cow<'a, str>, i64)>,
    /// By limit. Parsed only if the limit is soft: nobody's usage is lost over another attribute.
    tokens: Vec<(Cow<'a, str>, &'a RawValue)>,
    soft: Vec<Cow<'a, str>>,
}

impl<'a> StreamImage<'a> for Counters<'a> {
    type Raw = Image<'a>;

    fn read(raw: Image<'a>, path: &str) -> Result<Self, DecodeError> {
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
        raw.consumed.into_iter().map(counter).collect()
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
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(image)
            }
        }

        deserializer.deserialize_map(ImageVisitor)
    }
}
