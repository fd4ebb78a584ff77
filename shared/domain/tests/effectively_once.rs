//! The law of the rollup: however a stream is delivered, the snapshots hold what happened, once.
//!
//! The model has a stream of two shards. One of them splits. Then comes a second stream of the same table. A shard is read when
//! its parents have been read. Batches have any size, are delivered again, run concurrently, and crash between two
//! writes. The expected usage is counted from the events, without the code under test.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, Entity, Limit, Namespace, Resource, Shard},
    sequence::{SequenceNumber, StreamLabel},
    time::EpochMillis,
    tokens::Millitokens,
    usage::{self, Posting, Watermarks},
    window::Window,
};

const LIMITS: [&str; 2] = ["rpm", "tpm"];

/// What a client did to a bucket shard.
#[derive(Clone, Debug)]
struct Event {
    entity: u8,
    shard: u32,
    /// Minutes since the one before, over all buckets.
    minutes: i64,
    /// Millitokens by limit; negative gives back.
    taken: [i64; 2],
    removes: bool,
}

fn event() -> impl Strategy<Value = Event> {
    let taken = || prop_oneof![3 => 0..5_000_i64, 1 => -3_000..0_i64, 1 => Just(0)];
    let removes = prop::bool::weighted(0.05);
    (0..2_u8, 0..3_u32, 0..50_i64, [taken(), taken()], removes)
        .prop_map(|(entity, shard, minutes, taken, removes)| Event { entity, shard, minutes, taken, removes })
}

/// What the stream and its consumer go through; indices are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// The event source mapping delivers the next `records` records of a stream shard from its checkpoint.
    Deliver { lane: usize, records: usize },
    /// A delivery that is under way makes one write.
    Write { delivery: usize, posting: usize },
    /// A delivery that is under way is answered, if it is done, and moves the checkpoint.
    Answer { delivery: usize },
    /// A delivery is given up by its sender, but goes on: its batch will come again beside it.
    Forget { delivery: usize },
    /// A delivery stops for good.
    Crash { delivery: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..LANES, 1..12_usize).prop_map(|(lane, records)| Step::Deliver { lane, records }),
        12 => (any::<usize>(), any::<usize>()).prop_map(|(delivery, posting)| Step::Write { delivery, posting }),
        4 => any::<usize>().prop_map(|delivery| Step::Answer { delivery }),
        1 => any::<usize>().prop_map(|delivery| Step::Forget { delivery }),
        1 => any::<usize>().prop_map(|delivery| Step::Crash { delivery }),
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Snapshot {
    events: u64,
    tokens: BTreeMap<String, i128>,
}

type UsageTotals = BTreeMap<(String, String), Snapshot>;

/// The table: snapshots and their watermarks, changed together or not at all.
#[derive(Default)]
struct Table {
    snapshots: UsageTotals,
    watermarks: BTreeMap<(String, String), Watermarks>,
}

impl Table {
    /// One conditional write; gives back the watermarks if the condition fails.
    fn write(&mut self, posting: &Posting<'_>) -> Result<(), Watermarks> {
        let key = key(posting);
        let watermarks = self.watermarks.entry(key.clone()).or_default();
        if posting
            .sources()
            .any(|(shard, span)| watermarks.get(&shard).is_some_and(|watermark| *watermark >= span.first))
        {
            return Err(watermarks.clone());
        }
        watermarks.extend(posting.sources().map(|(shard, span)| (shard, span.last)));
        let tally = posting.tally();
        let snapshot = self.snapshots.entry(key).or_default();
        snapshot.events += tally.events;
        for (limit, tokens) in tally.tokens {
            *snapshot.tokens.entry(limit.to_string()).or_default() += tokens.get();
        }
        Ok(())
    }
}

fn key(posting: &Posting<'_>) -> (String, String) {
    let snapshot = posting.snapshot();
    (snapshot.entity.to_string(), format!("{} {}", snapshot.period.window(), snapshot.period))
}

/// The stream shards: two of the first stream, the child of the left one, and one of the second stream; and what must
/// have been read before each. A stream shard without records is done at once, so all ancestors are named.
const LANES: usize = 4;
const ANCESTORS: [&[usize]; LANES] = [&[], &[], &[0], &[0, 1, 2]];

/// A stream shard: its records, and how many of them are done.
#[derive(Default)]
struct Lane {
    changes: Vec<BucketChange<'static>>,
    checkpoint: usize,
}

impl Lane {
    fn is_done(&self) -> bool {
        self.checkpoint == self.changes.len()
    }
}

/// Sorts the changes by stream shard: the left one splits at `split`, and the second stream, whose numbers are lower,
/// begins at `restart`.
fn lanes(changes: Vec<BucketChange<'static>>, split: usize, restart: usize) -> [Lane; LANES] {
    let mut lanes = <[Lane; LANES]>::default();
    for (at, mut change) in changes.into_iter().enumerate() {
        let lane = match change.bucket.shard.get() {
            _ if at >= split + restart => 3,
            2 => 1,
            _ => 2 * usize::from(at >= split),
        };
        if lane == 3 {
            change.stream = StreamLabel::parse("2026-01-01T00:00:00.001").unwrap();
            change.sequence = SequenceNumber::parse(&format!("1{at:020}")).unwrap();
        }
        lanes[lane].changes.push(change);
    }
    lanes
}

/// One invocation: what it still has to write.
struct Delivery<'a> {
    lane: usize,
    start: usize,
    end: usize,
    /// Whether the event source mapping still waits for it.
    awaited: bool,
    postings: Vec<Posting<'a>>,
}

/// The stream of the events, and the books as they should be.
fn play(events: &[Event]) -> (Vec<BucketChange<'static>>, UsageTotals) {
    let mut buckets: BTreeMap<(u8, u32), [i64; 2]> = BTreeMap::new();
    let mut books = UsageTotals::new();
    let mut changes = Vec::new();
    // Late on the last evening of a year, so that hour, day, month and year end within the run.
    let mut now: i64 = 1_767_217_000_000;
    for (at, event) in events.iter().enumerate() {
        now += event.minutes * 60_000;
        let before = buckets.get(&(event.entity, event.shard)).copied();
        let after = before.map_or(event.taken, |before| [before[0] + event.taken[0], before[1] + event.taken[1]]);
        let kind = match (event.removes, before) {
            (true, None) => continue,
            (true, Some(_)) => ChangeKind::Removed,
            (false, None) => ChangeKind::Created,
            (false, Some(_)) => ChangeKind::Updated,
        };
        let created = EpochMillis::new(now).unwrap();
        if kind == ChangeKind::Removed {
            buckets.remove(&(event.entity, event.shard));
        } else {
            buckets.insert((event.entity, event.shard), after);
            count(&mut books, event.entity, created, before.unwrap_or_default(), after);
        }
        changes.push(BucketChange {
            bucket: BucketKey {
                namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
                entity: Entity::new(format!("user-{}", event.entity)).unwrap(),
                resource: Resource::new("api").unwrap(),
                shard: Shard::new(event.shard),
            },
            stream: StreamLabel::parse("2026-01-01T00:00:00.000").unwrap(),
            sequence: SequenceNumber::parse(&format!("1{at:024}")).unwrap(),
            created,
            kind,
            old: before.map(counters).unwrap_or_default(),
            new: if kind == ChangeKind::Removed { Counters::default() } else { counters(after) },
        });
    }
    (changes, books)
}

fn count(books: &mut UsageTotals, entity: u8, at: EpochMillis, before: [i64; 2], after: [i64; 2]) {
    if before == after {
        return;
    }
    for window in Window::ALL {
        let period = window.containing(at);
        let snapshot = books.entry((format!("user-{entity}"), format!("{window} {period}"))).or_default();
        snapshot.events += 1;
        for limit in 0..LIMITS.len() {
            if before[limit] != after[limit] {
                let tokens = after[limit].div_euclid(1000) - before[limit].div_euclid(1000);
                *snapshot.tokens.entry(LIMITS[limit].to_owned()).or_default() += i128::from(tokens);
            }
        }
    }
}

fn counters(consumed: [i64; 2]) -> Counters<'static> {
    // The write units move with every write and must leave no trace.
    let write_units = (Limit::new("wcu").unwrap(), counter(consumed[0] + 1000));
    LIMITS
        .iter()
        .zip(consumed)
        .map(|(limit, consumed)| (Limit::new(*limit).unwrap(), counter(consumed)))
        .chain([write_units])
        .collect()
}

fn counter(consumed: i64) -> Counter {
    Counter { consumed: Millitokens::new(consumed), overdrawn: false }
}

fn deliver<'a>(changes: &[BucketChange<'a>], lane: usize, start: usize, records: usize) -> Delivery<'a> {
    let end = (start + records).min(changes.len());
    Delivery { lane, start, end, awaited: true, postings: usage::fold(&changes[start..end], &Window::ALL) }
}

/// One attempt at one posting; it stays with the delivery, reduced, if a part was in already.
fn attempt(table: &mut Table, postings: &mut Vec<Posting<'_>>, at: usize) {
    match table.write(&postings[at]) {
        Ok(()) => drop(postings.swap_remove(at)),
        Err(watermarks) => match postings[at].beyond(&watermarks) {
            None => drop(postings.swap_remove(at)),
            Some(rest) => {
                assert_ne!(rest, postings[at], "a conflict leaves less to write");
                postings[at] = rest;
            }
        },
    }
}

fn attempt_all(table: &mut Table, delivery: &mut Delivery<'_>) {
    while !delivery.postings.is_empty() {
        attempt(table, &mut delivery.postings, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_delivery_gives_the_same_books(
        events in prop::collection::vec(event(), 1..60),
        steps in prop::collection::vec(step(), 0..200),
        split in 0..40_usize,
        restart in 0..40_usize,
    ) {
        let (changes, books) = play(&events);
        let mut lanes = lanes(changes, split, restart);
        let mut table = Table::default();
        let mut deliveries: Vec<Delivery<'_>> = Vec::new();
        for step in steps {
            let pick = |at: usize, of: usize| (of > 0).then(|| at % of);
            match step {
                Step::Deliver { lane, records } => {
                    // One batch of a stream shard at a time, but for those that were given up, and parents first.
                    let is_busy = deliveries.iter().any(|delivery| delivery.lane == lane && delivery.awaited);
                    if !is_busy && ANCESTORS[lane].iter().all(|ancestor| lanes[*ancestor].is_done()) {
                        deliveries.push(deliver(&lanes[lane].changes, lane, lanes[lane].checkpoint, records));
                    }
                }
                Step::Write { delivery, posting } => {
                    let Some(delivery) = pick(delivery, deliveries.len()).map(|at| &mut deliveries[at]) else { continue };
                    let Some(posting) = pick(posting, delivery.postings.len()) else { continue };
                    attempt(&mut table, &mut delivery.postings, posting);
                }
                Step::Answer { delivery } => {
                    let Some(at) = pick(delivery, deliveries.len()) else { continue };
                    let Delivery { lane, start, end, awaited, postings } = deliveries.swap_remove(at);
                    if awaited {
                        // What was not written by the deadline is reported: its lowest sequence number.
                        let lowest = postings.iter().flat_map(Posting::sequences).min();
                        lanes[lane].checkpoint = match lowest {
                            None => end,
                            Some(lowest) => {
                                let failed = lanes[lane].changes.iter().position(|change| change.sequence == lowest).unwrap();
                                prop_assert!(start <= failed && failed < end);
                                failed
                            }
                        };
                    }
                }
                Step::Forget { delivery } => {
                    if let Some(at) = pick(delivery, deliveries.len()) {
                        deliveries[at].awaited = false;
                    }
                }
                Step::Crash { delivery } => {
                    if let Some(at) = pick(delivery, deliveries.len()) {
                        deliveries.swap_remove(at);
                    }
                }
            }
        }
        // In the end the streams are drained, parents first, and then the deliveries that were given up go on.
        for (lane, Lane { changes, checkpoint }) in lanes.iter().enumerate() {
            deliveries.insert(0, deliver(changes, lane, *checkpoint, changes.len()));
            attempt_all(&mut table, &mut deliveries[0]);
        }
        for delivery in &mut deliveries {
            attempt_all(&mut table, delivery);
        }
        prop_assert_eq!(table.snapshots, books);
    }

    #[test]
    fn parts_add_up(events in prop::collection::vec(event(), 1..60), limit in 1..4_usize) {
        let (changes, books) = play(&events);
        let mut table = Table::default();
        for posting in usage::fold(&changes, &Window::ALL) {
            for part in posting.split(limit.try_into().unwrap()) {
                prop_assert!(part.sources().count() <= limit);
                prop_assert_eq!(table.write(&part), Ok(()));
            }
        }
        prop_assert_eq!(table.snapshots, books);
    }
}

/// A restored table numbers its records anew: they count beside those of the stream before.
#[test]
fn a_later_stream_counts_again_the_same_never() {
    let event = Event { entity: 0, shard: 0, minutes: 1, taken: [1000, 0], removes: false };
    let (changes, _) = play(&vec![event; 3]);
    let mut table = Table::default();
    let mut deliver = |label: &str| {
        let mut changes = changes.clone();
        for change in &mut changes {
            change.stream = StreamLabel::parse(label).unwrap();
        }
        let mut postings = usage::fold(&changes, &[Window::Monthly]);
        attempt(&mut table, &mut postings, 0);
        assert_eq!(postings, []);
        table.snapshots.values().map(|snapshot| snapshot.events).sum::<u64>()
    };
    let (first, later) = ("2026-01-01T00:00:00.000", "2026-01-01T00:00:00.001");
    assert_eq!([first, first, later, later, first].map(&mut deliver), [3, 3, 6, 6, 6]);
}
