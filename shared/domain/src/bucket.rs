//! Token buckets as their stream shows them: names, shards, counters, and changes.

use std::{
    borrow::{Borrow, Cow},
    fmt,
};

use crate::{
    sequence::{Position, SequenceNumber, StreamLabel},
    time::EpochMillis,
    tokens::Millitokens,
};

/// A text that cannot be the name it was meant for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no {kind}: a name is not empty and holds no {forbidden}")]
pub struct InvalidName {
    kind: &'static str,
    forbidden: &'static str,
    value: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, not $($forbidden:literal)or+) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name<'a>(Cow<'a, str>);

        impl<'a> $name<'a> {
            /// Creates the name. It borrows if the text is borrowed.
            ///
            /// # Errors
            /// [`InvalidName`], which quotes the text, if it is empty or contains a separator of the table's keys.
            pub fn new(text: impl Into<Cow<'a, str>>) -> Result<Self, InvalidName> {
                let text = text.into();
                if text.is_empty() || text.contains([$($forbidden),+]) {
                    return Err(InvalidName {
                        kind: $kind,
                        forbidden: concat!($("`", $forbidden, "` "),+).trim_ascii_end(),
                        value: text.into_owned(),
                    });
                }
                Ok(Self(text))
            }

            /// Converts to a name that borrows nothing.
            #[must_use]
            pub fn into_owned(self) -> $name<'static> {
                $name(Cow::Owned(self.0.into_owned()))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name<'_> {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The id under which one deployment of a client keeps its items.
    Namespace, "namespace", not '#' or '/'
}
name! {
    /// Who is limited: a tenant, a user, an API key.
    Entity, "entity", not '#'
}
name! {
    /// What is limited: an API, a model.
    Resource, "resource", not '#'
}
name! {
    /// One limit of a bucket, such as `rpm`.
    Limit, "limit", not '#'
}

impl Limit<'_> {
    /// The reserved limit that every bucket has: the write units of the bucket's own partition.
    pub const WRITE_UNITS: &'static str = "wcu";

    /// Returns whether this is the reserved limit, which is not the caller's usage.
    #[must_use]
    pub fn is_write_units(&self) -> bool {
        self.0 == Self::WRITE_UNITS
    }
}

/// One of the items over which a bucket is spread; shard 0 is the source of truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u32);

impl Shard {
    /// The source of truth.
    pub const ZERO: Self = Self(0);

    /// Creates the shard with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the shard.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One bucket item: one shard of one entity's bucket for one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketKey<'a> {
    /// The deployment that the bucket belongs to.
    pub namespace: Namespace<'a>,
    /// Who is limited.
    pub entity: Entity<'a>,
    /// What is limited.
    pub resource: Resource<'a>,
    /// Which of the bucket's items.
    pub shard: Shard,
}

impl BucketKey<'_> {
    /// Returns the key of another shard of the same bucket.
    #[must_use]
    pub fn at(&self, shard: Shard) -> Self {
        Self { shard, ..self.clone() }
    }

    /// Converts to a key that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> BucketKey<'static> {
        BucketKey {
            namespace: self.namespace.into_owned(),
            entity: self.entity.into_owned(),
            resource: self.resource.into_owned(),
            shard: self.shard,
        }
    }
}

/// A change of a bucket item in one stream record. `I` holds the needed parts of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketChange<'a, I = Counters<'a>> {
    /// The item that changed.
    pub bucket: BucketKey<'a>,
    /// The stream of the record.
    pub stream: StreamLabel,
    /// The record's place in the stream.
    pub sequence: SequenceNumber,
    /// When the change happened, in whole seconds on AWS.
    ///
    /// AWS: [`ApproximateCreationDateTime`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html).
    pub created: EpochMillis,
    /// What happened to the item.
    pub kind: ChangeKind,
    /// The item before the change. Empty unless the item was updated.
    pub old: I,
    /// The item after the change. Empty if the item was removed.
    pub new: I,
}

impl<I> BucketChange<'_, I> {
    /// Returns the record's place in the streams of its table.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position { stream: self.stream, sequence: self.sequence }
    }
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It did not exist before.
    Created,
    /// It existed before and after.
    Updated,
    /// It was deleted, by a client or by TTL.
    Removed,
}

/// The state of one limit in a bucket item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Net consumption since the item was created. It falls when a caller gives tokens back.
    pub consumed: Millitokens,
    /// Whether the limit is soft and its tokens are below zero. A soft limit admits callers into debt, and counts this.
    pub overdrawn: bool,
}

/// The counters of one image of a bucket item, by limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters<'a> {
    limits: Vec<(Limit<'a>, Counter)>,
    merged_acquires: u64,
}

impl<'a> Counters<'a> {
    /// Returns the counter of a limit.
    #[must_use]
    pub fn get(&self, limit: &Limit<'_>) -> Option<&Counter> {
        let at = self.limits.binary_search_by(|(name, _)| name.as_str().cmp(limit.as_str())).ok()?;
        Some(&self.limits[at].1)
    }

    /// Returns the limits and their counters, in the order of the limits' names.
    pub fn iter(&self) -> impl Iterator<Item = (&Limit<'a>, &Counter)> {
        self.limits.iter().map(|(limit, counter)| (limit, counter))
    }

    /// Returns how many acquires clients have merged into writes of several, since the item was created.
    #[must_use]
    pub const fn merged_acquires(&self) -> u64 {
        self.merged_acquires
    }

    /// Sets the number of [`merged_acquires`](Self::merged_acquires).
    #[must_use]
    pub fn with_merged_acquires(self, merged_acquires: u64) -> Self {
        Self { merged_acquires, ..self }
    }
}

impl<'a> FromIterator<(Limit<'a>, Counter)> for Counters<'a> {
    fn from_iter<I: IntoIterator<Item = (Limit<'a>, Counter)>>(counters: I) -> Self {
        let mut limits: Vec<_> = counters.into_iter().collect();
        limits.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Self { limits, merged_acquires: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_separators() {
        assert!(Namespace::new("TQ5vSMvQTm4").is_ok());
        assert!(Entity::new("team/user:1@example.com").is_ok());
        assert!(Resource::new("bedrock/claude:v1").is_ok());
        for name in ["", "a#b"] {
            assert_eq!(Limit::new(name).unwrap_err().value, name);
        }
        assert_eq!(
            Namespace::new("a/b").unwrap_err().to_string(),
            r#""a/b" is no namespace: a name is not empty and holds no `#` `/`"#
        );
    }

    #[test]
    fn counters_are_found_by_limit() {
        let counter = |consumed| Counter { consumed: Millitokens::new(consumed), overdrawn: false };
        let limit = |name: &'static str| Limit::new(name).unwrap();
        let counters: Counters = [(limit("tpm"), counter(2)), (limit("rpm"), counter(1))].into_iter().collect();
        assert_eq!(counters.get(&limit("rpm")), Some(&counter(1)));
        assert_eq!(counters.get(&limit("tpm")), Some(&counter(2)));
        assert_eq!(counters.get(&limit("rps")), None);
    }
}
