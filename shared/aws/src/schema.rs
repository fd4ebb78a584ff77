//! The clients' tables and files: every key and attribute name, and the keys' texts. Nothing outside this module
//! spells one. All but [`tokens`] and [`rates`] is about the bucket table.
//!
//! The bucket table belongs to its clients (zae-limiter 0.10 to 0.17), so its shape is fixed; only the
//! attributes and keys marked as ours are Tidegate's additions, and they are such that the clients'
//! readers pass over them.
//!
//! | module | names the attributes of | partition key | sort key |
//! |---|---|---|---|
//! | [`bucket`] | buckets, an item a shard | [`bucket_pk`] | [`bucket::STATE`] |
//! | [`snapshot`] | usage snapshots | [`entity_pk`] | [`snapshot_sk`] |
//! | [`config`] | the limits that clients configure | [`resource_pk`], [`entity_pk`] | [`config::CONFIG`], [`entity_config_sk`] |
//! | [`system`] | what concerns all namespaces, and our own items | [`system::PARTITION`] | see there |
//!
//! Every partition key begins with a namespace's id and a `/`; no name holds a `#`.

pub mod rates;
mod table;
pub mod tokens;

use tidegate_domain::bucket::{Limit, Shard};

pub(crate) use self::table::{INDEXES, Index, IndexScope};
pub use self::table::{
    InvalidBucketKey, bucket, bucket_gsi2_sk, bucket_gsi3_sk, bucket_gsi4_sk, bucket_pk, config, entity_config_sk,
    entity_pk, parse_bucket_pk, redriven_pk, redriven_sk, resource_pk, snapshot, snapshot_gsi2_sk, snapshot_sk, system,
    tidegate_sk,
};

/// The table's partition key.
pub const PK: &str = "PK";
/// The table's sort key.
pub const SK: &str = "SK";
/// Partition key of the index by parent, in which the clients find an entity's children.
const GSI1PK: &str = "GSI1PK";
/// Sort key of the index by parent.
const GSI1SK: &str = "GSI1SK";
/// Partition key of the index by resource: [`resource_pk`].
pub const GSI2PK: &str = "GSI2PK";
/// Sort key of the index by resource: [`bucket_gsi2_sk`], [`snapshot_gsi2_sk`].
pub const GSI2SK: &str = "GSI2SK";
/// Partition key of the index by entity: [`entity_pk`].
pub const GSI3PK: &str = "GSI3PK";
/// Sort key of the index by entity: [`bucket_gsi3_sk`].
pub const GSI3SK: &str = "GSI3SK";
/// Partition key of the index by namespace: the namespace's id alone.
pub const GSI4PK: &str = "GSI4PK";
/// Sort key of the index by namespace: [`bucket_gsi4_sk`]; of other items, their partition key.
pub const GSI4SK: &str = "GSI4SK";
/// When the item expires, in epoch seconds: the table's TTL attribute.
pub const TTL: &str = "ttl";

/// The entity that an item belongs to.
pub const ENTITY_ID: &str = "entity_id";
/// The resource that an item belongs to.
pub const RESOURCE: &str = "resource";

/// The attribute of a snapshot that counts a limit's tokens: the limit's own name, or with a `#`
/// behind it where that is an attribute that the snapshot has anyway.
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
pub(crate) fn snapshot_overdrawn(limit: &Limit<'_>) -> String {
    format!("{limit}{}", snapshot::OVERDRAWN)
}

/// The attribute of a snapshot that holds a bucket shard's watermark.
pub(crate) fn snapshot_watermark(shard: Shard) -> String {
    format!("{}{shard}", snapshot::WATERMARK)
}
