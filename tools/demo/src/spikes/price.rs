//! The cost of a table's writes in us-east-1, in millionths of a dollar.

use super::{table::INITIAL_WARM_THROUGHPUT, traffic::HOUR};

/// Millionths of a dollar for one write capacity unit that is provisioned for an hour.
///
/// AWS: [provisioned capacity](https://aws.amazon.com/dynamodb/pricing/provisioned/).
const PROVISIONED_HOUR: u64 = 650;
/// Thousandths of a millionth of a dollar for one write request unit.
///
/// AWS: [on-demand capacity](https://aws.amazon.com/dynamodb/pricing/on-demand/).
const REQUEST: u64 = 625;
/// Millionths of a dollar for each unit by which the warm throughput is raised, once.
///
/// AWS: [on-demand capacity](https://aws.amazon.com/dynamodb/pricing/on-demand/).
const WARM: u64 = 650;

/// Returns the cost of the sum over all seconds of the provisioned capacity. AWS meters capacity by the hour, the model by the
/// second.
pub(crate) fn provisioned(unit_seconds: u64) -> u64 {
    unit_seconds * PROVISIONED_HOUR / u64::from(HOUR)
}

/// Returns the cost of these write units, and of warm throughput that is raised to `warm` in the morning.
pub(crate) fn on_demand(units: u64, warm: u64) -> u64 {
    units * REQUEST / 1_000 + warm.saturating_sub(INITIAL_WARM_THROUGHPUT) * WARM
}

/// Writes dollars and cents.
pub(crate) fn dollars(millionths: u64) -> String {
    let cents = (millionths + 5_000) / 10_000;
    format!("{}.{:02} USD", cents / 100, cents % 100)
}
