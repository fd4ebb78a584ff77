//! One bucket in simulated time: its clients, its stream, and the keeper's own decisions.
//!
//! The clients are those of zae-limiter 0.17. Writes are atomic at the moment at which they arrive; a slow path takes
//! three calls, in which other clients may write.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_domain::{
    activity,
    bucket::{BucketChange, BucketKey, ChangeKind, Entity, InvalidName, Limit, Namespace, Resource, Shard},
    refill::{self, Decision, Refill},
    sequence::{SequenceNumber, StreamLabel},
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms},
    tokens::Millitokens,
};

use super::{
    held::{Exact, consume, projected, time, tokens},
    loads::Load,
    queue::{Event, Queued},
};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
/// What an acquire takes of the write units, in millitokens: one of 1,000 a second.
const WRITE_UNIT: i64 = 1_000;
/// From a client's failed write to its clock reading, in microseconds.
const ANSWER: i64 = 3_000;
/// Both reads of a slow path: the configuration, then the item.
const READS: i64 = 8_000;
const WRITE: i64 = 4_000;
/// How many other shards a client tries when one is short.
const PROBES: usize = 2;

/// How the keeper gets the records. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) window: i64,
    /// From the end of a window to the function, on average.
    pub(super) lag: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub acquires: u64,
    /// Acquires that took the slow path.
    pub slow: u64,
    pub rejected: u64,
    /// Acquires that an exact token bucket of the whole limit would have rejected.
    pub exact: u64,
    /// Writes to the table, those whose condition failed among them.
    pub writes: u64,
    /// Writes that changed an item, each of which is also a write to GSI2.
    pub changes: u64,
    /// Refills that the keeper wrote.
    pub refilled: u64,
    /// Refills whose condition failed.
    pub lost: u64,
    /// Items that the repair read.
    pub repair_reads: u64,
}

struct Simulation<'l> {
    load: &'l Load,
    delivery: Option<Delivery>,
    /// Arrivals and draws, and the clients' latencies: the same with the keeper and without it.
    clients: StdRng,
    latencies: StdRng,
    /// The keeper's latencies.
    stream: StdRng,
    now: i64,
    end: i64,
    queue: BinaryHeap<Reverse<Queued>>,
    queued: u64,
    key: BucketKey<'static>,
    limits: [Limit<'static>; 2],
    shards: Vec<BucketState<'static>>,
    records: Vec<BucketChange<'static, BucketImage<'static>>>,
    sequence: u64,
    exact: Exact,
    counts: Counts,
}

/// Runs the load for so many seconds, with the keeper if there is a delivery.
pub(super) fn run(load: &Load, delivery: Option<Delivery>, seconds: f64, seed: u64) -> Result<Counts, InvalidName> {
    let [tokens, units] = [Limit::new("rpm")?, Limit::new(Limit::WRITE_UNITS)?];
    let terms = |capacity: i64, refill: i64, period: i64| Terms {
        capacity: Millitokens::new(capacity * 1000),
        refill: Millitokens::new(refill * 1000),
        period,
    };
    let count = ShardCount::new(load.shards).unwrap_or(ShardCount::ONE);
    let limit_state = |limit: &Limit<'_>, terms: Terms| LimitState {
        tokens: terms.share(limit, count).capacity,
        consumed: Millitokens::default(),
        terms,
    };
    let state = BucketState {
        last_refill: time(0),
        shards: count,
        expires: None,
        bytes: 600,
        limits: BTreeMap::from([
            (tokens.clone(), limit_state(&tokens, terms(load.capacity, load.refill, load.period))),
            (units.clone(), limit_state(&units, terms(1000, 1000, 1000))),
        ]),
    };
    let key = BucketKey {
        namespace: Namespace::new("TQ5vSMvQTm4")?,
        entity: Entity::new("user-1")?,
        resource: Resource::new("api")?,
        shard: Shard::ZERO,
    };
    let mut simulation = Simulation {
        load,
        delivery,
        clients: StdRng::seed_from_u64(seed),
        latencies: StdRng::seed_from_u64(seed + 1),
        stream: StdRng::seed_from_u64(seed + 2),
        now: 0,
        end: micros(seconds),
        queue: BinaryHeap::new(),
        queued: 0,
        key,
        limits: [tokens, units],
        shards: vec![state; load.shards as usize],
        records: Vec::new(),
        sequence: 0,
        exact: Exact { level: load.capacity * load.period * 1000, at: 0 },
        counts: Counts::default(),
    };
    simulation.run();
    Ok(simulation.counts)
}

impl Simulation<'_> {
    fn run(&mut self) {
        self.next_acquire();
        if let Some(delivery) = self.delivery {
            let phase = self.stream.random_range(0..delivery.window);
            self.push(phase, Event::Window);
            if self.load.shards > 1 {
                let phase = self.stream.random_range(0..MINUTE);
                self.push(phase, Event::Repair);
            }
        }
        while let Some(Reverse(Queued { at: (at, _), event })) = self.queue.pop() {
            if at >= self.end {
                break;
            }
            self.now = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Acquire => {
                self.acquire();
                self.next_acquire();
            }
            Event::Read { shard, now } => {
                let seen = self.shards[shard].clone();
                let write = around(WRITE, &mut self.latencies);
                self.push(write, Event::Commit { shard, now, seen });
            }
            Event::Commit { shard, now, seen } => self.commit(shard, now, &seen),
            Event::Retry { shard } => {
                if self.take(shard, 0) {
                    return;
                }
                self.counts.rejected += 1;
            }
            Event::Window => {
                let Some(Delivery { window, lag }) = self.delivery else { return };
                self.push(window, Event::Window);
                let records = std::mem::take(&mut self.records);
                if !records.is_empty() {
                    let lag = around(lag, &mut self.stream);
                    self.push(lag, Event::Batch(records));
                }
            }
            Event::Batch(records) => self.keep(records),
            Event::Refill { shard, seen, refill } => self.refill(shard, &seen, &refill),
            Event::Repair => {
                self.push(MINUTE, Event::Repair);
                for shard in 0..self.shards.len() {
                    let seen = self.shards[shard].clone();
                    self.counts.repair_reads += 1;
                    if let Decision::Refill(refill) = refill::decide_idle(&seen, time(self.now)) {
                        // The repair decides by a second, consistent read.
                        self.counts.repair_reads += 2;
                        self.push(WRITE, Event::Refill { shard, seen: seen.clone(), refill });
                    }
                }
            }
        }
    }

    fn next_acquire(&mut self) {
        let highest = self.load.highest_rate();
        let mut at = self.now;
        // A Poisson process of the highest rate, thinned out to the rate of the moment.
        loop {
            let gap = -(1.0 - self.clients.random::<f64>()).ln() / highest;
            at += micros(gap);
            if at >= self.end || self.clients.random::<f64>() * highest < self.load.rate(seconds(at)) {
                break;
            }
        }
        self.push(at - self.now, Event::Acquire);
    }

    fn acquire(&mut self) {
        self.counts.acquires += 1;
        let load = self.load;
        self.counts.exact += u64::from(!self.exact.take(load, self.now));
        let mut untried: Vec<usize> = (0..self.shards.len()).collect();
        let draws: [usize; 1 + PROBES] = std::array::from_fn(|_| self.clients.random_range(0..5040));
        let mut first = None;
        for draw in draws {
            if untried.is_empty() {
                break;
            }
            let shard = untried.swap_remove(draw % untried.len());
            if self.take(shard, WRITE_UNIT) {
                return;
            }
            first = first.or(Some(shard));
            // Without write units, the slow path takes place on the same shard.
            if self.stored(shard, 0) >= self.wanted() {
                break;
            }
        }
        let Some(shard) = first else { return };
        let now = self.now + ANSWER;
        if self.projected(shard, 0, now) < self.wanted() {
            self.counts.rejected += 1;
            return;
        }
        self.counts.slow += 1;
        let reads = around(READS, &mut self.latencies);
        self.push(ANSWER + reads, Event::Read { shard, now });
    }

    /// A conditional write that takes the tokens that an acquire wants, and so many write units.
    fn take(&mut self, shard: usize, units: i64) -> bool {
        self.counts.writes += 1;
        let wanted = [self.wanted(), units];
        if (0..2).any(|limit| self.stored(shard, limit) < wanted[limit]) {
            return false;
        }
        self.change(shard, |state, limits| {
            for (limit, wanted) in limits.iter().zip(wanted) {
                consume(state, limit, -wanted, wanted);
            }
        });
        true
    }

    fn commit(&mut self, shard: usize, now: i64, seen: &BucketState<'static>) {
        let wanted = self.wanted();
        let credits = [0, 1].map(|limit| {
            let projected = projected(seen, &self.limits[limit], now);
            projected - tokens(seen, &self.limits[limit])
        });
        if tokens(seen, &self.limits[0]) + credits[0] < wanted {
            self.counts.rejected += 1;
            return;
        }
        self.counts.writes += 1;
        let state = &self.shards[shard];
        let is_as_seen = (0..2).all(|limit| {
            let (stored, seen) = (tokens(state, &self.limits[limit]), tokens(seen, &self.limits[limit]));
            let taken = if limit == 0 { wanted } else { 0 };
            stored >= taken - credits[limit] && (credits[limit] <= 0 || stored <= seen)
        });
        if state.last_refill != seen.last_refill || !is_as_seen {
            let retry = around(WRITE, &mut self.latencies);
            self.push(retry, Event::Retry { shard });
            return;
        }
        // The clock is read a second time after the reads: what has accrued in between is lost.
        let last_refill = time(self.now - WRITE).max(seen.last_refill);
        self.change(shard, |state, limits| {
            state.last_refill = last_refill;
            consume(state, &limits[0], credits[0] - wanted, wanted);
            consume(state, &limits[1], credits[1], 0);
        });
    }

    fn keep(&mut self, records: Vec<BucketChange<'static, BucketImage<'static>>>) {
        let now = time(self.now);
        for activity in activity::fold(records) {
            let Some(state) = activity.image.plain() else { continue };
            if let Decision::Refill(refill) = refill::decide(&activity, state, now) {
                let shard = activity.bucket.shard.get() as usize;
                let write = around(2 * WRITE, &mut self.stream);
                self.push(write, Event::Refill { shard, seen: state.clone(), refill });
            }
        }
    }

    /// The keeper's write, on the same condition as `Buckets::refill`.
    fn refill(&mut self, shard: usize, seen: &BucketState<'static>, refill: &Refill<'static>) {
        self.counts.writes += 1;
        let state = &self.shards[shard];
        let is_as_seen = state.last_refill == seen.last_refill
            && state.shards == seen.shards
            && refill.credits.keys().all(|limit| tokens(state, limit) <= tokens(seen, limit))
            && refill.trims.iter().all(|(limit, share)| tokens(state, limit) > share.get());
        if !is_as_seen {
            self.counts.lost += 1;
            return;
        }
        self.counts.refilled += 1;
        self.change(shard, |state, _| *state = refill.applied_to(state.clone()));
    }

    fn change(&mut self, shard: usize, change: impl FnOnce(&mut BucketState<'static>, &[Limit<'static>; 2])) {
        self.counts.changes += 1;
        let old = self.delivery.map(|_| self.shards[shard].clone());
        change(&mut self.shards[shard], &self.limits);
        let Some(old) = old else { return };
        self.sequence += 1;
        let stream = StreamLabel::parse("2026-01-01T00:00:00.000");
        let sequence = SequenceNumber::parse(&format!("{:021}", self.sequence));
        let (Ok(stream), Ok(sequence)) = (stream, sequence) else { return };
        self.records.push(BucketChange {
            bucket: self.key.at(Shard::new(u32::try_from(shard).unwrap_or_default())),
            stream,
            sequence,
            // In whole seconds, as on AWS.
            created: time(self.now - self.now.rem_euclid(SECOND)),
            kind: ChangeKind::Updated,
            old: BucketImage::Plain(old),
            new: BucketImage::Plain(self.shards[shard].clone()),
        });
    }

    fn wanted(&self) -> i64 {
        self.load.tokens * 1000
    }

    fn stored(&self, shard: usize, limit: usize) -> i64 {
        tokens(&self.shards[shard], &self.limits[limit])
    }

    fn projected(&self, shard: usize, limit: usize, now: i64) -> i64 {
        projected(&self.shards[shard], &self.limits[limit], now)
    }

    fn push(&mut self, later: i64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse(Queued { at: (self.now + later, self.queued), event }));
    }
}

/// A time that is up to a third shorter or longer.
fn around(mean: i64, rng: &mut StdRng) -> i64 {
    mean + rng.random_range(-mean / 3..=mean / 3)
}

#[expect(clippy::cast_precision_loss, reason = "it draws arrivals")]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[expect(clippy::cast_possible_truncation, reason = "the simulation ends long before")]
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}
