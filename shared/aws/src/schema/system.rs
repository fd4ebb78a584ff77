//! Keys of the items that belong to no namespace. All are in one partition, and so are ours.

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
