//! An estimate of what the next call of a kind costs: the moving average of the earlier calls.

use super::Units;

/// The share of a new cost in the average: an eighth.
const SHARE: u64 = 8;

/// The least that DynamoDB charges for a call: an eventually consistent read of an item of at most 4 KB.
///
/// AWS: [read operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption).
const LEAST: Units = Units::from_millionths(Units::ONE / 2);

/// Returns the new average, after a call whose entries have cost `cost` together. `average` is `None` before the first call.
/// A batch or a transaction has as many entries as items or statements, and other calls have one.
///
/// ```
/// use tidegate_domain::throttle::{Units, estimate};
///
/// let units = |units: u64| Units::from_millionths(units * Units::ONE);
/// let average = estimate::updated(None, units(40), 10);
/// assert_eq!(average, units(4));
/// assert_eq!(estimate::updated(Some(average), units(20), 1), units(6));
/// assert_eq!(estimate::cost(average, 25), units(100));
/// ```
#[must_use]
pub fn updated(average: Option<Units>, cost: Units, entries: u32) -> Units {
    let cost = cost.millionths() / u64::from(entries.max(1));
    let average = average.map_or(cost, |average| {
        let average = average.millionths();
        if cost > average { average + (cost - average) / SHARE } else { average - (average - cost) / SHARE }
    });
    Units::from_millionths(average).max(LEAST)
}

/// Returns what a call with so many entries costs, by the average of an entry.
#[must_use]
pub fn cost(average: Units, entries: u32) -> Units {
    Units::from_millionths(average.millionths().saturating_mul(entries.max(1).into()))
}
