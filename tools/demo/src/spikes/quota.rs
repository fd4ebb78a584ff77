//! How often the provisioned capacity of a table may be decreased.

use super::traffic::{DAY, HOUR};

/// Decreases in the hour that begins with the first one of a day.
const FIRST_HOUR: u32 = 4;

/// The quota of decreases of one table.
///
/// Each UTC day, four decreases are possible within an hour, and then one more after each hour without a decrease: 27 at
/// most.
///
/// AWS: [decreasing provisioned throughput](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DecreaseQuota {
    today: Option<Decreases>,
}

/// The decreases of one UTC day.
#[derive(Clone, Copy, Debug)]
struct Decreases {
    first: u32,
    last: u32,
    count: u32,
}

impl DecreaseQuota {
    /// Counts a decrease in the second `now`, and returns whether it is possible. Seconds count from a midnight UTC.
    pub(crate) fn take(&mut self, now: u32) -> bool {
        let today = self.today.filter(|today| today.first / DAY == now / DAY);
        let next = match today {
            None => Decreases { first: now, last: now, count: 1 },
            Some(today) => {
                let in_first_hour = now - today.first < HOUR && today.count < FIRST_HOUR;
                if !in_first_hour && now - today.last < HOUR {
                    return false;
                }
                Decreases { last: now, count: today.count + 1, ..today }
            }
        };
        self.today = Some(next);
        true
    }

    /// The number of decreases on the day of the last one.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        self.today.map_or(0, |today| today.count)
    }
}
