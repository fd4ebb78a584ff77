//! The texts of keys, of the table and of its indexes.

use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Namespace, Resource, Shard},
    sequence::Position,
    usage::SnapshotKey,
    window::{Period, Window},
};

use super::{config, system};

const BUCKET: &str = "BUCKET#";

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

/// The partition key of a bucket item.
#[must_use]
pub fn bucket_pk(key: &BucketKey<'_>) -> String {
    format!("{}/{}", key.namespace, bucket_gsi4_sk(key))
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
        shard: parse_shard(shard).ok_or_else(|| InvalidBucketKey::Shard(shard.to_owned()))?,
    })
}

/// Only the text that a shard's number has: `01` is another item than `1`, and must not share its
/// watermark.
fn parse_shard(text: &str) -> Option<Shard> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(Shard::new(number))
}

/// The sort key of a bucket item in the index by resource.
#[must_use]
pub fn bucket_gsi2_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}", key.entity, key.shard)
}

/// The sort key of a bucket item in the index by entity.
#[must_use]
pub fn bucket_gsi3_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}", key.resource, key.shard)
}

/// The sort key of a bucket item in the index by namespace: its partition key without the namespace.
#[must_use]
pub fn bucket_gsi4_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}#{}", key.entity, key.resource, key.shard)
}

/// The partition key of an entity's own items, its usage snapshots and its configuration among them;
/// also that of its buckets in the index by entity.
#[must_use]
pub fn entity_pk(namespace: &Namespace<'_>, entity: &Entity<'_>) -> String {
    format!("{namespace}/ENTITY#{entity}")
}

/// The partition key of a resource's configuration, and of the index by resource.
#[must_use]
pub fn resource_pk(namespace: &Namespace<'_>, resource: &Resource<'_>) -> String {
    format!("{namespace}/RESOURCE#{resource}")
}

/// The partition key of a namespace's configuration.
#[must_use]
pub fn system_pk(namespace: &Namespace<'_>) -> String {
    format!("{namespace}/SYSTEM#")
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

/// The sort key of an entity's limits on a resource.
#[must_use]
pub fn entity_config_sk(resource: &Resource<'_>) -> String {
    format!("{}#{resource}", config::CONFIG)
}

/// The partition key of what was changed of an entity.
#[must_use]
pub fn audit_pk(namespace: &Namespace<'_>, entity: &Entity<'_>) -> String {
    format!("{namespace}/AUDIT#{entity}")
}

/// The sort key of an audit item, by its event's ULID.
#[must_use]
pub fn audit_sk(event_id: &str) -> String {
    format!("#AUDIT#{event_id}")
}

/// The sort key under which a namespace's name leads to its id.
#[must_use]
pub fn namespace_sk(name: &str) -> String {
    format!("{}{name}", system::NAMESPACE)
}

/// The sort key under which a namespace's id leads to its name.
#[must_use]
pub fn namespace_id_sk(namespace: &Namespace<'_>) -> String {
    format!("{}{namespace}", system::NAMESPACE_ID)
}

/// Ours. The partition key of the markers of a bucket item's redriven records. Each bucket item has a partition of its
/// own: a single one would take about 500 markers per second for the whole table.
#[must_use]
pub fn redriven_pk(bucket: &BucketKey<'_>) -> String {
    format!("{}{}{}", system::PARTITION, system::REDRIVEN, bucket_pk(bucket))
}

/// Ours. The sort key of the marker that a record was redriven into the snapshot of a period.
#[must_use]
pub fn redriven_sk(period: Period, record: &Position) -> String {
    tidegate_sk(&format!("{}{}#{period}#{}", system::REDRIVEN, period.window(), record.stored()))
}

/// Ours. The sort key of an item of our own.
#[must_use]
pub fn tidegate_sk(name: &str) -> String {
    format!("{}{name}", system::TIDEGATE)
}
