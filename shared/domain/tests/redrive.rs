//! The law of the redrive: whatever was parked or given up, in whatever order and however often it is redriven,
//! no record counts twice, and each counts once unless it is named as undecided.
//!
//! The model is one bucket item and one snapshot. Its function fails at every step, with its write done or not,
//! grows late, parks and gives up; its mapping delivers again and gives up, too; operators redrive at any time.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use tidegate_domain::{
    redrive::{Decision, Evidence, Origin, decide},
    sequence::SequenceNumber,
};

const RECORDS: usize = 12;

/// What becomes of a delivery.
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own, drawn by itself")]
#[derive(Clone, Copy, Debug)]
struct Delivery {
    records: usize,
    /// Whether the function parks poison, before anything else, and whether it gets to parking what is spent.
    begins: bool,
    ends: bool,
    /// Whether the write is done, and whether the function learns that.
    written: bool,
    learnt: bool,
    /// Whether the snapshot can be read after that.
    readable: bool,
    /// Whether the mapping gets the answer, if there is one; and whether it gives up, if there is none.
    answered: bool,
    gives_up: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(Delivery),
    /// Time passes: fresh records are late, late ones spent.
    Age,
    /// An operator redrives a message, and deletes it if it is settled.
    Redrive(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let delivery = (1..6_usize, any::<[bool; 7]>()).prop_map(
        |(records, [begins, ends, written, learnt, readable, answered, gives_up])| {
            Step::Deliver(Delivery { records, begins, ends, written, learnt, readable, answered, gives_up })
        },
    );
    prop_oneof![8 => delivery, 1 => Just(Step::Age), 4 => any::<usize>().prop_map(Step::Redrive)]
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Poison(usize),
    Letter { record: usize, unsure: bool },
    Batch { start: usize, end: usize },
}

#[derive(Default)]
struct World {
    /// Which records the function cannot read, unlike the redrive.
    poison: [bool; RECORDS],
    /// How often each record was counted.
    counted: [usize; RECORDS],
    watermark: Option<usize>,
    markers: BTreeSet<usize>,
    /// First and last.
    late_spans: Vec<(usize, usize)>,
    messages: Vec<Message>,
    checkpoint: usize,
    /// 0 is fresh, 1 late, 2 spent.
    age: u8,
}

fn sequence(record: usize) -> SequenceNumber {
    SequenceNumber::parse(&format!("1{record:020}")).unwrap()
}

impl World {
    /// Records from here to there that are to be counted and are above the watermark.
    fn beyond(&self, start: usize, end: usize) -> Vec<usize> {
        let above = |record: &usize| self.watermark.is_none_or(|watermark| *record > watermark);
        (start..=end).filter(|record| !self.poison[*record]).filter(above).collect()
    }

    fn write(&mut self, records: &[usize]) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        for record in records {
            self.counted[*record] += 1;
        }
        self.watermark = Some(*last);
        if self.age > 0 {
            self.late_spans.push((*first, *last));
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        let start = self.checkpoint;
        if start == RECORDS {
            return;
        }
        let end = (start + delivery.records).min(RECORDS) - 1;
        let done = delivery.begins && self.handle(delivery, start, end);
        if done && delivery.answered {
            self.checkpoint = end + 1;
        } else if delivery.gives_up {
            self.messages.push(Message::Batch { start, end });
            self.checkpoint = end + 1;
        }
    }

    /// Whether all is done, counted or parked.
    fn handle(&mut self, delivery: Delivery, start: usize, end: usize) -> bool {
        let poison = (start..=end).filter(|record| self.poison[*record]);
        self.messages.extend(poison.map(Message::Poison));
        let rest = self.beyond(start, end);
        if delivery.written {
            self.write(&rest);
        }
        if rest.is_empty() || delivery.written && delivery.learnt {
            return true;
        }
        if self.age < 2 || !delivery.ends {
            return false;
        }
        // What is spent is parked, as far as it is not known to be in.
        let lacking = if delivery.readable { self.beyond(start, end) } else { rest };
        let unsure = !delivery.readable;
        self.messages.extend(lacking.into_iter().map(|record| Message::Letter { record, unsure }));
        true
    }

    fn settle(&mut self, record: usize, origin: Origin) -> Decision {
        let evidence = Evidence {
            watermark: self.watermark.map(sequence),
            redriven: self.markers.contains(&record),
            late: self.late_spans.iter().any(|(first, last)| (*first..=*last).contains(&record)),
        };
        let decision = decide(sequence(record), origin, &evidence);
        if decision == Decision::Count {
            self.counted[record] += 1;
            self.markers.insert(record);
        }
        decision
    }

    /// Redrives a message; the records that are undecided.
    fn redrive(&mut self, message: Message) -> Vec<usize> {
        let (records, origin) = match message {
            Message::Poison(record) => (record..=record, Origin::Poison),
            Message::Letter { record, unsure } => {
                (record..=record, Origin::Letter { unsure, may_come_again: self.checkpoint < RECORDS })
            }
            Message::Batch { start, end } => (start..=end, Origin::Range { end: sequence(end) }),
        };
        let unsettled = |decision| matches!(decision, Decision::Undecided | Decision::Waiting);
        records.filter(|record| unsettled(self.settle(*record, origin))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_counts_twice_and_nothing_is_lost_unnamed(
        steps in prop::collection::vec(step(), 0..60),
        poison in prop::array::uniform12(prop::bool::weighted(0.15)),
        order: u64,
    ) {
        let mut world = World { poison, ..World::default() };
        for step in steps {
            match step {
                Step::Deliver(delivery) => world.deliver(delivery),
                Step::Age => world.age = (world.age + 1).min(2),
                Step::Redrive(_) if world.messages.is_empty() => {}
                Step::Redrive(at) => {
                    let at = at % world.messages.len();
                    if world.redrive(world.messages[at]).is_empty() {
                        world.messages.swap_remove(at);
                    }
                }
            }
            prop_assert!(world.counted.iter().all(|times| *times <= 1), "{:?}", world.counted);
        }
        // In the end the stream is drained and all is redriven, in any order.
        let well = Delivery {
            records: 5,
            begins: true,
            ends: true,
            written: true,
            learnt: true,
            readable: true,
            answered: true,
            gives_up: false,
        };
        while world.checkpoint < RECORDS {
            world.deliver(well);
        }
        let mut undecided = [false; RECORDS];
        let mut messages = std::mem::take(&mut world.messages);
        let places = messages.len().max(1);
        messages.rotate_left(usize::try_from(order % places as u64)?);
        for message in messages {
            for record in world.redrive(message) {
                undecided[record] = true;
            }
        }
        for (record, times) in world.counted.into_iter().enumerate() {
            prop_assert!(times == 1 || times == 0 && undecided[record], "record {record} counts {times} times");
        }
    }
}
