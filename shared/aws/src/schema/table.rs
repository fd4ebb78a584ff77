//! The bucket table: keys, secondary indexes, and the attributes of each kind of item.

use tidegate_domain::{
    bucket::{BucketKey, Entity, InvalidName, Namespace, Resource, Shard},
    sequence::Position,
    usage::SnapshotKey,
    window::{Period, Window},
};

use super::{GSI1PK, GSI1SK, GSI2PK, GSI2SK, GSI3PK, GSI3SK, GSI4PK, GSI4SK, PK};

/// The beginning of a bucket's sort keys in all indexes.
pub(crate) const BUCKET: &str = "BUCKET#";

/// A partition key that should be a bucket's and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucketKey {
    /// A part is missing.
    #[error("expected {{namespace}}/BUCKET#{{entity}}#{{resource}}#{{shard}}")]
    Shape,
    #[error("the shard {0:?} is not a number from 0 to 4294967295")]
    Shard(String),
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// The partition key of a bucket item.
pub fn bucket_pk(key: &BucketKey<'_>) -> String {
    format!("{}/{}", key.namespace, bucket_gsi4_sk(key))
}

/// Reads a bucket item's partition key: the namespace up to the first `/`, the shard after the last
/// `#`, the entity up to the first `#`. `None` if the key is not one of a bucket.
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
pub fn bucket_gsi2_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}", key.entity, key.shard)
}

/// The sort key of a bucket item in the index by entity.
pub fn bucket_gsi3_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}", key.resource, key.shard)
}

/// The sort key of a bucket item in the index by namespace: its partition key without the namespace.
pub fn bucket_gsi4_sk(key: &BucketKey<'_>) -> String {
    format!("{BUCKET}{}#{}#{}", key.entity, key.resource, key.shard)
}

/// The partition key of an entity's own items, its usage snapshots and its configuration among them;
/// also that of its buckets in the index by entity.
pub fn entity_pk(namespace: &Namespace<'_>, entity: &Entity<'_>) -> String {
    format!("{namespace}/ENTITY#{entity}")
}

/// The partition key of a resource's configuration, and of the index by resource.
pub fn resource_pk(namespace: &Namespace<'_>, resource: &Resource<'_>) -> String {
    format!("{namespace}/RESOURCE#{resource}")
}

/// The sort key of a usage snapshot.
///
/// Daily and monthly ones carry a suffix (ours): without it, the day and its first hour would share
/// an item. Readers do not look past the prefix `#USAGE#{resource}#`.
pub fn snapshot_sk(snapshot: &SnapshotKey<'_>) -> String {
    let SnapshotKey { resource, period, .. } = snapshot;
    match period.window() {
        Window::Hourly => format!("#USAGE#{resource}#{period}"),
        window @ (Window::Daily | Window::Monthly) => format!("#USAGE#{resource}#{period}#{window}"),
    }
}

/// The sort key of a usage snapshot in the index by resource.
pub fn snapshot_gsi2_sk(snapshot: &SnapshotKey<'_>) -> String {
    format!("USAGE#{}#{}", snapshot.period, snapshot.entity)
}

/// The partition key of a namespace's configuration.
pub fn system_pk(namespace: &Namespace<'_>) -> String {
    format!("{namespace}/SYSTEM#")
}

/// The sort key under which a namespace's name leads to its id.
pub fn namespace_sk(name: &str) -> String {
    format!("{}{name}", system::NAMESPACE)
}

/// The sort key under which a namespace's id leads to its name.
pub fn namespace_id_sk(namespace: &Namespace<'_>) -> String {
    format!("{}{namespace}", system::NAMESPACE_ID)
}

/// The sort key of an entity's limits on a resource.
pub fn entity_config_sk(resource: &Resource<'_>) -> String {
    format!("{}#{resource}", config::CONFIG)
}

/// Ours. The partition key of the markers of a bucket item's redriven records. Each bucket item has a partition of its
/// own: a single one would take about 500 markers per second for the whole table.
pub fn redriven_pk(bucket: &BucketKey<'_>) -> String {
    format!("{}{}{}", system::PARTITION, system::REDRIVEN, bucket_pk(bucket))
}

/// Ours. The sort key of the marker that a record was redriven into the snapshot of a period.
pub fn redriven_sk(period: Period, record: &Position) -> String {
    tidegate_sk(&format!("{}{}#{period}#{}", system::REDRIVEN, period.window(), record.stored()))
}

/// Ours. The sort key of an item of our own.
pub fn tidegate_sk(name: &str) -> String {
    format!("{}{name}", system::TIDEGATE)
}

/// The table's secondary indexes. No item of ours sets a key of GSI1 or of the local ones, and only
/// bucket items one of GSI3.
pub(crate) const INDEXES: [Index; 9] = [
    Index::global("GSI1", GSI1PK, GSI1SK, false),
    Index::global("GSI2", GSI2PK, GSI2SK, false),
    Index::global("GSI3", GSI3PK, GSI3SK, true),
    Index::global("GSI4", GSI4PK, GSI4SK, true),
    Index::local("LSI1", "LSI1SK", false),
    Index::local("LSI2", "LSI2SK", true),
    Index::local("LSI3", "LSI3SK", false),
    Index::local("LSI4", "LSI4SK", true),
    Index::local("LSI5", "LSI5SK", false),
];

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

pub mod bucket {
    //! Attributes of bucket items, beside those that all items have.
    //!
    //! Those of the item itself come first, then the fields of its limits, which are suffixes: see
    //! [`attribute`]. A schedule, a session quota or a grant count is a rule that the plain token bucket
    //! does not know; where one is present, the bucket is its clients' to refill and to shard.

    /// The sort key of every bucket item.
    pub const STATE: &str = "#STATE";
    /// The beginning of the sort keys of an operator's resets and top-ups, in the partition of shard 0 (0.17).
    pub(crate) const OPERATOR: &str = "#OP#";

    /// Whether consumption cascades to the parent (a boolean).
    pub const CASCADE: &str = "cascade";
    /// Number of shards of the bucket; shard 0's is the truth.
    pub const SHARD_COUNT: &str = "shard_count";
    /// The last refill, in epoch milliseconds, of all limits of the item.
    pub const LAST_REFILL: &str = "rf";
    /// Until when the item's amounts hold, in epoch milliseconds: a schedule changes them then. Where it
    /// is present, a conditional write pins it.
    pub(crate) const VALID_UNTIL: &str = "vu";
    /// Generation of the parent: a number that rises whenever the entity moves to another one.
    pub const PARENT_GENERATION: &str = "pgen";
    /// Incarnation of the entity, a random text: generations compare only within one.
    pub const INCARNATION: &str = "pinc";
    /// The schedule of all limits that have none of their own, in the clients' encoding.
    pub(crate) const DEFAULT_SCHEDULE: &str = "sched";
    /// The reset schedule of all limits that have none of their own, in the clients' encoding.
    pub(crate) const DEFAULT_RESET_SCHEDULE: &str = "rsched";
    /// The time zone of all schedules of the item.
    pub(crate) const TIME_ZONE: &str = "sched_tz";
    /// Present where the bucket refuses all callers: a boolean that is true.
    pub const DISABLED: &str = "disabled";
    /// Present where the bucket admits all callers, whatever it holds: the epoch milliseconds until which
    /// clients may rely on it. Then they look at the configuration, and renew or remove it.
    pub(crate) const BYPASS: &str = "bypass";
    /// The parent to which consumption cascades; absent if the entity has no parent.
    pub const PARENT_ID: &str = "parent_id";
    /// Ours. The id of the last write of a Rust client, by which it learns whether a write happened whose response was lost.
    pub(crate) const OPERATION: &str = "#op";
    /// Ours. How many acquires were merged into writes of several: each such write adds their number.
    pub const ACQUIRES: &str = "#n";

    /// Suffix: tokens now, in millitokens; below zero in debt.
    pub const TOKENS: &str = "tk";
    /// Suffix: net consumption since the item was created, in millitokens.
    pub const CONSUMED: &str = "tc";
    /// Suffix: capacity, in millitokens, undivided on every shard.
    pub const CAPACITY: &str = "cp";
    /// Suffix: millitokens refilled in a period, undivided on every shard.
    pub const REFILL_AMOUNT: &str = "ra";
    /// Suffix: the refill period, in milliseconds.
    pub const REFILL_PERIOD: &str = "rp";
    /// Suffix: present where the limit is soft; since 0.17 a number, the epoch milliseconds until which
    /// clients may rely on it.
    pub const SOFT: &str = "soft";
    /// Suffix: the limit's own schedule, in the clients' encoding.
    pub(crate) const SCHEDULE: &str = "sched";
    /// Suffix: the limit's own reset schedule, in the clients' encoding.
    pub const RESET_SCHEDULE: &str = "rsched";
    /// Suffix: start of a session quota's window, in epoch milliseconds; absent before the first.
    pub(crate) const SESSION_START: &str = "ws";
    /// Suffix: length of a session quota's window, in **seconds**.
    pub(crate) const SESSION_LENGTH: &str = "rsa";
    /// Suffix: the window start that this shard's tokens already reflect, in epoch milliseconds.
    pub(crate) const SESSION_APPLIED: &str = "wa";
    /// Suffix: [`CONSUMED`] when a window was announced that is not yet applied, in millitokens.
    pub(crate) const SESSION_CONSUMED: &str = "wtc";
    /// Suffix: the number of shards for which this shard's share of a quota was measured out.
    pub(crate) const GRANT_COUNT: &str = "gc";
    /// Suffix: what an operator added to this shard's share of a quota, in millitokens.
    pub(crate) const TOPPED_UP: &str = "tu";
    /// Suffix: how often an operator reset this shard's share of a calendar quota; absent before the first
    /// time.
    pub(crate) const RESET_COUNT: &str = "rn";

    const PREFIX: &str = "b_";

    /// The attribute of a limit's field: `b_{limit}_{field}`.
    pub fn attribute(limit: &str, field: &str) -> String {
        format!("{PREFIX}{limit}_{field}")
    }

    /// The limit and the field of an attribute, if it is one of a limit's: split at the **last**
    /// underscore, since limits may hold underscores and fields hold none.
    pub fn limit_and_field(attribute: &str) -> Option<(&str, &str)> {
        attribute.strip_prefix(PREFIX)?.rsplit_once('_')
    }
}

pub mod snapshot {
    //! Attributes of usage snapshots, beside those that all items have.
    //!
    //! A limit's counter, in whole tokens, is named after the limit
    //! ([`snapshot_counter`](crate::schema::snapshot_counter)). Readers take every number for such a counter, except
    //! `total_events` and [`TTL`](crate::schema::TTL).

    /// The kind of period: `hourly`, `daily` or `monthly`.
    pub const WINDOW: &str = "window";
    /// The period's start, like `2026-01-01T14:00:00Z`.
    pub(crate) const WINDOW_START: &str = "window_start";
    /// Stream records with consumption in the period.
    pub(crate) const TOTAL_EVENTS: &str = "total_events";
    /// Suffix of the counter of a soft limit's overdrafts.
    pub const OVERDRAWN: &str = "#od";
    /// Ours. Prefix of the watermark of a bucket shard: `#seq#{shard}`. A string whose name no limit
    /// can have, so no reader takes it for a counter.
    pub(crate) const WATERMARK: &str = "#seq#";
}

pub mod entity {
    //! Attributes of an entity's own item.

    /// The sort key of the item.
    pub const META: &str = "#META";
    /// The display name.
    pub(crate) const NAME: &str = "name";
    /// The operator's own notes: a map of strings.
    pub(crate) const METADATA: &str = "metadata";
}

pub mod config {
    //! Configuration items: the limits of a namespace, a resource, or an entity on a resource.

    /// The sort key of the limits of a namespace or a resource; the beginning of those of an entity's.
    pub const CONFIG: &str = "#CONFIG";
    /// The resource that stands for all of an entity's resources without limits of their own.
    pub const DEFAULT: &str = "_default_";
    /// Prefix of the attributes of limits with a session window: rules that a plain token bucket does not know.
    pub(crate) const WINDOW_PREFIX: &str = "w_";
    /// The version of the item's format, 1.
    pub(crate) const VERSION: &str = "config_version";
    /// The time zone of all schedules of the item.
    pub(crate) const TIME_ZONE: &str = "sched_tz";
    /// Of the system level: what clients do while the table is unavailable.
    pub(crate) const ON_UNAVAILABLE: &str = "on_unavailable";
    /// Of the system level: how long audit events are kept, in days.
    pub(crate) const AUDIT_RETENTION: &str = "audit_retention_days";

    /// Suffix: capacity, in **whole tokens**.
    pub const CAPACITY: &str = "cp";
    /// Suffix: **whole tokens** refilled in a period.
    pub const REFILL_AMOUNT: &str = "ra";
    /// Suffix: the refill period, in **seconds**.
    pub const REFILL_PERIOD: &str = "rp";

    pub(crate) const PREFIX: &str = "l_";

    /// The attribute of a limit's field: `l_{limit}_{field}`.
    pub fn attribute(limit: &str, field: &str) -> String {
        format!("{PREFIX}{limit}_{field}")
    }

    /// The limit and the field of an attribute, if it is one of a limit's: split at the **last** underscore.
    pub(crate) fn limit_and_field(attribute: &str) -> Option<(&str, &str)> {
        attribute.strip_prefix(PREFIX)?.rsplit_once('_')
    }
}

pub mod system {
    //! Keys of the items that belong to no namespace. All are in one partition, and so are ours, except the markers of
    //! redriven records.

    /// The id that stands for the whole table: no namespace has it.
    pub(crate) const NO_NAMESPACE: &str = "_";
    /// The partition key of the items that belong to no namespace.
    pub const PARTITION: &str = "_/SYSTEM#";

    /// The sort key of the version record.
    pub const VERSION: &str = "#VERSION";
    /// Of the version record: the version of the table's schema. Clients need one of the same major version.
    pub(crate) const SCHEMA_VERSION: &str = "schema_version";
    /// Of the version record: the version of zae-limiter's own functions, or null.
    pub(crate) const LAMBDA_VERSION: &str = "lambda_version";
    /// Of the version record: the lowest version of a client that may use the table.
    pub(crate) const CLIENT_MIN_VERSION: &str = "client_min_version";
    /// Of the version record: who wrote it.
    pub(crate) const UPDATED_BY: &str = "updated_by";
    /// Prefix of the sort key of a namespace by name: [`namespace_sk`](super::namespace_sk).
    pub(crate) const NAMESPACE: &str = "#NAMESPACE#";
    /// Prefix of the sort key of a namespace by id: [`namespace_id_sk`](super::namespace_id_sk).
    pub(crate) const NAMESPACE_ID: &str = "#NSID#";
    /// Of a namespace: its id.
    pub(crate) const ID: &str = "namespace_id";
    /// Of a namespace: its name.
    pub(crate) const NAME: &str = "namespace_name";
    /// Of a namespace: whether it is [`ACTIVE`], or was deleted.
    pub(crate) const STATUS: &str = "status";
    /// The status of a namespace that is in use.
    pub(crate) const ACTIVE: &str = "active";
    /// When an item was created, as RFC 3339 writes it.
    pub(crate) const CREATED_AT: &str = "created_at";
    /// Ours. Prefix of the sort key of every item of our own: [`tidegate_sk`](super::tidegate_sk).
    pub const TIDEGATE: &str = "#TIDEGATE#";
    /// Ours. Prefix of the name of an item that keeps a sharded bucket in the registry; shard 0's partition key
    /// follows.
    pub const SHARDED: &str = "SHARDED#";
    /// Ours. The name of the item that keeps where the last repair stopped.
    pub const REPAIR: &str = "REPAIR";
    /// Ours. In the keys of a marker that a record was redriven into a snapshot: [`redriven_pk`](super::redriven_pk),
    /// [`redriven_sk`](super::redriven_sk).
    pub const REDRIVEN: &str = "REDRIVEN#";

    /// Ours. Of a registry entry: how many shards the bucket was given last.
    pub const SHARDS: &str = "shards";
    /// Ours. Of a registry entry: when writes were last checked for how they spread, in epoch milliseconds.
    pub const CHECKED: &str = "checked";
    /// Ours. Of a registry entry: what shard 0 had consumed of the reserved limit at that check, in millitokens.
    pub(crate) const ZERO_WRITTEN: &str = "zero_written";
    /// Ours. Of a registry entry: what the newer half of the shards had consumed of it together, in millitokens.
    pub(crate) const NEWEST_WRITTEN: &str = "newest_written";
    /// Ours. Where the last repair stopped: the sort key of the last entry that it looked at.
    pub(crate) const AFTER: &str = "after";
}
