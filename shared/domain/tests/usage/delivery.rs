//! However a stream is delivered, the snapshots count each record once.
//!
//! The model has a stream of two shards. One of them splits. Then comes a second stream of the same table. A shard is read when
//! its parents have been read. Batches have any size, are delivered again, run concurrently, and crash between two
//! writes. The expected usage is counted from the events, without the code under test.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    bucket::{BucketChange, ChangeKind, Counters},
    sequence::{SequenceNumber, StreamLabel},
    time::EpochMillis,
    usage::{self, Posting, Watermarks},
    window::Window,
};

use crate::{Invocation, START, counters, created, pick};

const LIMITS: [&str; 2] = ["rpm", "tpm"];

/// A client's write to a bucket shard.
#[derive(Clone, Debug)]
struct Event {
    entity: u8,
    shard: u32,
    /// Minutes since the event before, of any bucket.
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

/// A step of the streams or of their consumer. Indices are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    /// The event source mapping delivers the next `records` records of a stream shard from its checkpoint.
    Deliver { shard: usize, records: usize },
    /// An invocation makes one write.
    Write { invocation: usize, posting: usize },
    /// An invocation ends. Its answer moves the checkpoint.
    Answer { invocation: usize },
    /// The event source mapping gives up an invocation, which goes on. The batch is delivered again beside it.
    Abandon { invocation: usize },
    /// An invocation stops without an answer.
    Crash { invocation: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SHARDS, 1..12_usize).prop_map(|(shard, records)| Step::Deliver { shard, records }),
        12 => (any::<usize>(), any::<usize>()).prop_map(|(invocation, posting)| Step::Write { invocation, posting }),
        4 => any::<usize>().prop_map(|invocation| Step::Answer { invocation }),
        1 => any::<usize>().prop_map(|invocation| Step::Abandon { invocation }),
        1 => any::<usize>().prop_map(|invocation| Step::Crash { invocation }),
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Snapshot {
    events: u64,
    tokens: BTreeMap<String, i128>,
}

type UsageTotals = BTreeMap<(String, String), Snapshot>;

/// The table: snapshots and their watermarks, which change together.
#[derive(Default)]
struct Table {
    snapshots: UsageTotals,
    watermarks: BTreeMap<(String, String), Watermarks>,
}

impl Table {
    /// One conditional write. Returns the watermarks if the condition fails.
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

/// The stream shards: two of the first stream, the child of the left one, and one of the second stream.
const SHARDS: usize = 4;
/// The stream shards that must have been read before each. A stream shard without records is done immediately, so all
/// ancestors are listed.
const ANCESTORS: [&[usize]; SHARDS] = [&[], &[], &[0], &[0, 1, 2]];

/// A stream shard: its records, and how many of them are done.
#[derive(Default)]
struct StreamShard {
    changes: Vec<BucketChange<'static>>,
    checkpoint: usize,
}

impl StreamShard {
    fn is_done(&self) -> bool {
        self.checkpoint == self.changes.len()
    }
}

/// Sorts the changes by stream shard. The left shard splits at `split`. The second stream, whose sequence numbers are
/// lower, begins `restart` records later.
fn stream_shards(changes: Vec<BucketChange<'static>>, split: usize, restart: usize) -> [StreamShard; SHARDS] {
    let mut shards = <[StreamShard; SHARDS]>::default();
    for (at, mut change) in changes.into_iter().enumerate() {
        let shard = match change.bucket.shard.get() {
            _ if at >= split + restart => 3,
            2 => 1,
            _ => 2 * usize::from(at >= split),
        };
        if shard == 3 {
            change.stream = StreamLabel::parse("2026-01-01T00:00:00.001").unwrap();
            change.sequence = SequenceNumber::parse(&format!("1{at:020}")).unwrap();
        }
        shards[shard].changes.push(change);
    }
    shards
}

/// An invocation with the records of a stream shard. It has postings to write.
struct Delivery<'a> {
    shard: usize,
    invocation: Invocation<Vec<Posting<'a>>>,
}

/// The stream of the events, and the expected usage.
fn play(events: &[Event]) -> (Vec<BucketChange<'static>>, UsageTotals) {
    let mut buckets: BTreeMap<(u8, u32), [i64; 2]> = BTreeMap::new();
    let mut usage = UsageTotals::new();
    let mut changes = Vec::new();
    // An hour, a day, a month and a year end within the run.
    let mut now = START;
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
        let time = EpochMillis::new(now).unwrap();
        if kind == ChangeKind::Removed {
            buckets.remove(&(event.entity, event.shard));
        } else {
            buckets.insert((event.entity, event.shard), after);
            count(&mut usage, event.entity, time, before.unwrap_or_default(), after);
        }
        let entity = format!("user-{}", event.entity);
        let new = if kind == ChangeKind::Removed { Counters::default() } else { with_write_units(after) };
        let old = before.map(with_write_units).unwrap_or_default();
        let change = created(&entity, event.shard, "2026-01-01T00:00:00.000", at, new);
        changes.push(BucketChange { created: time, kind, old, ..change });
    }
    (changes, usage)
}

fn count(usage: &mut UsageTotals, entity: u8, at: EpochMillis, before: [i64; 2], after: [i64; 2]) {
    if before == after {
        return;
    }
    for window in Window::ALL {
        let period = window.containing(at);
        let snapshot = usage.entry((format!("user-{entity}"), format!("{window} {period}"))).or_default();
        snapshot.events += 1;
        for limit in 0..LIMITS.len() {
            if before[limit] != after[limit] {
                let tokens = after[limit].div_euclid(1000) - before[limit].div_euclid(1000);
                *snapshot.tokens.entry(LIMITS[limit].to_owned()).or_default() += i128::from(tokens);
            }
        }
    }
}

/// The write units change with every write and must not count.
fn with_write_units(consumed: [i64; 2]) -> Counters<'static> {
    counters([(LIMITS[0], consumed[0]), (LIMITS[1], consumed[1]), ("wcu", consumed[0] + 1000)])
}

fn deliver<'a>(changes: &[BucketChange<'a>], shard: usize, start: usize, records: usize) -> Delivery<'a> {
    let batch = start..(start + records).min(changes.len());
    let todo = usage::fold(&changes[batch.clone()], &Window::ALL);
    Delivery { shard, invocation: Invocation { batch, is_awaited: true, todo } }
}

/// Tries to write a posting. If the snapshot already counts a part of it, the rest stays.
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

fn attempt_all(table: &mut Table, Delivery { invocation, .. }: &mut Delivery<'_>) {
    while !invocation.todo.is_empty() {
        attempt(table, &mut invocation.todo, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_delivery_gives_the_same_usage(
        events in prop::collection::vec(event(), 1..60),
        steps in prop::collection::vec(step(), 0..200),
        split in 0..40_usize,
        restart in 0..40_usize,
    ) {
        let (changes, usage) = play(&events);
        let mut shards = stream_shards(changes, split, restart);
        let mut table = Table::default();
        let mut deliveries: Vec<Delivery<'_>> = Vec::new();
        for step in steps {
            match step {
                Step::Deliver { shard, records } => {
                    // The mapping delivers one batch of a stream shard at a time, and parents first.
                    let is_busy = deliveries.iter().any(|other| other.shard == shard && other.invocation.is_awaited);
                    if !is_busy && ANCESTORS[shard].iter().all(|ancestor| shards[*ancestor].is_done()) {
                        deliveries.push(deliver(&shards[shard].changes, shard, shards[shard].checkpoint, records));
                    }
                }
                Step::Write { invocation, posting } => {
                    let Some(at) = pick(invocation, deliveries.len()) else { continue };
                    let todo = &mut deliveries[at].invocation.todo;
                    let Some(posting) = pick(posting, todo.len()) else { continue };
                    attempt(&mut table, todo, posting);
                }
                Step::Answer { invocation } => {
                    let Some(at) = pick(invocation, deliveries.len()) else { continue };
                    let Delivery { shard, invocation: Invocation { batch, is_awaited, todo } } = deliveries.swap_remove(at);
                    if is_awaited {
                        // The answer names the lowest sequence number that was not written by the deadline.
                        let lowest = todo.iter().flat_map(Posting::sequences).min();
                        shards[shard].checkpoint = match lowest {
                            None => batch.end,
                            Some(lowest) => {
                                let changes = &shards[shard].changes;
                                let failed = changes.iter().position(|change| change.sequence == lowest).unwrap();
                                prop_assert!(batch.contains(&failed));
                                failed
                            }
                        };
                    }
                }
                Step::Abandon { invocation } => {
                    if let Some(at) = pick(invocation, deliveries.len()) {
                        deliveries[at].invocation.is_awaited = false;
                    }
                }
                Step::Crash { invocation } => {
                    if let Some(at) = pick(invocation, deliveries.len()) {
                        deliveries.swap_remove(at);
                    }
                }
            }
        }
        // In the end, the mapping delivers all records, parents first. Then the abandoned invocations go on.
        for (shard, StreamShard { changes, checkpoint }) in shards.iter().enumerate() {
            deliveries.insert(0, deliver(changes, shard, *checkpoint, changes.len()));
            attempt_all(&mut table, &mut deliveries[0]);
        }
        for delivery in &mut deliveries {
            attempt_all(&mut table, delivery);
        }
        prop_assert_eq!(table.snapshots, usage);
    }

    #[test]
    fn parts_add_up(events in prop::collection::vec(event(), 1..60), limit in 1..4_usize) {
        let (changes, usage) = play(&events);
        let mut table = Table::default();
        for posting in usage::fold(&changes, &Window::ALL) {
            for part in posting.split(limit.try_into().unwrap()) {
                prop_assert!(part.sources().count() <= limit);
                prop_assert_eq!(table.write(&part), Ok(()));
            }
        }
        prop_assert_eq!(table.snapshots, usage);
    }
}

/// A restored table restarts its sequence numbers. Its records count in addition to those of the earlier stream.
#[test]
fn records_count_once_per_stream() {
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
