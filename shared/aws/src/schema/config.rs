//! Attributes of configuration items: the limits of a namespace, a resource, or an entity on a
//! resource. Their units are not those of buckets.

/// The sort key of the limits of a namespace or a resource; the beginning of those of an entity's.
pub const CONFIG: &str = "#CONFIG";

/// A number that rises with every change of the item.
pub const VERSION: &str = "config_version";

/// Suffix: capacity, in **whole tokens**.
pub const CAPACITY: &str = "cp";
/// Suffix: **whole tokens** refilled in a period.
pub const REFILL_AMOUNT: &str = "ra";
/// Suffix: the refill period, in **seconds**.
pub const REFILL_PERIOD: &str = "rp";

const PREFIX: &str = "l_";

/// The attribute of a limit's field: `l_{limit}_{field}`.
#[must_use]
pub fn attribute(limit: &str, field: &str) -> String {
    format!("{PREFIX}{limit}_{field}")
}

/// The limit and the field of an attribute, if it is one of a limit's: split at the **last**
/// underscore.
#[must_use]
pub fn limit_and_field(attribute: &str) -> Option<(&str, &str)> {
    attribute.strip_prefix(PREFIX)?.rsplit_once('_')
}
