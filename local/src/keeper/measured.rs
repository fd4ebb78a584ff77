//! What was seen of a phase on one side.

use bucket_keeper::report::Report;
use tidegate_domain::time::EpochMillis;

use super::{client::Acquired, phases::Terms, virtual_bucket::VirtualBucket};

/// A phase on one side: counts, and series of one number a second.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The phase.
    pub phase: &'static str,
    /// Tokens that the bucket holds at most.
    pub capacity: i64,
    /// Acquires.
    pub acquires: u64,
    /// Acquires that their first write admitted.
    pub speculative: u64,
    /// Acquires that the slow path admitted.
    pub slow: u64,
    /// Acquires that one exact bucket would have admitted.
    pub exact: u64,
    /// Write units that the clients took.
    pub client_units: u64,
    /// Write units that the keeper took.
    pub keeper_units: u64,
    /// What the keeper did.
    pub report: Report,
    /// Shards in the end, as shard 0 says...
    pub shards: u32,
    /// ...and how many of them there are.
    pub existing: usize,
    /// Tokens in the items, second by second.
    pub stored: Vec<i64>,
    /// Of the acquires that were admitted or should have been, those that the first write admitted, in a
    /// thousand, second by second.
    pub shares: Vec<i64>,
    /// Shards, second by second.
    pub shards_by_second: Vec<i64>,
    /// Tokens of the drained shard, twice a minute.
    pub drained: Vec<i64>,
    /// One exact bucket from which all that was admitted is taken, and one that admits for itself.
    taken: VirtualBucket,
    serving: VirtualBucket,
    /// Speculative ones, and all that were admitted or should have been, when the last second began.
    last: (u64, u64),
}

impl Measured {
    pub(crate) fn new(phase: &'static str, terms: Terms, at: i64) -> Self {
        Self {
            phase,
            capacity: terms.capacity,
            acquires: 0,
            speculative: 0,
            slow: 0,
            exact: 0,
            client_units: 0,
            keeper_units: 0,
            report: Report::default(),
            shards: 0,
            existing: 0,
            stored: Vec::new(),
            shares: Vec::new(),
            shards_by_second: Vec::new(),
            drained: Vec::new(),
            taken: VirtualBucket::new(terms, at),
            serving: VirtualBucket::new(terms, at),
            last: (0, 0),
        }
    }

    /// Takes the acquires of one moment, of so many tokens each.
    pub(crate) fn take(&mut self, acquired: &[Acquired], tokens: i64, now: EpochMillis) {
        let count = |kind| acquired.iter().filter(|acquired| **acquired == kind).count();
        let (speculative, slow) = (count(Acquired::Speculatively), count(Acquired::Slowly));
        self.taken.take(whole(speculative + slow) * tokens, now.get());
        self.serving.take(0, now.get());
        let served = whole(acquired.len()).min(self.serving.left() / tokens);
        self.serving.take(served * tokens, now.get());
        self.acquires += acquired.len() as u64;
        self.speculative += speculative as u64;
        self.slow += slow as u64;
        self.exact += served.unsigned_abs();
    }

    /// Notes what the bucket is now.
    pub(crate) fn sample(&mut self, stored: i64, shards: u32) {
        let now = (self.speculative, self.due());
        self.stored.push(stored);
        self.shares.push(per_mille(now.0 - self.last.0, now.1 - self.last.1));
        self.shards_by_second.push(shards.into());
        self.last = now;
    }

    /// The acquires that were admitted, or as many as should have been.
    #[must_use]
    pub fn due(&self) -> u64 {
        (self.speculative + self.slow).max(self.exact)
    }

    /// The tokens that were admitted beyond what one exact bucket allows, at the worst moment.
    #[must_use]
    pub fn over_admitted(&self) -> i64 {
        self.taken.over_admitted()
    }

    /// Of those, the part that the first write admitted, in percent.
    #[must_use]
    pub fn speculative_percent(&self) -> f64 {
        if self.due() == 0 { 100.0 } else { float(self.speculative) * 100.0 / float(self.due()) }
    }

    /// Write units of clients and keeper for a thousand acquires.
    #[must_use]
    pub fn units_per_thousand(&self) -> f64 {
        float(self.units()) * 1000.0 / float(self.acquires.max(1))
    }

    /// Write units of clients and keeper.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.client_units + self.keeper_units
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn per_mille(part: u64, whole: u64) -> i64 {
    let share = (part * 1000).checked_div(whole).unwrap_or(1000);
    i64::try_from(share).unwrap_or(1000)
}

#[expect(clippy::cast_precision_loss, reason = "a person reads four digits of it")]
fn float(count: u64) -> f64 {
    count as f64
}
