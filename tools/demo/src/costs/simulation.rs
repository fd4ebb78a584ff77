//! One bucket in simulated time: its clients, its stream, and the keeper's own decisions. Times are in microseconds.
//!
//! The clients are those of zae-limiter 0.17. Writes are atomic at the moment at which they arrive; a slow path takes
//! three calls, in which other clients may write.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tidegate_domain::{
    activity,
    bucket::{BucketChange, BucketKey, ChangeKind, Entity, InvalidName, Limit, Namespace, Resource, Shard},
    refill::{self, Decision, Refill},
    sequence::{SequenceNumber, StreamLabel},
    state::{BucketImage, BucketState, LimitState, ShardCount, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

use super::loads::Load;
use crate::{
    clock::{Agenda, START},
    exact_bucket::{self, ExactBucket},
};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
/// The write units that an acquire takes, in millitokens: one of 1,000 a second.
const WRITE_UNIT: i64 = 1_000;
/// From a client's failed write until it reads its clock.
const ANSWER: i64 = 3_000;
/// Both reads of a slow path: the configuration, then the item.
const READS: i64 = 8_000;
const WRITE: i64 = 4_000;
/// How many other shards a client tries when one is short.
const PROBES: usize = 2;

/// How the stream delivers records to the keeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) window: i64,
    /// From the end of a window to the function, on average.
    pub(crate) lag: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acquires: u64,
    /// Acquires that took the slow path.
    pub(crate) slow: u64,
    pub(crate) rejected: u64,
    /// Acquires that an exact token bucket of the whole limit rejects.
    pub(crate) exact: u64,
    /// Writes to the table, those whose condition failed among them.
    pub(crate) writes: u64,
    /// Writes that changed an item, each of which is also a write to GSI2.
    pub(crate) changes: u64,
    /// Refills that the keeper wrote.
    pub(crate) refilled: u64,
    /// Refills whose condition failed.
    pub(crate) lost: u64,
    /// Items that the repair read.
    pub(crate) repair_reads: u64,
}

#[derive(Debug)]
enum Event {
    Acquire,
    /// A client reads the item, to refill it up to the time `now`.
    Read {
        shard: usize,
        now: i64,
    },
    /// A client writes what it has computed from the item that it read.
    Commit {
        shard: usize,
        now: i64,
        read: BucketState<'static>,
    },
    /// A client takes its tokens without a refill.
    Retry {
        shard: usize,
    },
    /// A batching window ends.
    Window,
    Batch(Vec<BucketChange<'static, BucketImage<'static>>>),
    Refill {
        shard: usize,
        read: BucketState<'static>,
        refill: Refill<'static>,
    },
    Repair,
}

struct Simulation<'l> {
    load: &'l Load,
    delivery: Option<Delivery>,
    /// Random numbers for arrivals, shards and client latencies. They are the same with and without the keeper.
    clients: StdRng,
    latencies: StdRng,
    /// The keeper's latencies.
    stream: StdRng,
    agenda: Agenda<i64, Event>,
    end: i64,
    key: BucketKey<'static>,
    limits: [Limit<'static>; 2],
    shards: Vec<BucketState<'static>>,
    records: Vec<BucketChange<'static, BucketImage<'static>>>,
    sequence: u64,
    exact: ExactBucket,
    counts: Counts,
}

/// Runs the load for so many seconds, with the keeper if there is a delivery.
pub(crate) fn run(load: &Load, delivery: Option<Delivery>, seconds: f64, seed: u64) -> Result<Counts, InvalidName> {
    let [tokens, units] = [Limit::new("rpm")?, Limit::new(Limit::WRITE_UNITS)?];
    let terms = |capacity: i64, refill: i64, period: i64| Terms {
        capacity: Millitokens::new(capacity * 1000),
        refill: Millitokens::new(refill * 1000),
        period,
    };
    let exact_bucket::Terms { capacity, refill, period } = load.terms;
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
            (tokens.clone(), limit_state(&tokens, terms(capacity, refill, period))),
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
        agenda: Agenda::new(0),
        end: micros(seconds),
        key,
        limits: [tokens, units],
        shards: vec![state; load.shards as usize],
        records: Vec::new(),
        sequence: 0,
        exact: ExactBucket::new(exact_bucket::Terms { period: load.terms.period * 1000, ..load.terms }, 0),
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
            self.agenda.after(phase, Event::Window);
            if self.load.shards > 1 {
                let phase = self.stream.random_range(0..MINUTE);
                self.agenda.after(phase, Event::Repair);
            }
        }
        while let Some(event) = self.agenda.next(self.end - 1) {
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
                let read = self.shards[shard].clone();
                let write = around(WRITE, &mut self.latencies);
                self.agenda.after(write, Event::Commit { shard, now, read });
            }
            Event::Commit { shard, now, read } => self.commit(shard, now, &read),
            Event::Retry { shard } => {
                if self.take(shard, 0) {
                    return;
                }
                self.counts.rejected += 1;
            }
            Event::Window => {
                let Some(Delivery { window, lag }) = self.delivery else { return };
                self.agenda.after(window, Event::Window);
                let records = std::mem::take(&mut self.records);
                if !records.is_empty() {
                    let lag = around(lag, &mut self.stream);
                    self.agenda.after(lag, Event::Batch(records));
                }
            }
            Event::Batch(records) => self.keep(records),
            Event::Refill { shard, read, refill } => self.refill(shard, &read, &refill),
            Event::Repair => {
                self.agenda.after(MINUTE, Event::Repair);
                for shard in 0..self.shards.len() {
                    let read = self.shards[shard].clone();
                    self.counts.repair_reads += 1;
                    if let Decision::Refill(refill) = refill::decide_idle(&read, time(self.agenda.now())) {
                        // The repair decides by a second, consistent read.
                        self.counts.repair_reads += 2;
                        self.agenda.after(WRITE, Event::Refill { shard, read, refill });
                    }
                }
            }
        }
    }

    fn next_acquire(&mut self) {
        let highest = self.load.highest_rate();
        let mut at = self.agenda.now();
        // A Poisson process of the highest rate, thinned out to the current rate.
        loop {
            let gap = -(1.0 - self.clients.random::<f64>()).ln() / highest;
            at += micros(gap);
            if at >= self.end || self.clients.random::<f64>() * highest < self.load.rate(seconds(at)) {
                break;
            }
        }
        self.agenda.at(at, Event::Acquire);
    }

    fn acquire(&mut self) {
        self.counts.acquires += 1;
        self.counts.exact += u64::from(!self.exact.acquire(self.load.tokens, self.agenda.now()));
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
        let now = self.agenda.now() + ANSWER;
        if self.projected(shard, 0, now) < self.wanted() {
            self.counts.rejected += 1;
            return;
        }
        self.counts.slow += 1;
        let reads = around(READS, &mut self.latencies);
        self.agenda.after(ANSWER + reads, Event::Read { shard, now });
    }

    /// Takes the tokens of an acquire and so many write units in one conditional write. Returns whether they were there.
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

    fn commit(&mut self, shard: usize, now: i64, read: &BucketState<'static>) {
        let wanted = self.wanted();
        let credits = [0, 1].map(|limit| projected(read, &self.limits[limit], now) - tokens(read, &self.limits[limit]));
        if tokens(read, &self.limits[0]) + credits[0] < wanted {
            self.counts.rejected += 1;
            return;
        }
        self.counts.writes += 1;
        let state = &self.shards[shard];
        let is_unchanged = (0..2).all(|limit| {
            let (stored, read) = (tokens(state, &self.limits[limit]), tokens(read, &self.limits[limit]));
            let taken = if limit == 0 { wanted } else { 0 };
            stored >= taken - credits[limit] && (credits[limit] <= 0 || stored <= read)
        });
        if state.last_refill != read.last_refill || !is_unchanged {
            let retry = around(WRITE, &mut self.latencies);
            self.agenda.after(retry, Event::Retry { shard });
            return;
        }
        // The client reads its clock again after the reads. What has accrued in between is lost.
        let last_refill = time(self.agenda.now() - WRITE).max(read.last_refill);
        self.change(shard, |state, limits| {
            state.last_refill = last_refill;
            consume(state, &limits[0], credits[0] - wanted, wanted);
            consume(state, &limits[1], credits[1], 0);
        });
    }

    fn keep(&mut self, records: Vec<BucketChange<'static, BucketImage<'static>>>) {
        let now = time(self.agenda.now());
        for activity in activity::fold(records) {
            let Some(state) = activity.image.plain() else { continue };
            if let Decision::Refill(refill) = refill::decide(&activity, state, now) {
                let shard = activity.bucket.shard.get() as usize;
                let write = around(2 * WRITE, &mut self.stream);
                self.agenda.after(write, Event::Refill { shard, read: state.clone(), refill });
            }
        }
    }

    /// The keeper's write, on the same condition as `Buckets::refill`.
    fn refill(&mut self, shard: usize, read: &BucketState<'static>, refill: &Refill<'static>) {
        self.counts.writes += 1;
        let state = &self.shards[shard];
        let is_unchanged = state.last_refill == read.last_refill
            && state.shards == read.shards
            && refill.credits.keys().all(|limit| tokens(state, limit) <= tokens(read, limit))
            && refill.trims.iter().all(|(limit, share)| tokens(state, limit) > share.get());
        if !is_unchanged {
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
        let now = self.agenda.now();
        let stream = StreamLabel::parse("2026-01-01T00:00:00.000");
        let sequence = SequenceNumber::parse(&format!("{:021}", self.sequence));
        let (Ok(stream), Ok(sequence)) = (stream, sequence) else { return };
        self.records.push(BucketChange {
            bucket: self.key.at(Shard::new(u32::try_from(shard).unwrap_or_default())),
            stream,
            sequence,
            // In whole seconds, as on AWS.
            created: time(now - now.rem_euclid(SECOND)),
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
}

fn tokens(state: &BucketState<'_>, limit: &Limit<'_>) -> i64 {
    state.limits.get(limit).map_or(0, |limit_state| limit_state.tokens.get())
}

/// The tokens that a client's slow path computes for the time `now`.
fn projected(state: &BucketState<'_>, limit: &Limit<'_>, now: i64) -> i64 {
    let Some(limit_state) = state.limits.get(limit) else { return 0 };
    let share = state.share(limit, limit_state);
    let elapsed = time(now).since(state.last_refill).as_millis();
    let accrued = i64::try_from(share.accrued(elapsed)).unwrap_or(i64::MAX);
    limit_state.tokens.get().saturating_add(accrued).min(share.capacity.get())
}

fn consume(state: &mut BucketState<'_>, limit: &Limit<'static>, change: i64, consumed: i64) {
    if let Some(limit_state) = state.limits.get_mut(limit) {
        limit_state.tokens = Millitokens::new(limit_state.tokens.get() + change);
        limit_state.consumed = Millitokens::new(limit_state.consumed.get() + consumed);
    }
}

/// The time by the clients' clocks, in whole milliseconds.
fn time(micros: i64) -> EpochMillis {
    EpochMillis::new(START.get() + micros / 1000).unwrap_or(EpochMillis::EPOCH)
}

/// A random time up to a third shorter or longer than the mean.
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
