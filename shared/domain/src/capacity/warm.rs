//! On-demand tables, which serve up to their warm throughput at once.
//!
//! AWS: [warm throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html).

use super::{Capacity, announcement::Demand};
use crate::throttle::CapacityKind;

/// What a unit of warm throughput costs, in billionths of a US dollar, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmPrices {
    /// For one read unit a second.
    pub read: u64,
    /// For one write unit a second.
    pub write: u64,
}

impl WarmPrices {
    /// Returns what `units` cost, in billionths of a US dollar.
    #[must_use]
    pub fn of(&self, units: Capacity, kind: CapacityKind) -> u128 {
        let price = match kind {
            CapacityKind::Read => self.read,
            CapacityKind::Write => self.write,
        };
        u128::from(price) * u128::from(units.get())
    }
}

/// Returns the units that a warm throughput lacks to serve a demand at once.
#[must_use]
pub const fn missing(warm: Capacity, demand: Demand) -> Capacity {
    demand.total().minus(warm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_units_have_a_price() {
        let demand = Demand { other: Capacity::new(4_000), announced: Capacity::new(14_000) };
        assert_eq!(missing(Capacity::new(4_000), demand), Capacity::new(14_000));
        assert_eq!(missing(Capacity::new(18_000), demand), Capacity::ZERO);
        let prices = WarmPrices { read: 130_000, write: 650_000 };
        assert_eq!(prices.of(Capacity::new(14_000), CapacityKind::Write), 9_100_000_000);
        assert_eq!(prices.of(Capacity::new(14_000), CapacityKind::Read), 1_820_000_000);
    }
}
