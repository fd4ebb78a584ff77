//! The figures of one phase of a run.

use bucket_keeper::report::KeeperReport;
use tidegate_domain::time::EpochMillis;

use super::{client::Acquired, exact_bucket::ExactBucket, phases::Phase};

/// Counts of a phase, and series.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub phase: &'static str,
    pub acquires: u64,
    /// Acquires that the first write admitted.
    pub first: u64,
    pub rejected: u64,
    /// Acquires that one exact bucket rejects.
    pub exactly_rejected: u64,
    /// Tokens that were admitted beyond what one exact bucket holds, at the worst moment.
    pub over_admitted: u64,
    /// Slow paths, whether they admitted their acquire or not.
    pub slow_paths: u64,
    /// Shards above 0 that clients created with a full share.
    pub created: u64,
    /// What the clients' calls cost.
    pub clients: Units,
    /// What the keeper's calls cost.
    pub keeper: Units,
    /// What the keeper did.
    pub report: KeeperReport,
    /// The number of shards at the end, as shard 0 says.
    pub shards: u32,
    /// How many of these shards exist.
    pub existing: usize,
    /// Stored tokens by the second.
    pub stored: Vec<i64>,
    /// Shards by the second.
    pub shards_by_second: Vec<i64>,
    /// Tokens of the drained shard: after each drain, and a minute later.
    pub drained: Vec<i64>,
    /// An exact bucket from which everything is taken that was admitted.
    charged: ExactBucket,
    /// An exact bucket that decides for itself.
    deciding: ExactBucket,
}

/// What calls cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// Write units of the table.
    pub write: u64,
    /// Halves of read units.
    pub half_read: u64,
}

impl Units {
    /// The price, in tenths of a write unit: a write unit costs as much as five read units.
    pub fn price(self) -> u64 {
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

    /// Counts an acquire of so many tokens.
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
    pub fn price(&self) -> u64 {
        self.clients.price() + self.keeper.price()
    }
}

/// How far a price is above another one, in percent.
pub(crate) fn percent_above(price: u64, other: u64) -> f64 {
    (float(price) / float(other.max(1)) - 1.0) * 100.0
}

#[expect(clippy::cast_precision_loss, reason = "a person reads four digits of it")]
fn float(count: u64) -> f64 {
    count as f64
}
