//! What was seen of a simulated fleet.

use tidegate_domain::{rates::tally::Tally, time::EpochMillis};

pub use super::worker::WorkerId;

/// A run, second by second and aggregation by aggregation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// The seconds, from the first.
    pub seconds: Vec<Second>,
    /// The aggregations, in order.
    pub passes: Vec<Pass>,
}

/// One second, by member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Second {
    /// Capacity units that were consumed.
    pub consumed: Vec<f64>,
    /// The limit in the end; 0 of a member that has not joined yet.
    pub limits: Vec<f64>,
}

impl Second {
    /// Capacity units that the fleet has consumed.
    pub fn total(&self) -> f64 {
        self.consumed.iter().sum()
    }
}

/// An aggregation: the reports that were there, and what they came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// The moment at which the reports were judged.
    pub at: EpochMillis,
    pub reports: Vec<Reported>,
    /// What the aggregator makes of them.
    pub tally: Tally,
}

/// What a worker wrote.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reported {
    pub worker: WorkerId,
    /// When, by its own clock.
    pub at: EpochMillis,
    /// Capacity units a second.
    pub rate: f64,
}
