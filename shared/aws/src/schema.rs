//! The bucket table: every key and attribute name, and the keys' texts. Nothing outside this module
//! spells one.
//!
//! The table belongs to its clients (zae-limiter 0.10 to 0.17), so its shape is fixed; only the
//! attributes and keys marked as ours are Tidegate's additions, and they are such that the clients'
//! readers pass over them.

use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Limit, Namespace, Resource, Shard},
    usage::SnapshotKey,
    window::Window,
};

/// The table's partition key.
pub const PK: &str = "PK";
/// The table's sort key.
pub const SK: &str = "SK";
/// Partition key of the index by resource.
pub const GSI2PK: &str = "GSI2PK";
/// Sort key of the index by resource.
pub const GSI2SK: &str = "GSI2SK";
/// Partition key of the index by namespace.
pub const GSI4PK: &str = "GSI4PK";
/// Sort key of the index by namespace.
pub const GSI4SK: &str = "GSI4SK";
/// When the item expires, in epoch seconds: the table's TTL attribute.
pub const TTL: &str = "ttl";

/// The entity that an item belongs to.
pub const ENTITY_ID: &str = "entity_id";
/// The resource that an item belongs to.
pub const RESOURCE: &str = "resource";

/// Attributes of bucket items, beside those that all items have.
pub mod bucket {
    /// The sort key of every bucket item.
    pub const STATE: &str = "#STATE";
    /// Number of shards of the bucket; shard 0's is the truth.
    pub const SHARD_COUNT: &str = "shard_count";
    /// The last refill, in epoch milliseconds, of all limits of the item.
    pub const LAST_REFILL: &str = "rf";
    /// Suffix: tokens now, in millitokens.
    pub const TOKENS: &str = "tk";
    /// Suffix: net consumption since the item was created, in millitokens.
    pub const CONSUMED: &str = "tc";
    /// Suffix: capacity, in millitokens, undivided on every shard.
    pub const CAPACITY: &str = "cp";
    /// Suffix: millitokens refilled in a period, undivided on every shard.
    pub const REFILL_AMOUNT: &str = "ra";
    /// Suffix: the refill period, in milliseconds.
    pub const REFILL_PERIOD: &str = "rp";
    /// Suffix: present where the limit is soft.
    pub const SOFT: &str = "soft";

    /// The attribute of a limit's field: `b_{limit}_{field}`.
    #[must_use]
    pub fn attribute(limit: &str, field: &str) -> String {
        format!("b_{limit}_{field}")
    }

    /// The limit and the field of an attribute, if it is one of a limit's: split at the **last**
    /// underscore, since limits may hold underscores and fields hold none.
    #[must_use]
    pub fn limit_and_field(attribute: &str) -> Option<(&str, &str)> {
        attribute.strip_prefix("b_")?.rsplit_once('_')
    }
}

/// Attributes of usage snapshots, beside those that all items have.
pub mod snapshot {
    /// The kind of period: `hourly`, `daily` or `monthly`.
    pub const WINDOW: &str = "window";
    /// The period's start, like `2026-01-01T14:00:00Z`.
    pub const WINDOW_START: &str = "window_start";
    /// Stream records with consumption in the period.
    pub const TOTAL_EVENTS: &str = "total_events";
    /// Suffix of the counter of a soft limit's overdrafts.
    pub const OVERDRAWN: &str = "#od";
    /// Ours. Prefix of the watermark of a bucket shard: `#seq#{shard}`. A string whose name no limit
    /// can have, so no reader takes it for a counter.
    pub const WATERMARK: &str = "#seq#";
}

/// A partition key that should be a bucket's and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucketKey {
    /// A part is missing.
    #[error("expected {{namespace}}/BUCKET#{{entity}}#{{resource}}#{{shard}}")]
    Shape,
    /// The shard is no number.
    #[error("the shard {0:?} is not a number from 0 to 4294967295")]
    Shard(String),
    /// A name cannot be.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

const BUCKET: &str = "BUCKET#";

/// The partition key of a bucket item.
#[must_use]
pub fn bucket_pk(key: &BucketKey<'_>) -> String {
    let BucketKey { namespace, entity, resource, shard } = key;
    format!("{namespace}/{BUCKET}{entity}#{resource}#{shard}")
}

/// Reads a bucket item's partition key: the namespace up to the first `/`, the shard after the last
/// `#`, the entity up to the first `#`. `None` if the key is not one of a bucket.
#[must_use]
pub fn parse_bucket_pk(pk: &str) -> Option<Result<BucketKey<'_>, InvalidBucketKey>> {
    let (namespace, rest) = pk.split_once('/')?;
    let rest = rest.strip_prefix(BUCKET)?;
    Some(parse_bucket_parts(namespace, rest))
}

fn parse_bucket_parts<'a>(namespace: &'a str, rest: &'a str) -> Result<BucketKey<'a>, InvalidBucketKey> {
    let (rest, shard) = rest.rsplit_once('#').ok_or(InvalidBucketKey::Shape)?;
    let (entity, resource) = rest.split_once('#').ok_or(InvalidBucketKey::Shape)?;
    Ok(BucketKey {
        namespace: Namespace::new(namespace)?,
        entity: Entity::new(entity)?,
        resource: Resource::new(resource)?,
        shard: Shard::new(shard.parse().map_err(|_| InvalidBucketKey::Shard(shard.to_owned()))?),
    })
}

/// The partition key of an entity's own items, its usage snapshots among them.
#[must_use]
pub fn entity_pk(namespace: &Namespace<'_>, entity: &Entity<'_>) -> String {
    format!("{namespace}/ENTITY#{entity}")
}

/// The partition key of the index by resource.
#[must_use]
pub fn resource_pk(namespace: &Namespace<'_>, resource: &Resource<'_>) -> String {
    format!("{namespace}/RESOURCE#{resource}")
}

/// The sort key of a usage snapshot.
///
/// Daily and monthly ones carry a suffix (ours): without it, the day and its first hour would share
/// an item. Readers do not look past the prefix `#USAGE#{resource}#`.
#[must_use]
pub fn snapshot_sk(snapshot: &SnapshotKey<'_>) -> String {
    let SnapshotKey { resource, period, .. } = snapshot;
    match period.window() {
        Window::Hourly => format!("#USAGE#{resource}#{period}"),
        window @ (Window::Daily | Window::Monthly) => format!("#USAGE#{resource}#{period}#{window}"),
    }
}

/// The sort key of a usage snapshot in the index by resource.
#[must_use]
pub fn snapshot_gsi2_sk(snapshot: &SnapshotKey<'_>) -> String {
    format!("USAGE#{}#{}", snapshot.period, snapshot.entity)
}

/// The attribute of a snapshot that counts a limit's tokens: the limit's own name, or with a `#`
/// behind it where that is an attribute that the snapshot has anyway.
#[must_use]
pub fn snapshot_counter(limit: &Limit<'_>) -> String {
    match limit.as_str() {
        PK | SK | TTL | ENTITY_ID | RESOURCE | snapshot::WINDOW | snapshot::WINDOW_START | snapshot::TOTAL_EVENTS => {
            format!("{limit}#")
        }
        key if INDEXES.iter().any(|index| index.pk == key || index.sk == key) => format!("{limit}#"),
        limit => limit.to_owned(),
    }
}

/// The attribute of a snapshot that counts a soft limit's overdrafts.
#[must_use]
pub fn snapshot_overdrawn(limit: &Limit<'_>) -> String {
    format!("{limit}{}", snapshot::OVERDRAWN)
}

/// The attribute of a snapshot that holds a bucket shard's watermark.
#[must_use]
pub fn snapshot_watermark(shard: Shard) -> String {
    format!("{}{shard}", snapshot::WATERMARK)
}

/// A secondary index of the bucket table.
pub(crate) struct Index {
    pub(crate) name: &'static str,
    pub(crate) scope: IndexScope,
    pub(crate) pk: &'static str,
    pub(crate) sk: &'static str,
    pub(crate) keys_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexScope {
    Global,
    Local,
}

impl Index {
    /// The key attributes that the table itself does not have.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = &'static str> {
        [self.pk, self.sk].into_iter().filter(|key| *key != PK)
    }

    const fn global(name: &'static str, pk: &'static str, sk: &'static str, keys_only: bool) -> Self {
        Self { name, scope: IndexScope::Global, pk, sk, keys_only }
    }

    const fn local(name: &'static str, sk: &'static str, keys_only: bool) -> Self {
        Self { name, scope: IndexScope::Local, pk: PK, sk, keys_only }
    }
}

/// The table's secondary indexes. No item of ours sets a key of GSI1, GSI3 or the local ones.
pub(crate) const INDEXES: [Index; 9] = [
    Index::global("GSI1", "GSI1PK", "GSI1SK", false),
    Index::global("GSI2", GSI2PK, GSI2SK, false),
    Index::global("GSI3", "GSI3PK", "GSI3SK", true),
    Index::global("GSI4", GSI4PK, GSI4SK, true),
    Index::local("LSI1", "LSI1SK", false),
    Index::local("LSI2", "LSI2SK", true),
    Index::local("LSI3", "LSI3SK", false),
    Index::local("LSI4", "LSI4SK", true),
    Index::local("LSI5", "LSI5SK", false),
];
