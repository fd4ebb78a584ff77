//! The coordinator's own table: announcements, and the targets whose minimum they raise.

/// The partition key: `announcement` or `target`.
pub const KIND: &str = "kind";
/// The sort key: an announcement's id, or a target's name like `table/orders#write`.
pub const ID: &str = "id";
/// When TTL may delete the item, in epoch **seconds**.
pub const TTL: &str = "ttl";

/// The partition of the announcements.
pub(crate) const ANNOUNCEMENT: &str = "announcement";
/// The partition of the targets.
pub(crate) const TARGET: &str = "target";

/// Who announced it.
pub(crate) const CALLER: &str = "caller";
/// A list of maps with [`TABLE`], [`INDEX`] and [`OTHER`].
pub(crate) const NEEDS: &str = "needs";
/// The table's name.
pub(crate) const TABLE: &str = "table";
/// The index's name; absent for the table itself.
pub(crate) const INDEX: &str = "index";
/// `read` or `write`.
pub(crate) const DIMENSION: &str = "dimension";
/// The consumption of other traffic, in units a second.
pub(crate) const OTHER: &str = "other";
/// Announced units a second.
pub(crate) const UNITS: &str = "units";
/// When it was first announced, in epoch milliseconds.
pub(crate) const SINCE: &str = "since";
/// When it ends, in epoch milliseconds.
pub(crate) const UNTIL: &str = "until";
/// When its capacity was found to be provisioned, in epoch milliseconds.
pub(crate) const READY: &str = "ready";
/// When it was released, in epoch milliseconds.
pub(crate) const RELEASED: &str = "released";
/// A map from each run that has released it to the time of that, in epoch milliseconds.
pub(crate) const RELEASED_RUNS: &str = "released_runs";

/// Rises with each write of a target.
pub(crate) const VERSION: &str = "version";
/// Whether the table was on demand when it was announced to.
pub(crate) const ON_DEMAND: &str = "on_demand";
/// The owner's minimum.
pub(crate) const OWNER: &str = "owner";
/// The minimum that the target must have.
pub(crate) const PLANNED: &str = "planned";
/// A map from each minimum that a call may still set to the time, in epoch milliseconds, from which none does.
pub(crate) const CALLS: &str = "calls";
