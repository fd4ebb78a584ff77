//! The phases: what the clients do, and what each phase shows. Each phase has a bucket of its own.

use bucket_keeper::report::KeeperReport;
use tidegate_domain::time::EpochMillis;

use super::client::Acquired;
use crate::{
    exact_bucket::{ExactBucket, Terms},
    print::float,
};

/// A part of a load, in acquires a second. The rate changes linearly from the first second to the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadSegment {
    pub(crate) seconds: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// The period is in milliseconds.
    pub(crate) terms: Terms,
    /// What each acquire takes, in whole tokens.
    pub(crate) tokens: i64,
    pub(crate) load: Vec<LoadSegment>,
}

pub(crate) const STEADY: &str = "steady";
pub(crate) const BURST: &str = "burst";
pub(crate) const SURGE: &str = "surge";
pub(crate) const RAMP: &str = "ramp";
pub(crate) const IDLE: &str = "idle";

/// Shards of the idle bucket. The last one is drained; the others receive no writes.
pub(crate) const IDLE_SHARDS: u32 = 4;
/// How often the shard is drained, with a minute of rest after each time.
pub(crate) const DRAINS: usize = 2;
pub(crate) const RAMP_SHARDS: u32 = 4;

/// The phases with traffic. The steady one lasts so many seconds of simulated time.
pub(crate) fn with_traffic(seconds: u32) -> [Phase; 4] {
    let constant = |seconds, rate| LoadSegment { seconds, from: rate, to: rate };
    [
        // Four fifths of the limit.
        Phase {
            name: STEADY,
            terms: Terms { capacity: 2_000, refill: 400, period: 1_000 },
            tokens: 20,
            load: vec![constant(seconds, 16)],
        },
        // Fifteen times the limit until the bucket is empty and beyond, then nine tenths of it. Acquires of five tokens
        // let the limit run out and not a shard's write units, so that the bucket keeps its one shard.
        Phase {
            name: BURST,
            terms: Terms { capacity: 2_000, refill: 100, period: 1_000 },
            tokens: 5,
            load: vec![constant(3, 300), constant(9, 18)],
        },
        // The write units of the only shard run out when the bucket is nearly empty.
        Phase {
            name: SURGE,
            terms: Terms { capacity: 3_200, refill: 100, period: 1_000 },
            tokens: 1,
            load: vec![constant(3, 1_500)],
        },
        // From what one shard can serve to what needs four, always below the limit.
        Phase {
            name: RAMP,
            terms: Terms { capacity: 20_000, refill: 5_000, period: 1_000 },
            tokens: 1,
            load: vec![LoadSegment { seconds: 5, from: 100, to: 2_000 }, constant(2, 2_000)],
        },
    ]
}

/// The phase without traffic. A shard accrues its share in half of the minute that it rests after each drain.
pub(crate) fn idle() -> Phase {
    Phase { name: IDLE, terms: Terms { capacity: 400, refill: 400, period: 30_000 }, tokens: 1, load: Vec::new() }
}

impl Phase {
    /// The acquires of each second.
    pub(crate) fn by_second(&self) -> impl Iterator<Item = u32> {
        self.load.iter().flat_map(|segment| (0..segment.seconds).map(|second| segment.rate(second)))
    }

    pub(crate) fn acquires(&self) -> u64 {
        self.by_second().map(u64::from).sum()
    }
}

impl LoadSegment {
    fn rate(self, second: u32) -> u32 {
        let steps = self.seconds.saturating_sub(1).max(1);
        (self.from * (steps - second.min(steps)) + self.to * second.min(steps)) / steps
    }
}

/// The figures of one phase of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) phase: &'static str,
    pub(crate) acquires: u64,
    /// Acquires that the first write admitted.
    pub(crate) first: u64,
    pub(crate) rejected: u64,
    /// Acquires that one exact bucket rejects.
    pub(crate) exactly_rejected: u64,
    /// Tokens that were admitted beyond what one exact bucket holds, at the worst moment.
    pub(crate) over_admitted: u64,
    /// Slow paths, whether they admitted their acquire or not.
    pub(crate) slow_paths: u64,
    /// Shards above 0 that clients created with a full share.
    pub(crate) created: u64,
    /// The cost of the clients' calls.
    pub(crate) clients: Units,
    /// The cost of the keeper's calls.
    pub(crate) keeper: Units,
    pub(crate) report: KeeperReport,
    /// The number of shards at the end, by shard 0.
    pub(crate) shards: u32,
    /// How many of these shards exist.
    pub(crate) existing: usize,
    /// Stored tokens by the second.
    pub(crate) stored: Vec<i64>,
    /// Shards by the second.
    pub(crate) shards_by_second: Vec<i64>,
    /// Tokens of the drained shard: after each drain, and a minute later.
    pub(crate) drained: Vec<i64>,
    /// An exact bucket from which all admitted tokens are taken.
    charged: ExactBucket,
    /// An exact bucket that admits acquires itself.
    deciding: ExactBucket,
}

/// The cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Units {
    /// Write units of the table.
    pub(crate) write: u64,
    /// Halves of read units.
    pub(crate) half_read: u64,
}

impl Units {
    /// The price, in tenths of a write unit: a write unit costs as much as five read units.
    pub(crate) fn price(self) -> u64 {
        self.write * 10 + self.half_read
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self { write: self.write - earlier.write, half_read: self.half_read - earlier.half_read }
    }
}

impl Figures {
    pub(crate) fn new(phase: &Phase, at: i64) -> Self {
        let exact = ExactBucket::new(phase.terms, at);
        Self { phase: phase.name, charged: exact.clone(), deciding: exact, ..Self::default() }
    }

    /// Counts an acquire of so many whole tokens.
    pub(crate) fn count(&mut self, acquired: Acquired, tokens: i64, now: EpochMillis) {
        self.acquires += 1;
        self.first += u64::from(acquired == Acquired::First);
        self.rejected += u64::from(acquired == Acquired::Rejected);
        self.exactly_rejected += u64::from(!self.deciding.acquire(tokens, now.get()));
        if acquired != Acquired::Rejected {
            self.charged.take(tokens, now.get());
        }
        self.over_admitted = self.charged.over_admitted();
    }

    /// The price of all calls, in tenths of a write unit.
    pub(crate) fn price(&self) -> u64 {
        self.clients.price() + self.keeper.price()
    }
}

/// How far a price is above another one, in percent.
pub(crate) fn percent_above(price: u64, other: u64) -> f64 {
    (float(price) / float(other.max(1)) - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_goes_from_first_rate_to_last() {
        let segment = LoadSegment { seconds: 5, from: 100, to: 500 };
        assert_eq!((0..5).map(|second| segment.rate(second)).collect::<Vec<_>>(), [100, 200, 300, 400, 500]);
        assert_eq!(LoadSegment { seconds: 1, from: 7, to: 7 }.rate(0), 7);
    }
}
