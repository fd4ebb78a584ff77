//! Reservations call by call: our clients and Python clients in any order, with lost responses, late writes, crashes and
//! skewed clocks. Our clients decide by the code that the client crate calls.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    reservation::{LONGEST_WRITE, Occupancy},
    slot::{Slot, SlotChange, SlotOutcome, SlotWrite},
};

const LIMIT: u32 = 3;
const NOW: i64 = 1_767_225_600;
const RESERVED: i64 = 300;
const BOUND: i64 = 28_800;
/// An attempt of a write may land for this number of seconds.
const LATEST: i64 = LONGEST_WRITE.as_secs().cast_signed();

/// A write that may land later, and again.
#[derive(Clone, Debug)]
struct Sent {
    slot: u32,
    holder: String,
    change: Change,
    now: i64,
}

#[derive(Clone, Debug)]
enum Change {
    Take { fence: i64, expires: i64 },
    Bind { expires: i64 },
    Renew { expires: i64 },
    Free,
}

impl Sent {
    fn write(&self) -> SlotWrite<'_> {
        let change = match self.change {
            Change::Take { fence, expires } => SlotChange::Take { fence, expires },
            Change::Bind { expires } => SlotChange::Bind { resource: &self.holder, expires },
            Change::Renew { expires } => SlotChange::Renew { expires },
            Change::Free => SlotChange::Free { expires: self.now - 3_600 },
        };
        SlotWrite { holder: &self.holder, change }
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    slots: BTreeMap<u32, Slot>,
    /// Expiries of the tokens of Python clients.
    python: Vec<i64>,
}

impl Table {
    fn occupancy(&self, from: u32, now: i64) -> Occupancy {
        let held = self.slots.range(from..).filter(|(_, slot)| slot.is_held(now));
        let slots = held.map(|(number, slot)| (*number, slot.expires.unwrap_or_default())).collect();
        let others = self.python.iter().filter(|expires| **expires > now).count();
        Occupancy { from, slots, others: u32::try_from(others).unwrap_or(u32::MAX) }
    }

    fn live(&self, now: i64) -> u64 {
        self.occupancy(0, now).held().unwrap_or_default()
    }

    fn apply(&mut self, sent: &Sent) -> SlotOutcome {
        let (slot, write) = (self.slots.entry(sent.slot).or_default(), sent.write());
        let now = match sent.change {
            Change::Take { .. } | Change::Free => sent.now,
            // A late attempt must not revive a slot that has expired meanwhile.
            Change::Bind { .. } | Change::Renew { .. } => sent.now + LATEST,
        };
        if slot.allows(&write, now) {
            *slot = slot.clone().after(&write);
            SlotOutcome::Done(slot.expires.unwrap_or_default())
        } else {
            slot.explain(&write, now)
        }
    }
}

/// One of our callers.
#[derive(Clone, Debug, Default)]
struct Caller {
    /// Its clock, in seconds ahead of the true time.
    ahead: i64,
    /// How many slots were usable by its count.
    usable: Option<u32>,
    /// The slot that it takes or holds, and its id.
    reservation: Option<(u32, String)>,
    /// The expiry that it believes in.
    expires: i64,
    is_confirmed: bool,
    is_bound: bool,
}

#[derive(Clone, Debug)]
struct Run {
    now: i64,
    margin: u32,
    table: Table,
    callers: Vec<Caller>,
    /// Python callers that have counted, and may add a token.
    counted: u32,
    sent: Vec<Sent>,
    ids: u32,
    /// The ids of reservations that their callers have freed.
    freed: Vec<String>,
    /// The ids of reservations that their callers have confirmed.
    confirmed: Vec<String>,
    /// The highest fencing number of each slot.
    fences: BTreeMap<u32, i64>,
}

/// What happens next. The number chooses among possibilities.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A caller of ours goes on. Its write may reach the table twice, its response may be lost.
    Ours {
        caller: usize,
        choice: u32,
        is_lost: bool,
    },
    /// A caller of ours is gone. It holds what it held.
    Crash {
        caller: usize,
    },
    PythonCounts,
    PythonAdds,
    /// A Python caller counts and adds a token, and no other caller is faster.
    PythonReserves,
    /// A write that was sent before lands again.
    Late(usize),
    Pass(i64),
}

impl Run {
    fn new(margin: u32, clocks: &[i64]) -> Self {
        let callers = clocks.iter().map(|ahead| Caller { ahead: *ahead, ..Caller::default() }).collect();
        Self {
            now: NOW,
            margin,
            table: Table::default(),
            callers,
            counted: 0,
            sent: Vec::new(),
            ids: 0,
            freed: Vec::new(),
            confirmed: Vec::new(),
            fences: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Ours { caller, choice, is_lost } => self.ours(caller % self.callers.len(), choice, is_lost),
            Step::Crash { caller } => {
                let caller = caller % self.callers.len();
                self.callers[caller] = Caller { ahead: self.callers[caller].ahead, ..Caller::default() };
            }
            Step::PythonCounts => self.counted += u32::from(self.table.live(self.now) < u64::from(LIMIT)),
            Step::PythonAdds if self.counted > 0 => {
                self.counted -= 1;
                self.table.python.push(self.now + RESERVED);
            }
            Step::PythonReserves if self.table.live(self.now) < u64::from(LIMIT) => {
                self.table.python.push(self.now + RESERVED);
            }
            Step::Late(number) if !self.sent.is_empty() => {
                let sent = self.sent[number % self.sent.len()].clone();
                if self.now - sent.now <= LATEST {
                    self.table.apply(&sent);
                }
            }
            Step::PythonAdds | Step::PythonReserves | Step::Late(_) => {}
            Step::Pass(seconds) => self.now += seconds,
        }
    }

    fn ours(&mut self, number: usize, choice: u32, is_lost: bool) {
        let now = self.now + self.callers[number].ahead;
        let caller = self.callers[number].clone();
        match (caller.reservation, caller.usable) {
            (None, None) => self.callers[number].usable = Some(self.count(now)),
            (None, Some(usable)) => self.take(number, usable, now, choice, is_lost),
            (Some(_), _) if !caller.is_confirmed => self.confirm(number, now),
            (Some((slot, holder)), _) => {
                let change = match (caller.is_bound, choice % 3) {
                    (_, 0) => Change::Free,
                    (false, _) => Change::Bind { expires: now + BOUND },
                    (true, _) => Change::Renew { expires: now + BOUND },
                };
                self.change(number, Sent { slot, holder, change, now }, is_lost);
            }
        }
    }

    /// Counts as the client crate does: the upper slots first, and lower ones if that does not suffice.
    fn count(&self, now: i64) -> u32 {
        let upper = self.table.occupancy(LIMIT, now);
        let second = self.table.occupancy(upper.next_from(LIMIT, self.margin), now);
        let all = self.table.occupancy(0, now);
        let counts = [&upper, &second, &all].map(|count| count.usable(LIMIT, self.margin));
        let usable = counts.into_iter().flatten().next().expect("a count of all slots is enough");
        let free = (0..usable).filter(|slot| !all.slots.contains_key(slot)).count() as u64;
        let held = all.held().expect("all slots") + u64::from(self.margin);
        assert_eq!(free, u64::from(LIMIT).saturating_sub(held), "slots that may be taken");
        usable
    }

    fn take(&mut self, number: usize, usable: u32, now: i64, choice: u32, is_lost: bool) {
        self.callers[number].usable = None;
        if usable == 0 {
            return;
        }
        self.ids += 1;
        let (slot, holder) = (choice % usable, format!("r-{}", self.ids));
        let least = self.table.slots.get(&slot).map_or(0, |slot| slot.fence) + 1;
        let fence = if choice.is_multiple_of(2) { now * 1000 } else { least.max(now * 1000) };
        let sent = Sent { slot, holder: holder.clone(), change: Change::Take { fence, expires: now + RESERVED }, now };
        if let SlotOutcome::Done(expires) = self.send(&sent, is_lost) {
            let earlier = self.fences.insert(slot, fence);
            assert!(earlier.is_none_or(|earlier| earlier < fence), "the fencing number of slot {slot} did not rise");
            let caller = &mut self.callers[number];
            caller.reservation = Some((slot, holder));
            (caller.expires, caller.is_confirmed, caller.is_bound) = (expires, false, false);
        }
    }

    fn confirm(&mut self, number: usize, now: i64) {
        let all = self.table.occupancy(0, now);
        if all.exceeds(LIMIT) == Some(true) {
            let (slot, holder) = self.callers[number].reservation.clone().expect("a reservation");
            self.change(number, Sent { slot, holder, change: Change::Free, now }, false);
        } else {
            self.callers[number].is_confirmed = true;
            self.confirmed.extend(self.callers[number].reservation.iter().map(|(_, holder)| holder.clone()));
        }
    }

    fn change(&mut self, number: usize, sent: Sent, is_lost: bool) {
        let outcome = self.send(&sent, is_lost);
        let caller = &mut self.callers[number];
        match (&sent.change, outcome) {
            (Change::Free, _) => {
                self.freed.push(sent.holder);
                caller.reservation = None;
            }
            (_, SlotOutcome::Done(expires)) => (caller.expires, caller.is_bound) = (expires, true),
            (_, SlotOutcome::Lost) => {
                assert!(
                    caller.expires <= sent.now + LATEST || self.callers.iter().any(|of| of.ahead != 0),
                    "a live slot was lost"
                );
                self.callers[number].reservation = None;
            }
            (change, outcome) => panic!("{outcome:?} after {change:?}"),
        }
    }

    /// Sends a write. If its response is lost, it is sent again.
    fn send(&mut self, sent: &Sent, is_lost: bool) -> SlotOutcome {
        self.sent.push(sent.clone());
        let first = self.table.apply(sent);
        if is_lost { self.table.apply(sent) } else { first }
    }

    /// Live slots that no caller has confirmed: it will count again, or it is gone.
    fn unconfirmed(&self) -> u64 {
        let is_confirmed = |slot: &&Slot| slot.holder.as_ref().is_some_and(|holder| self.confirmed.contains(holder));
        let live = self.table.slots.values().filter(|slot| slot.is_held(self.now));
        live.filter(|slot| !is_confirmed(slot)).count() as u64
    }

    /// A slot is live only for a reservation that was not freed, and live reservations have their slots.
    fn check_holders(&self) {
        for slot in self.table.slots.values().filter(|slot| slot.is_held(self.now)) {
            let holder = slot.holder.as_ref().expect("a held slot has a holder");
            assert!(!self.freed.contains(holder), "{holder} was freed");
        }
        for caller in self.callers.iter().filter(|caller| caller.expires > self.now) {
            if let Some((slot, holder)) = &caller.reservation {
                assert_eq!(self.table.slots[slot].holder.as_ref(), Some(holder), "slot {slot} was taken");
            }
        }
    }
}

/// `python` are the weights of the steps of Python callers.
fn steps(python: [u32; 3]) -> impl Strategy<Value = Vec<Step>> {
    let ours = (0usize..5, any::<u32>(), any::<bool>());
    let step = prop_oneof![
        12 => ours.prop_map(|(caller, choice, is_lost)| Step::Ours { caller, choice, is_lost }),
        1 => (0usize..5).prop_map(|caller| Step::Crash { caller }),
        python[0] => Just(Step::PythonCounts),
        python[1] => Just(Step::PythonAdds),
        python[2] => Just(Step::PythonReserves),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Late(index.index(1000))),
        2 => prop_oneof![Just(1), Just(5), Just(100), Just(294), Just(300), Just(28_795)].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Among our clients, never more tokens are live than the limit.
    #[test]
    fn our_clients_keep_the_limit(steps in steps([0, 0, 0])) {
        let mut run = Run::new(0, &[0; 5]);
        for step in steps {
            run.step(step);
            prop_assert!(run.table.live(run.now) <= u64::from(LIMIT));
            run.check_holders();
        }
    }

    /// Beside Python clients that count and add at once, confirmed tokens and theirs never exceed the limit.
    #[test]
    fn our_clients_cause_no_excess(steps in steps([0, 0, 4]), margin in 0u32..3) {
        let mut run = Run::new(margin, &[0; 5]);
        for step in steps {
            run.step(step);
            let unconfirmed = run.unconfirmed();
            prop_assert!(run.table.live(run.now) - unconfirmed <= u64::from(LIMIT), "{unconfirmed} are not confirmed");
            run.check_holders();
        }
    }

    /// Beside Python clients that add after others have written, no slot is lost or leaks.
    #[test]
    fn slots_stay_with_their_holders_beside_python(steps in steps([2, 2, 0])) {
        let mut run = Run::new(0, &[0; 5]);
        for step in steps {
            run.step(step);
            run.check_holders();
        }
    }

    /// With clocks some seconds apart, a slot has one holder, and an earlier holder changes nothing.
    #[test]
    fn a_slot_has_one_holder_by_any_clock(steps in steps([0, 0, 0]), clocks in prop::collection::vec(-5i64..6, 5)) {
        let mut run = Run::new(0, &clocks);
        for step in steps {
            run.step(step);
            let held = run.table.slots.range(LIMIT..).count();
            prop_assert_eq!(held, 0);
            let mut holders: Vec<_> = run.callers.iter().filter_map(|caller| caller.reservation.as_ref()).collect();
            holders.retain(|(slot, holder)| run.table.slots[slot].holder.as_ref() == Some(holder));
            holders.sort();
            prop_assert!(holders.windows(2).all(|pair| pair[0].0 != pair[1].0));
        }
    }
}

/// Python clients take the place of a reservation that expires while its bind is on the way.
#[test]
fn a_late_bind_revives_nothing() {
    let mut run = Run::new(0, &[0]);
    let goes_on = Step::Ours { caller: 0, choice: 0, is_lost: false };
    [goes_on; 3].into_iter().for_each(|step| run.step(step));
    let (slot, holder) = run.callers[0].reservation.clone().expect("a reservation");
    run.now += RESERVED - 4;
    let bind = Sent { slot, holder, change: Change::Bind { expires: run.now + BOUND }, now: run.now };
    run.now += 5;
    [Step::PythonReserves; 3].into_iter().for_each(|step| run.step(step));
    assert_eq!(run.table.apply(&bind), SlotOutcome::Lost);
    assert_eq!(run.table.live(run.now), 3);
}
