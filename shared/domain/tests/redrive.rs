//! The law of the redrive: whatever was parked or discarded, in whatever order and however often it is redriven, no
//! record counts twice, and each counts once unless it is named as undecided.
//!
//! The model is one snapshot with two bucket shards, poison among their records. Invocations stop at any step, and go on
//! beside their redelivery; the event source mapping discards batches; operators redrive at the same time.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
};

use proptest::prelude::*;
use tidegate_domain::{
    bucket::{BucketChange, BucketKey, ChangeKind, Counter, Counters, Entity, Limit, Namespace, Resource, Shard},
    redrive::{Decision, Evidence, Origin, decide},
    sequence::{Position, SequenceNumber, StreamLabel},
    time::EpochMillis,
    tokens::Millitokens,
    usage::{self, Posting, Watermarks},
    window::Window,
};

const RECORDS: usize = 12;

/// Indices are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Deliver {
        records: usize,
    },
    /// An invocation does its next action.
    Act {
        invocation: usize,
    },
    /// An invocation ends; what it has not done fails.
    Answer {
        invocation: usize,
    },
    /// The mapping delivers the batch of an invocation again, or discards it. The invocation goes on.
    Forget {
        invocation: usize,
        discards: bool,
    },
    /// A day passes: what was delivered is not delivered again.
    Age,
    /// An operator reads what is known of a letter's records.
    Read {
        letter: usize,
    },
    /// An operator counts what was found to be missing.
    Count {
        reading: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let at = any::<usize>;
    prop_oneof![
        4 => (1..6_usize).prop_map(|records| Step::Deliver { records }),
        10 => at().prop_map(|invocation| Step::Act { invocation }),
        4 => at().prop_map(|invocation| Step::Answer { invocation }),
        2 => (at(), any::<bool>()).prop_map(|(invocation, discards)| Step::Forget { invocation, discards }),
        1 => Just(Step::Age),
        4 => at().prop_map(|letter| Step::Read { letter }),
        4 => at().prop_map(|reading| Step::Count { reading }),
    ]
}

enum Action {
    Post(Posting<'static>),
    Park(usize),
}

struct Invocation {
    batch: Range<usize>,
    is_awaited: bool,
    todo: VecDeque<Action>,
}

#[derive(Clone, Debug)]
struct Letter {
    origin: Origin,
    records: Range<usize>,
}

struct Reading {
    watermarks: Watermarks,
    decisions: Vec<(usize, Decision)>,
}

struct World {
    changes: Vec<BucketChange<'static>>,
    /// Which records the function cannot read, unlike the redrive.
    poison: [bool; RECORDS],
    counted: [usize; RECORDS],
    watermarks: Watermarks,
    markers: BTreeSet<usize>,
    letters: Vec<Letter>,
    invocations: Vec<Invocation>,
    readings: Vec<Reading>,
    checkpoint: usize,
    /// Records before this one are not delivered again.
    expired: usize,
}

/// The records are in two bucket shards, and the later ones in a stream that numbers its records anew.
fn changes(shards: [bool; RECORDS], restart: usize) -> Vec<BucketChange<'static>> {
    let change = |record: usize| BucketChange {
        bucket: BucketKey {
            namespace: Namespace::new("TQ5vSMvQTm4").unwrap(),
            entity: Entity::new("user-1").unwrap(),
            resource: Resource::new("api").unwrap(),
            shard: Shard::new(u32::from(shards[record])),
        },
        stream: StreamLabel::parse(&format!("202{}-01-01T00:00:00.000", 5 + usize::from(record >= restart))).unwrap(),
        sequence: SequenceNumber::parse(&format!("1{:020}", record % restart)).unwrap(),
        created: EpochMillis::new(1_767_223_800_000).unwrap(),
        kind: ChangeKind::Created,
        old: Counters::default(),
        new: [(Limit::new("rpm").unwrap(), Counter { consumed: Millitokens::new(1000), overdrawn: false })]
            .into_iter()
            .collect(),
    };
    (0..RECORDS).map(change).collect()
}

impl World {
    fn record(&self, position: Position) -> usize {
        self.changes.iter().position(|change| change.position() == position).unwrap()
    }

    fn deliver(&mut self, records: usize) {
        let batch = self.checkpoint..(self.checkpoint + records).min(RECORDS);
        if batch.is_empty() || self.invocations.iter().any(|invocation| invocation.is_awaited) {
            return;
        }
        let mut todo = VecDeque::new();
        for run in self.changes[batch.clone()].chunk_by(|_, next| !self.poison[self.record(next.position())]) {
            let poison = self.record(run[0].position());
            let is_poison = self.poison[poison];
            todo.extend(is_poison.then_some(Action::Park(poison)));
            todo.extend(usage::fold(&run[usize::from(is_poison)..], &[Window::Daily]).into_iter().map(Action::Post));
        }
        self.invocations.push(Invocation { batch, is_awaited: true, todo });
    }

    /// One conditional write of what the snapshot does not hold, or one message.
    fn act(&mut self, invocation: usize) {
        match self.invocations[invocation].todo.pop_front() {
            Some(Action::Post(posting)) => {
                let Some(rest) = posting.beyond(&self.watermarks) else { return };
                self.add(&rest);
                self.watermarks.extend(rest.sources().map(|(shard, span)| (shard, span.last)));
            }
            Some(Action::Park(record)) => {
                self.letters.push(Letter { origin: Origin::Parked, records: record..record + 1 });
            }
            None => {}
        }
    }

    fn add(&mut self, posting: &Posting<'_>) {
        for (_, position) in posting.records() {
            let record = self.record(position);
            self.counted[record] += 1;
        }
    }

    fn answer(&mut self, invocation: usize) {
        let Invocation { batch, is_awaited, todo } = self.invocations.swap_remove(invocation);
        if is_awaited {
            let lowest = |action: &Action| match action {
                Action::Post(posting) => posting.records().map(|(_, position)| self.record(position)).min(),
                Action::Park(record) => Some(*record),
            };
            self.checkpoint = todo.iter().filter_map(lowest).min().unwrap_or(batch.end);
        }
    }

    fn forget(&mut self, invocation: usize, discards: bool) {
        let Invocation { batch, is_awaited, .. } = &mut self.invocations[invocation];
        if std::mem::take(is_awaited) && discards {
            self.letters.push(Letter { origin: Origin::FailedBatch, records: batch.clone() });
            self.checkpoint = batch.end;
        }
    }

    fn age(&mut self) {
        self.expired = self.checkpoint;
        self.invocations.retain(|invocation| invocation.batch.start >= self.expired);
    }

    fn read(&self, letter: &Letter) -> Reading {
        let decide = |record: usize| {
            let watermark = self.watermarks.get(&self.changes[record].bucket.shard).copied();
            let evidence = Evidence { watermark, is_redriven: self.markers.contains(&record) };
            (record, decide(self.changes[record].position(), record >= self.expired, letter.origin, &evidence))
        };
        Reading { watermarks: self.watermarks.clone(), decisions: letter.records.clone().map(decide).collect() }
    }

    /// The transaction: it is lost if a marker or a watermark below a record is not as it was read.
    fn count(&mut self, Reading { watermarks, decisions }: &Reading) {
        let is_counted = |record: usize| decisions.contains(&(record, Decision::Count));
        let postings = usage::fold(&self.changes, &[Window::Daily]);
        let Some(posting) = postings[0].only(|_, position| is_counted(self.record(position))) else { return };
        let is_as_seen = posting.sources().all(|(shard, span)| {
            let seen = watermarks.get(&shard);
            seen.is_some_and(|seen| *seen >= span.last) || self.watermarks.get(&shard) == seen
        });
        let records: Vec<_> = posting.records().map(|(_, position)| self.record(position)).collect();
        if is_as_seen && !records.iter().any(|record| self.markers.contains(record)) {
            self.add(&posting);
            self.markers.extend(records);
        }
    }

    fn step(&mut self, step: &Step) {
        let pick = |at: usize, of: usize| (of > 0).then(|| at % of);
        match *step {
            Step::Deliver { records } => self.deliver(records),
            Step::Act { invocation } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.act(at);
                }
            }
            Step::Answer { invocation } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.answer(at);
                }
            }
            Step::Forget { invocation, discards } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.forget(at, discards);
                }
            }
            Step::Age => self.age(),
            Step::Read { letter } => {
                if let Some(at) = pick(letter, self.letters.len()) {
                    self.readings.push(self.read(&self.letters[at]));
                }
            }
            Step::Count { reading } => {
                if let Some(at) = pick(reading, self.readings.len()) {
                    let reading = self.readings.swap_remove(at);
                    self.count(&reading);
                }
            }
        }
    }

    /// Drains the stream, waits for a day, and redrives all letters; which records are undecided.
    fn finish(&mut self) -> BTreeSet<usize> {
        while self.checkpoint < RECORDS || !self.invocations.is_empty() {
            self.deliver(RECORDS);
            while self.invocations.last().is_some_and(|invocation| !invocation.todo.is_empty()) {
                self.act(self.invocations.len() - 1);
            }
            self.answer(self.invocations.len() - 1);
        }
        self.age();
        let mut undecided = BTreeSet::new();
        for letter in self.letters.clone() {
            let reading = self.read(&letter);
            self.count(&reading);
            let is_undecided = |(_, decision): &&(usize, Decision)| *decision == Decision::Undecided;
            undecided.extend(reading.decisions.iter().filter(is_undecided).map(|(record, _)| record));
        }
        undecided
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn nothing_counts_twice_and_nothing_is_lost_unnamed(
        steps in prop::collection::vec(step(), 0..80),
        poison in prop::array::uniform12(prop::bool::weighted(0.15)),
        shards: [bool; RECORDS],
        restart in 1..=RECORDS,
    ) {
        let mut world = World {
            changes: changes(shards, restart.max(RECORDS / 2)),
            poison,
            counted: [0; RECORDS],
            watermarks: Watermarks::new(),
            markers: BTreeSet::new(),
            letters: Vec::new(),
            invocations: Vec::new(),
            readings: Vec::new(),
            checkpoint: 0,
            expired: 0,
        };
        for step in &steps {
            world.step(step);
            prop_assert!(world.counted.iter().all(|times| *times <= 1), "{:?}", world.counted);
        }
        let undecided = world.finish();
        for (record, times) in world.counted.into_iter().enumerate() {
            prop_assert!(times == 1 || times == 0 && undecided.contains(&record), "{record} counts {times} times");
        }
        let is_discarded = |record: &usize| {
            world.letters.iter().any(|letter| letter.origin == Origin::FailedBatch && letter.records.contains(record))
        };
        prop_assert!(undecided.iter().all(is_discarded), "{undecided:?} of {:?}", world.letters);
    }
}
