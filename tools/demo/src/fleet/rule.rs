//! How a worker sets its limit by the fleet's sum.

/// The rule, for one kind of capacity: its cap for the fleet, and its maximum for a worker, in capacity units a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    cap: f64,
    maximum: f64,
}

/// A cap or a maximum by which no worker can work.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} capacity units a second, where a number from 1 on is needed")]
pub struct InvalidRate(f64);

impl Rule {
    /// The least limit, in capacity units a second.
    pub const FLOOR: f64 = 1.0;
    /// How far the limit goes towards the target: 0 would be not at all, 1 at once.
    pub const SMOOTHING: f64 = 0.4;
    /// A worker that knows nothing yet takes the cap divided by this.
    pub const GUESS: f64 = 10.0;

    /// The rule with this cap and this maximum.
    pub fn new(cap: f64, maximum: f64) -> Result<Self, InvalidRate> {
        match [cap, maximum].into_iter().find(|rate| !rate.is_finite() || *rate < Self::FLOOR) {
            Some(rate) => Err(InvalidRate(rate)),
            None => Ok(Self { cap, maximum }),
        }
    }

    /// What the fleet may consume.
    pub const fn cap(self) -> f64 {
        self.cap
    }

    /// What one worker may consume, even alone.
    pub const fn maximum(self) -> f64 {
        self.maximum
    }

    /// The limit of a worker that starts.
    pub const fn initial(self) -> f64 {
        self.maximum.min(self.cap / Self::GUESS).max(Self::FLOOR)
    }

    /// The limit that would bring the fleet exactly to its cap if the summary were current, at most the maximum.
    pub fn target(self, limit: f64, sum: f64) -> f64 {
        let scale = if sum > 0.0 { self.cap / sum } else { 1.0 };
        (limit * scale).min(self.maximum)
    }

    /// The limit after a worker with this limit has read this sum.
    pub fn adjust(self, limit: f64, sum: f64) -> f64 {
        let adjusted = (1.0 - Self::SMOOTHING) * limit + Self::SMOOTHING * self.target(limit, sum);
        if adjusted < Self::FLOOR { limit } else { adjusted }
    }
}
