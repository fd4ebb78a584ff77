//! Parked and discarded records count once, in any order and however often they are redriven, or are named as undecided.
//!
//! The model is one snapshot with two bucket shards and poison among their records. Invocations stop at any step, and go on
//! beside their redelivery. The event source mapping discards batches. Operators redrive concurrently.

use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
};

use proptest::prelude::*;
use tidegate_domain::{
    bucket::BucketChange,
    redrive::{Decision, Evidence, Origin, decide},
    sequence::Position,
    usage::{self, Posting, Watermarks},
    window::Window,
};

use crate::{Invocation, counters, created, pick};

const RECORDS: usize = 12;

/// A step of the stream, its consumer or an operator. Indices are taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    Deliver {
        records: usize,
    },
    /// An invocation does its next action.
    Proceed {
        invocation: usize,
    },
    /// An invocation ends. The actions that it has not done fail.
    Answer {
        invocation: usize,
    },
    /// The mapping gives up an invocation, which goes on. It delivers the batch again or discards it.
    Abandon {
        invocation: usize,
        discards: bool,
    },
    /// A day passes, so delivered records are not delivered again.
    Age,
    /// An operator reads the evidence on failed records.
    Read {
        failed: usize,
    },
    /// An operator counts the records that are missing by such a reading.
    Count {
        reading: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let at = any::<usize>;
    prop_oneof![
        4 => (1..6_usize).prop_map(|records| Step::Deliver { records }),
        10 => at().prop_map(|invocation| Step::Proceed { invocation }),
        4 => at().prop_map(|invocation| Step::Answer { invocation }),
        2 => (at(), any::<bool>()).prop_map(|(invocation, discards)| Step::Abandon { invocation, discards }),
        1 => Just(Step::Age),
        4 => at().prop_map(|failed| Step::Read { failed }),
        4 => at().prop_map(|reading| Step::Count { reading }),
    ]
}

enum Action {
    Post(Posting<'static>),
    Park(usize),
}

#[derive(Clone, Debug)]
struct FailedRecords {
    origin: Origin,
    records: Range<usize>,
}

struct Reading {
    watermarks: Watermarks,
    decisions: Vec<(usize, Decision)>,
}

struct World {
    changes: Vec<BucketChange<'static>>,
    /// The records that the function cannot decode. The redrive can.
    poison: [bool; RECORDS],
    counted: [usize; RECORDS],
    watermarks: Watermarks,
    markers: BTreeSet<usize>,
    failed: Vec<FailedRecords>,
    invocations: Vec<Invocation<VecDeque<Action>>>,
    readings: Vec<Reading>,
    checkpoint: usize,
    /// Records before this one are not delivered again.
    expired: usize,
}

/// The records are in two bucket shards. The later ones are in a second stream with new sequence numbers.
fn changes(shards: [bool; RECORDS], restart: usize) -> Vec<BucketChange<'static>> {
    let change = |record: usize| {
        let label = format!("202{}-01-01T00:00:00.000", 5 + usize::from(record >= restart));
        created("user-1", shards[record].into(), &label, record % restart, counters([("rpm", 1000)]))
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

    /// Writes the part of a posting that the snapshot does not count yet, or parks a record.
    fn proceed(&mut self, invocation: usize) {
        match self.invocations[invocation].todo.pop_front() {
            Some(Action::Post(posting)) => {
                let Some(rest) = posting.beyond(&self.watermarks) else { return };
                self.add(&rest);
                self.watermarks.extend(rest.sources().map(|(shard, span)| (shard, span.last)));
            }
            Some(Action::Park(record)) => {
                self.failed.push(FailedRecords { origin: Origin::Parked, records: record..record + 1 });
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

    fn abandon(&mut self, invocation: usize, discards: bool) {
        let Invocation { batch, is_awaited, .. } = &mut self.invocations[invocation];
        if std::mem::take(is_awaited) && discards {
            self.failed.push(FailedRecords { origin: Origin::FailedBatch, records: batch.clone() });
            self.checkpoint = batch.end;
        }
    }

    fn age(&mut self) {
        self.expired = self.checkpoint;
        self.invocations.retain(|invocation| invocation.batch.start >= self.expired);
    }

    fn read(&self, failed: &FailedRecords) -> Reading {
        let decide = |record: usize| {
            let watermark = self.watermarks.get(&self.changes[record].bucket.shard).copied();
            let evidence = Evidence { watermark, is_redriven: self.markers.contains(&record) };
            (record, decide(self.changes[record].position(), record >= self.expired, failed.origin, &evidence))
        };
        Reading { watermarks: self.watermarks.clone(), decisions: failed.records.clone().map(decide).collect() }
    }

    /// The transaction. It is lost if a marker, or a watermark below a record, has changed since it was read.
    fn count(&mut self, Reading { watermarks, decisions }: &Reading) {
        let is_counted = |record: usize| decisions.contains(&(record, Decision::Count));
        let postings = usage::fold(&self.changes, &[Window::Daily]);
        let Some(posting) = postings[0].only(|_, position| is_counted(self.record(position))) else { return };
        let is_unchanged = posting.sources().all(|(shard, span)| {
            let before = watermarks.get(&shard);
            before.is_some_and(|before| *before >= span.last) || self.watermarks.get(&shard) == before
        });
        let records: Vec<_> = posting.records().map(|(_, position)| self.record(position)).collect();
        if is_unchanged && !records.iter().any(|record| self.markers.contains(record)) {
            self.add(&posting);
            self.markers.extend(records);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Deliver { records } => self.deliver(records),
            Step::Proceed { invocation } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.proceed(at);
                }
            }
            Step::Answer { invocation } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.answer(at);
                }
            }
            Step::Abandon { invocation, discards } => {
                if let Some(at) = pick(invocation, self.invocations.len()) {
                    self.abandon(at, discards);
                }
            }
            Step::Age => self.age(),
            Step::Read { failed } => {
                if let Some(at) = pick(failed, self.failed.len()) {
                    self.readings.push(self.read(&self.failed[at]));
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

    /// Delivers the rest of the stream, waits for a day, and redrives all failed records. Returns the undecided ones.
    fn finish(&mut self) -> BTreeSet<usize> {
        while self.checkpoint < RECORDS || !self.invocations.is_empty() {
            self.deliver(RECORDS);
            while self.invocations.last().is_some_and(|invocation| !invocation.todo.is_empty()) {
                self.proceed(self.invocations.len() - 1);
            }
            self.answer(self.invocations.len() - 1);
        }
        self.age();
        let mut undecided = BTreeSet::new();
        for failed in self.failed.clone() {
            let reading = self.read(&failed);
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
    fn every_record_counts_once_or_is_undecided(
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
            failed: Vec::new(),
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
            world.failed.iter().any(|failed| failed.origin == Origin::FailedBatch && failed.records.contains(record))
        };
        prop_assert!(undecided.iter().all(is_discarded), "{undecided:?} of {:?}", world.failed);
    }
}
