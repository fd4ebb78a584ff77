//! Keys of the items that belong to no namespace. All are in one partition, and so are ours, except the markers of
//! redriven records.

/// The id that stands for the whole table: no namespace has it.
pub const NO_NAMESPACE: &str = "_";
/// The partition key: that of the system of [`NO_NAMESPACE`].
pub const PARTITION: &str = "_/SYSTEM#";

/// The sort key of the version record.
pub const VERSION: &str = "#VERSION";
/// Of the version record: the version of the table's schema. Clients need one of the same major version.
pub const SCHEMA_VERSION: &str = "schema_version";
/// Of the version record: the version of zae-limiter's own functions, or null.
pub const LAMBDA_VERSION: &str = "lambda_version";
/// Of the version record: the lowest version of a client that may use the table.
pub const CLIENT_MIN_VERSION: &str = "client_min_version";
/// Of the version record: who wrote it.
pub const UPDATED_BY: &str = "updated_by";
/// Prefix of the sort key of a namespace by name: [`namespace_sk`](super::namespace_sk).
pub const NAMESPACE: &str = "#NAMESPACE#";
/// Prefix of the sort key of a namespace by id: [`namespace_id_sk`](super::namespace_id_sk).
pub const NAMESPACE_ID: &str = "#NSID#";
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
pub const ZERO_WRITTEN: &str = "zero_written";
/// Ours. Of a registry entry: what the newer half of the shards had consumed of it together, in millitokens.
pub const NEWEST_WRITTEN: &str = "newest_written";
/// Ours. Where the last repair stopped: the sort key of the last entry that it looked at.
pub const AFTER: &str = "after";
