//! Attributes of bucket items, beside those that all items have.
//!
//! Those of the item itself come first, then the fields of its limits, which are suffixes: see
//! [`attribute`]. A schedule, a session quota or a grant count is a rule that the plain token bucket
//! does not know; where one is present, the bucket is its clients' to refill and to shard.

/// The sort key of every bucket item.
pub const STATE: &str = "#STATE";

/// The entity to which consumption cascades; absent if there is none.
pub const PARENT_ID: &str = "parent_id";
/// Whether consumption cascades to the parent (a boolean).
pub const CASCADE: &str = "cascade";
/// Number of shards of the bucket; shard 0's is the truth.
pub const SHARD_COUNT: &str = "shard_count";
/// The last refill, in epoch milliseconds, of all limits of the item.
pub const LAST_REFILL: &str = "rf";
/// Until when the item's amounts hold, in epoch milliseconds: a schedule changes them then. Where it
/// is present, a conditional write pins it.
pub const VALID_UNTIL: &str = "vu";
/// Generation of the parent: a number that rises whenever the entity moves to another one.
pub const PARENT_GENERATION: &str = "pgen";
/// Incarnation of the entity, a random text: generations compare only within one.
pub const INCARNATION: &str = "pinc";
/// The schedule of all limits that have none of their own, in the clients' encoding.
pub const DEFAULT_SCHEDULE: &str = "sched";
/// The reset schedule of all limits that have none of their own, in the clients' encoding.
pub const DEFAULT_RESET_SCHEDULE: &str = "rsched";
/// The IANA time zone of every schedule of the item.
pub const SCHEDULE_ZONE: &str = "sched_tz";
/// Present where the bucket refuses all callers: a boolean that is true.
pub const DISABLED: &str = "disabled";
/// Present where the bucket admits all callers, whatever it holds: the epoch milliseconds until which
/// clients may rely on it. Then they look at the configuration, and renew or remove it.
pub const BYPASS: &str = "bypass";

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
pub const SCHEDULE: &str = "sched";
/// Suffix: the limit's own reset schedule, in the clients' encoding.
pub const RESET_SCHEDULE: &str = "rsched";
/// Suffix: start of a session quota's window, in epoch milliseconds; absent before the first.
pub const SESSION_START: &str = "ws";
/// Suffix: length of a session quota's window, in **seconds**.
pub const SESSION_LENGTH: &str = "rsa";
/// Suffix: the window start that this shard's tokens already reflect, in epoch milliseconds.
pub const SESSION_APPLIED: &str = "wa";
/// Suffix: [`CONSUMED`] when a window was announced that is not yet applied, in millitokens.
pub const SESSION_CONSUMED: &str = "wtc";
/// Suffix: the number of shards for which this shard's share of a quota was measured out.
pub const GRANT_COUNT: &str = "gc";
/// Suffix: what an operator added to this shard's share of a quota, in millitokens.
pub const TOPPED_UP: &str = "tu";
/// Suffix: how often an operator reset this shard's share of a calendar quota; absent before the first
/// time.
pub const RESET_COUNT: &str = "rn";

const PREFIX: &str = "b_";

/// The attribute of a limit's field: `b_{limit}_{field}`.
#[must_use]
pub fn attribute(limit: &str, field: &str) -> String {
    format!("{PREFIX}{limit}_{field}")
}

/// The limit and the field of an attribute, if it is one of a limit's: split at the **last**
/// underscore, since limits may hold underscores and fields hold none.
#[must_use]
pub fn limit_and_field(attribute: &str) -> Option<(&str, &str)> {
    attribute.strip_prefix(PREFIX)?.rsplit_once('_')
}
