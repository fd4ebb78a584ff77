//! Attributes of usage snapshots, beside those that all items have.
//!
//! A limit's counter, in whole tokens, is named after the limit
//! ([`snapshot_counter`](super::snapshot_counter)). Readers take every number for such a counter, except
//! [`TOTAL_EVENTS`] and [`TTL`](super::TTL).

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
