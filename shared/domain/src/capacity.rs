//! How work is announced to a table before it starts, and the minimum that auto scaling keeps meanwhile.
//!
//! | module | holds |
//! |---|---|
//! | [`announcement`] | announcements: which are accepted, and what those in force need together |
//! | [`minimum`] | which minimum a scalable target must have, and when the owner's is restored |
//! | [`warm`] | what an on-demand table lacks, and what that costs |
//!
//! # The rule
//!
//! Application Auto Scaling keeps a table's capacity between the minimum and the maximum of a *scalable target*. The
//! minimum belongs to the table's owner. The coordinator raises it while announcements are in force:
//!
//! 1. With announcements in force, the minimum is at least what they need together with the other traffic at the target
//!    utilization, or the maximum if that is lower. It is never below the owner's minimum.
//! 2. Without announcements in force, the minimum is the owner's.
//! 3. A minimum that the coordinator has not set is the owner's, from then on.
//!
//! Any number of processes may follow the rule at the same time, and each may end at any moment. A call that sets a minimum
//! has no condition, so a late call may set an old value. Therefore a [record](minimum::MinimumRecord) of each target
//! holds every value that such a call may still set. The schedule looks at each recorded target every minute and repairs it.
//! The rule holds after each such look that overlaps no other process.
//!
//! These conditions must hold outside of this module:
//!
//! - A process reads the record of a target **before** it reads the announcements, and writes the record on the condition
//!   that its version has not changed.
//! - A process sets a minimum only after it has written it to the record, and within [`minimum::CALL`] of the moment
//!   with which it has decided. That moment is before it reads the target.
//! - A description of a target is at most [`minimum::CALL`] old.
//! - A new announcement and the record are written in one transaction.
//! - Clocks differ by less than a minute: the rest of [`minimum::CALLS_END`].
//!
//! A minimum may be too low for up to a minute. That does no harm while the table is used as announced: auto scaling lowers a
//! capacity after [15 minutes](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/AutoScaling.html) of low
//! utilization. If the utilization has been low for so long, for example because the work has not started, the capacity
//! falls at once.
//!
//! # Example
//!
//! ```
//! use tidegate_domain::capacity::{Capacity, ScalableTarget, Utilization};
//!
//! let target = ScalableTarget {
//!     minimum: Capacity::new(5),
//!     maximum: Capacity::new(40_000),
//!     utilization: Utilization::from_percent(70.0).ok_or("between 0 and 100")?,
//! };
//! // 4,000 units of other traffic and an announcement of 14,000 are 70 % of 25,715.
//! assert_eq!(target.needed(Capacity::new(4_000), Capacity::new(14_000)), Capacity::new(25_715));
//! # Ok::<(), &str>(())
//! ```

pub mod announcement;
pub mod minimum;
pub mod warm;

use std::fmt;

use crate::throttle::CapacityKind;

/// Whole capacity units a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(u64);

impl Capacity {
    /// No capacity.
    pub const ZERO: Self = Self(0);

    /// Creates a capacity from units a second.
    #[must_use]
    pub const fn new(units: u64) -> Self {
        Self(units)
    }

    /// Returns units a second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the sum. It stops at the largest number.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or zero if `other` is larger.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The share of the provisioned capacity that auto scaling wants to be consumed, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Utilization(u16);

impl Utilization {
    /// The whole capacity is consumed.
    pub const FULL: Self = Self(10_000);

    /// Creates a utilization from a percentage, rounded down to a hundredth. Returns `None` unless it is above 0 and at most
    /// 100.
    ///
    /// AWS: [DynamoDB accepts 20 to 90](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/AutoScaling.html).
    #[must_use]
    pub fn from_percent(percent: f64) -> Option<Self> {
        let hundredths = percent * 100.0;
        if !(1.0..=10_000.0).contains(&hundredths) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 10,000")]
        let hundredths = hundredths as u16;
        Some(Self(hundredths))
    }

    /// Returns the percentage.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

/// One dimension that auto scaling scales: the read or the write capacity of a table, or of a global secondary index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The table's name.
    pub table: String,
    /// The index's name. `None` for the table itself.
    pub index: Option<String>,
    /// Which capacity it is.
    pub kind: CapacityKind,
}

impl Target {
    /// Returns the name of the resource as Application Auto Scaling writes it, like `table/orders/index/by-date`.
    ///
    /// AWS: [resource ids](https://docs.aws.amazon.com/autoscaling/application/APIReference/API_RegisterScalableTarget.html).
    #[must_use]
    pub fn resource(&self) -> String {
        match &self.index {
            Some(index) => format!("table/{}/index/{index}", self.table),
            None => format!("table/{}", self.table),
        }
    }
}

/// Like `table/orders#write`. No two targets have the same text: names of tables and indexes hold neither `/` nor `#`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.resource(), self.kind)
    }
}

/// A scalable target with a target tracking policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalableTarget {
    /// The capacity that auto scaling does not go below.
    pub minimum: Capacity,
    /// The capacity that auto scaling does not exceed.
    pub maximum: Capacity,
    /// The policy's target.
    pub utilization: Utilization,
}

impl ScalableTarget {
    /// Returns the capacity at which `consumption` and `announced` together are the target utilization, rounded up, or the
    /// maximum if that is lower.
    #[must_use]
    pub fn needed(&self, consumption: Capacity, announced: Capacity) -> Capacity {
        let total = u128::from(consumption.plus(announced).get()) * u128::from(Utilization::FULL.0);
        let needed = total.div_ceil(u128::from(self.utilization.0));
        Capacity(u64::try_from(needed).unwrap_or(u64::MAX)).min(self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(percent: f64, maximum: u64) -> ScalableTarget {
        ScalableTarget {
            minimum: Capacity::new(1),
            maximum: Capacity::new(maximum),
            utilization: Utilization::from_percent(percent).unwrap(),
        }
    }

    #[test]
    fn the_need_is_rounded_up_and_capped() {
        let check = |percent, maximum, consumption, announced, expect| {
            let needed = target(percent, maximum).needed(Capacity::new(consumption), Capacity::new(announced));
            assert_eq!(needed, Capacity::new(expect), "{consumption} + {announced} at {percent} %, at most {maximum}");
        };
        check(70.0, 40_000, 4_000, 14_000, 25_715);
        check(70.0, 20_000, 4_000, 14_000, 20_000);
        check(50.0, 40_000, 1, 0, 2);
        check(100.0, 40_000, 3, 4, 7);
        check(70.0, 40_000, 0, 0, 0);
        check(20.0, u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    }

    #[test]
    fn a_utilization_is_a_percentage() {
        for (percent, expect) in [(70.0, Some(70.0)), (66.666, Some(66.66)), (100.0, Some(100.0)), (0.01, Some(0.01))] {
            assert_eq!(Utilization::from_percent(percent).map(Utilization::percent), expect, "{percent}");
        }
        for percent in [0.0, 0.001, -1.0, 100.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Utilization::from_percent(percent), None, "{percent}");
        }
    }

    #[test]
    fn a_target_is_named_as_auto_scaling_does() {
        let target = |index: Option<&str>, kind| Target { table: "orders".into(), index: index.map(Into::into), kind };
        assert_eq!(target(None, CapacityKind::Write).to_string(), "table/orders#write");
        assert_eq!(target(Some("by-date"), CapacityKind::Read).to_string(), "table/orders/index/by-date#read");
    }
}
