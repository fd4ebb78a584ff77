//! Attributes of audit items, beside those that all items have: one item a change that somebody made.
//!
//! [`RESOURCE`](super::RESOURCE) is null here where the change concerns no single resource.

/// The event's ULID, as in the sort key.
pub const EVENT_ID: &str = "event_id";
/// When it happened, like `2026-01-01T14:00:00Z`.
pub const TIMESTAMP: &str = "timestamp";
/// What was done, such as `limits_set`.
pub const ACTION: &str = "action";
/// Who did it: an ARN, or a name that the caller gave.
pub const PRINCIPAL: &str = "principal";
/// Particulars of the action: a map.
pub const DETAILS: &str = "details";
