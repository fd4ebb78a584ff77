//! The rule itself: in any time, callers pay no more than what accrues in it and a burst, and no less while they wait.

use std::{collections::BTreeMap, mem, time::Duration};

use proptest::prelude::*;
use tidegate_domain::{
    lease::holder::SlowStart,
    throttle::{
        BURST,
        CapacityKind::Read,
        Place, Throttle, Turn, Units,
        limit::{Limit, RateSteps},
    },
};

use crate::{millis, rates, units};

#[derive(Clone, Copy, Debug)]
enum Act {
    /// A caller comes, with its cost in millionths.
    Come(u64),
    /// One of the waiting callers goes away.
    Leave(usize),
    /// A call that has passed turns out to cost so many percent of its estimate.
    Settle(usize, u64),
    /// The rate changes, and changes again after some milliseconds.
    SetRate(u64, u64, u64),
    /// Time passes, in microseconds.
    Wait(u64),
    /// The same, and no caller wakes up when it is due.
    Sleep(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..40_000_000_u64).prop_map(Act::Come),
        1 => (0..8_usize).prop_map(Act::Leave),
        2 => (0..8_usize, 0..=100_u64).prop_map(|(call, percent)| Act::Settle(call, percent)),
        1 => (0..300_u64, 0..2_000_u64, 0..300_u64).prop_map(|(rate, from, then)| Act::SetRate(rate, from, then)),
        6 => (0..200_000_u64).prop_map(Act::Wait),
        1 => (0..300_000_u64).prop_map(Act::Sleep),
    ]
}

/// A throttle, its waiting callers, and what was paid when.
struct World {
    throttle: Throttle<u64>,
    now: Duration,
    waiting: BTreeMap<Place, Units>,
    /// Calls that have passed, and what they were charged.
    passed: Vec<Units>,
    /// What was paid, and given back, at a moment.
    paid: Vec<(Duration, i128)>,
    /// The rates that applied, for microseconds each.
    limits: Vec<(Duration, Limit)>,
}

impl World {
    fn new(limit: Limit) -> Self {
        Self {
            throttle: Throttle::new(limit.clone()),
            now: Duration::ZERO,
            waiting: BTreeMap::new(),
            passed: Vec::new(),
            paid: Vec::new(),
            limits: vec![(Duration::ZERO, limit)],
        }
    }

    fn pay(&mut self, cost: Units) {
        self.paid.push((self.now, cost.millionths().into()));
        self.passed.push(cost);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Come(cost) => {
                let cost = Units::from_millionths(cost);
                if self.throttle.take(Read, cost, self.now) {
                    assert!(self.waiting.is_empty(), "it overtook others");
                    self.pay(cost);
                } else {
                    let place = self.throttle.enter(Read, cost, 0);
                    self.waiting.insert(place, cost);
                }
            }
            Act::Leave(caller) => {
                if let Some((&place, &cost)) = self.waiting.iter().nth(caller) {
                    self.waiting.remove(&place);
                    drop(self.throttle.leave(Read, place, cost, self.now));
                }
            }
            Act::Settle(call, percent) => {
                if call < self.passed.len() {
                    let charged = self.passed.swap_remove(call);
                    let consumed = Units::from_millionths(charged.millionths() * percent / 100);
                    self.paid.push((self.now, i128::from(consumed.millionths()) - i128::from(charged.millionths())));
                    drop(self.throttle.settle(Read, charged, consumed, self.now));
                }
            }
            Act::SetRate(first, from, then) => {
                let steps = RateSteps::constant(rates(first)).then(self.now + millis(from), rates(then));
                drop(self.throttle.set_steps(steps, self.now));
                self.limits.push((self.now, self.throttle.limit().clone()));
            }
            Act::Wait(micros) => self.wait(Duration::from_micros(micros)),
            Act::Sleep(micros) => self.now += Duration::from_micros(micros),
        }
        self.turns();
    }

    /// Lets time pass. The first caller wakes up whenever it is due.
    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((&place, _)) = self.waiting.first_key_value()
            && let (Turn::Wait(Some(due)), _) = self.throttle.turn(Read, place, self.now)
            && due <= end
        {
            assert!(due > self.now, "a caller that is due has passed");
            self.now = due;
            self.turns();
        }
        self.now = end;
    }

    /// Lets all callers ask, the last ones first.
    fn turns(&mut self) {
        let callers: Vec<_> = self.waiting.iter().rev().map(|(place, cost)| (*place, *cost)).collect();
        let mut passed = Vec::new();
        for (place, cost) in callers {
            if self.throttle.turn(Read, place, self.now).0 == Turn::Passed {
                passed.push((place, cost));
            }
        }
        for (place, cost) in passed.into_iter().rev() {
            assert_eq!(self.waiting.pop_first(), Some((place, cost)), "it overtook others");
            self.pay(cost);
        }
    }

    /// What accrued between two moments, in millionths.
    fn accrued(&self, from: Duration, to: Duration) -> i128 {
        let mut sum = 0;
        for (index, (start, limit)) in self.limits.iter().enumerate() {
            let end = self.limits.get(index + 1).map_or(to, |(next, _)| (*next).min(to));
            let mut at = (*start).max(from);
            while at < end {
                let next = limit.next_change(at).map_or(end, |change| change.min(end));
                let time = i128::try_from(next.abs_diff(at).as_nanos()).unwrap();
                sum += i128::from(limit.at(at).read.millionths()) * time;
                at = next;
            }
        }
        sum / 1_000_000_000
    }

    /// The highest rate that ever applied, in millionths.
    fn highest(&self) -> i128 {
        let rates = self.limits.iter().map(|(_, limit)| limit.maximum.read.millionths());
        rates.max().unwrap_or_default().into()
    }
}

fn history() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec(act(), 1..80)
}

fn limit() -> impl Strategy<Value = Limit> {
    (1..300_u64, 0..300_u64, 0..5_000_u64).prop_map(|(rate, from, over)| Limit {
        slow_start: SlowStart { from: rates(from), over: millis(over) },
        ..Limit::constant(rates(rate))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// In any time, less what they get back, callers pay at most what accrues in it, plus the larger of a burst and the largest cost. If
    /// the rate falls meanwhile, it is the sum of both. If callers are late, it is a burst more.
    #[test]
    fn callers_never_exceed_the_limit(limit in limit(), history in history()) {
        let mut world = World::new(limit);
        let is_late = history.iter().any(|act| matches!(act, Act::Sleep(_)));
        for act in history {
            world.act(act);
        }
        let burst = world.highest() * i128::try_from(BURST.as_millis()).unwrap() / 1_000;
        let largest = world.paid.iter().map(|(_, paid)| *paid).max().unwrap_or_default();
        // After the rate has fallen, a smaller bucket is full enough for a call.
        let extra = if world.limits.len() == 1 { burst.max(largest) } else { burst + largest };
        let extra = extra + if is_late { burst } else { 0 };
        for (first, (from, _)) in world.paid.iter().enumerate() {
            let mut sum = 0;
            for (at, paid) in &world.paid[first..] {
                sum += paid;
                let most = world.accrued(*from, *at) + extra + 1;
                prop_assert!(sum <= most, "{sum} > {most} from {from:?} to {at:?}");
            }
        }
    }

    /// While a caller waits, all that accrues is paid, except for what it waits for. Callers may be late by a burst.
    #[test]
    fn nothing_is_left_over_while_callers_wait(
        limit in limit(),
        costs in prop::collection::vec(1..40_000_000_u64, 20..60),
        late in 1..=100_000_u64,
    ) {
        let mut world = World::new(limit);
        for cost in &costs {
            world.act(Act::Come(*cost));
        }
        for _ in 0..5_000_000 / late {
            world.act(Act::Sleep(late));
        }
        if !world.waiting.is_empty() {
            let paid: i128 = world.paid.iter().map(|(_, paid)| *paid).sum();
            let accrued = world.accrued(Duration::ZERO, world.now);
            let next: i128 = world.waiting.values().next().unwrap().millionths().into();
            prop_assert!(paid + next >= accrued, "{paid} + {next} < {accrued}");
        }
    }

    /// Callers that go away leave nothing behind, whether they wait or have passed.
    #[test]
    fn callers_that_leave_give_everything_back(history in history()) {
        let mut world = World::new(Limit::constant(rates(100)));
        for act in history {
            match act {
                Act::Settle(call, _) => world.act(Act::Settle(call, 0)),
                Act::SetRate(..) => {}
                act => world.act(act),
            }
        }
        for (place, cost) in mem::take(&mut world.waiting) {
            drop(world.throttle.leave(Read, place, cost, world.now));
        }
        for charged in mem::take(&mut world.passed) {
            drop(world.throttle.settle(Read, charged, Units::default(), world.now));
        }
        let usage = world.throttle.usage(Read);
        prop_assert_eq!((usage.consumed, usage.waiting), (units(0), 0));
        prop_assert!(world.throttle.take(Read, units(10), world.now), "the bucket is not full");
        prop_assert!(!world.throttle.take(Read, Units::from_millionths(1), world.now), "it is too full");
    }
}
