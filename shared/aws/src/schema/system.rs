//! Keys of the items that belong to no namespace. All are in one partition, and so are ours, except the markers of
//! redriven records.

/// The partition key: that of the system of `_`, an id that no namespace has.
pub const PARTITION: &str = "_/SYSTEM#";

/// The sort key of the version of the table's schema.
pub const VERSION: &str = "#VERSION";
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
