//! The law of the token sweeper: however clients' writes, ends, events and sweeps follow each other, no
//! live token is deleted, and what has ended or expired is gone when everything has come to rest.
//!
//! The model is the table, its index that is a little behind, resources that run and end, a queue that
//! delivers each end's event at any time and again, and sweeps that stall or crash between finding a token
//! and deleting it. The truth is what the clients did, apart from the code under test.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tidegate_domain::{
    sweep::{self, Outcome, Reason, Removal, Removals, Resource, Token, TokenKey, decide},
    time::EpochMillis,
};

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;
const GRACE: Duration = Duration::from_mins(2);
/// How far the index may be behind the table, in milliseconds.
const LAG: i64 = 1_000;
const RESERVED: i64 = 300;
const HELD: i64 = 28_800;

/// Indices are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes, in milliseconds.
    Wait(i64),
    /// A client reserves a token.
    Reserve,
    /// A client starts a resource.
    Start,
    /// A client writes a resource's id to a reservation, or to a token: then it is used again. The reservation may
    /// have been swept meanwhile; the client does not look.
    Hold { reservation: usize, resource: usize },
    /// A resource ends, no sooner than the index is up to date, and an event is sent.
    End(usize),
    /// An event is delivered; the index is this many milliseconds behind.
    Deliver { event: usize, lag: i64 },
    /// A sweep that is under way deletes one of the tokens that it has found.
    Delete(usize),
    /// A sweep that is under way stops for good.
    Crash(usize),
    /// A sweep begins that looks at all tokens; EMR knows all of its clusters, or is not asked.
    Reconcile { asks: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>;
    prop_oneof![
        3 => prop_oneof![0..2_000_i64, 0..150_000_i64, 0..400_000_i64].prop_map(Step::Wait),
        3 => Just(Step::Reserve),
        3 => Just(Step::Start),
        5 => (any(), any()).prop_map(|(reservation, resource)| Step::Hold { reservation, resource }),
        3 => any().prop_map(Step::End),
        5 => (any(), 0..=LAG).prop_map(|(event, lag)| Step::Deliver { event, lag }),
        5 => any().prop_map(Step::Delete),
        1 => any().prop_map(Step::Crash),
        1 => prop::bool::ANY.prop_map(|asks| Step::Reconcile { asks }),
    ]
}

#[derive(Clone, Debug)]
struct Event {
    resource: usize,
    ended: EpochMillis,
    /// A queue delivers again what was done, too, but need not.
    is_done: bool,
}

/// Tokens that were found, on their way to be deleted.
#[derive(Clone, Debug)]
struct Sweep {
    /// `None` if it is a reconcile.
    event: Option<usize>,
    found: Vec<(Token, Reason)>,
    removals: Removals,
}

#[derive(Debug)]
struct World {
    now: i64,
    table: BTreeMap<TokenKey, Token>,
    /// The table as it was, for the index.
    past: Vec<(i64, BTreeMap<TokenKey, Token>)>,
    reserved: usize,
    /// When each resource ended.
    resources: Vec<Option<i64>>,
    events: Vec<Event>,
    sweeps: Vec<Sweep>,
}

fn key(reservation: usize) -> TokenKey {
    TokenKey { coordinate: "clusters:1".to_owned(), reservation: format!("r-{reservation}") }
}

fn name(resource: usize) -> String {
    format!("j-{resource}")
}

impl World {
    fn new() -> Self {
        Self {
            now: START,
            table: BTreeMap::new(),
            past: vec![(START, BTreeMap::new())],
            reserved: 0,
            resources: Vec::new(),
            events: Vec::new(),
            sweeps: Vec::new(),
        }
    }

    fn now(&self) -> EpochMillis {
        EpochMillis::new(self.now).unwrap()
    }

    fn put(&mut self, token: Token) {
        self.table.insert(token.key.clone(), token);
        self.past.push((self.now, self.table.clone()));
    }

    /// Whether the token must not be deleted.
    fn is_live(&self, token: &Token) -> bool {
        let ended = (0..self.resources.len()).find(|resource| name(*resource) == token.resource);
        !token.is_expired(self.now()) && ended.is_none_or(|resource| self.resources[resource].is_none())
    }

    /// What the index shows of a resource, as it was `lag` ago.
    fn query(&self, resource: usize, lag: i64) -> Vec<Token> {
        let (_, table) = self.past.iter().rev().find(|(time, _)| *time <= self.now - lag).unwrap_or(&self.past[0]);
        table.values().filter(|token| token.resource == name(resource)).cloned().collect()
    }

    /// Deletes on a condition, as the table does. No live token may go.
    fn delete(&mut self, seen: &Token, reason: Reason) -> Removal {
        let Some(current) = self.table.get(&seen.key) else { return Removal::AlreadyGone };
        if !reason.holds(seen, current, self.now()) {
            return Removal::Changed;
        }
        assert!(!self.is_live(current), "{current:?} is live");
        self.table.remove(&seen.key);
        self.past.push((self.now, self.table.clone()));
        Removal::Deleted
    }

    /// Whether a client may still write this resource's token: while it runs, or if it has none, soon after its
    /// end, since a client may be slow.
    fn may_hold(&self, resource: usize) -> bool {
        let grace = i64::try_from(GRACE.as_millis()).unwrap() - LAG;
        let has_none =
            || self.past.iter().all(|(_, table)| table.values().all(|token| token.resource != name(resource)));
        self.resources[resource].is_none_or(|ended| self.now - ended < grace && has_none())
    }

    fn deliver(&mut self, event: usize, lag: i64) {
        let found = self.query(self.events[event].resource, lag);
        self.begin(Some(event), found.into_iter().map(|token| (token, Reason::Ended)).collect());
    }

    fn begin(&mut self, event: Option<usize>, found: Vec<(Token, Reason)>) {
        self.sweeps.push(Sweep { event, found, removals: Removals::default() });
        self.decide(self.sweeps.len() - 1);
    }

    fn delete_one(&mut self, sweep: usize) {
        let Some((token, reason)) = self.sweeps[sweep].found.pop() else { return };
        let removal = self.delete(&token, reason);
        self.sweeps[sweep].removals.count(removal);
        self.decide(sweep);
    }

    /// Answers the queue if a sweep has no more to do.
    fn decide(&mut self, sweep: usize) {
        if !self.sweeps[sweep].found.is_empty() {
            return;
        }
        let Sweep { event, removals, .. } = self.sweeps.swap_remove(sweep);
        let Some(event) = event else { return };
        let age = self.now().since(self.events[event].ended);
        self.events[event].is_done |= decide(&removals, age, GRACE) != Outcome::Early;
    }

    fn reconcile(&mut self, asks: bool) {
        let doomed = self.table.values().filter_map(|token| {
            let named = (0..self.resources.len()).find(|resource| name(*resource) == token.resource);
            let resource = match named.filter(|_| asks).map(|resource| self.resources[resource]) {
                None => Resource::Unknown,
                Some(None) => Resource::Running,
                Some(Some(_)) => Resource::Ended,
            };
            Some((token.clone(), sweep::reconcile(token, resource, self.now())?))
        });
        self.begin(None, doomed.collect());
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(millis) => self.now += millis,
            Step::Reserve => {
                let key = key(self.reserved);
                self.reserved += 1;
                let resource = key.reservation.clone();
                self.put(Token { key, resource, expires: Some(self.now / 1000 + RESERVED) });
            }
            Step::Start => self.resources.push(None),
            Step::Hold { reservation, resource } if self.reserved > 0 && !self.resources.is_empty() => {
                let resource = resource % self.resources.len();
                if self.may_hold(resource) {
                    let expires = Some(self.now / 1000 + HELD);
                    self.put(Token { key: key(reservation % self.reserved), resource: name(resource), expires });
                }
            }
            Step::End(resource) if !self.resources.is_empty() => {
                let resource = resource % self.resources.len();
                if self.resources[resource].is_none() {
                    // By then, the index shows what was written while it ran.
                    self.now += LAG;
                    self.resources[resource] = Some(self.now);
                    self.events.push(Event { resource, ended: self.now(), is_done: false });
                }
            }
            Step::Deliver { event, lag } if !self.events.is_empty() => self.deliver(event % self.events.len(), *lag),
            Step::Delete(sweep) if !self.sweeps.is_empty() => self.delete_one(sweep % self.sweeps.len()),
            Step::Crash(sweep) if !self.sweeps.is_empty() => {
                self.sweeps.swap_remove(sweep % self.sweeps.len());
            }
            Step::Reconcile { asks } => self.reconcile(*asks),
            _ => {}
        }
    }

    /// The queue delivers what is not done, until all is.
    fn come_to_rest(&mut self) {
        for _ in 0..3 {
            self.now += i64::try_from(GRACE.as_millis()).unwrap();
            self.finish();
            for event in 0..self.events.len() {
                if !self.events[event].is_done {
                    self.deliver(event, LAG);
                }
            }
        }
        self.finish();
        self.reconcile(false);
        self.finish();
    }

    fn finish(&mut self) {
        while !self.sweeps.is_empty() {
            self.delete_one(0);
        }
    }
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.take(step);
    }
    world.come_to_rest();
    world
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let world = run(steps);
    prop_assert!(world.events.iter().all(|event| event.is_done), "{:?}", world.events);
    let leaked: Vec<_> = world.table.values().filter(|token| !world.is_live(token)).collect();
    prop_assert!(leaked.is_empty(), "{leaked:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_live_tokens_are_left(steps in prop::collection::vec(step(), 0..80)) {
        check(&steps)?;
    }
}

#[test]
fn a_reused_reservation_is_not_deleted() {
    let world = run(&[
        Step::Reserve,
        Step::Start,
        Step::Start,
        Step::Hold { reservation: 0, resource: 0 },
        Step::End(0),
        Step::Deliver { event: 0, lag: 0 },
        Step::Hold { reservation: 0, resource: 1 },
        Step::Delete(0),
    ]);
    assert_eq!(world.table.into_values().map(|token| token.resource).collect::<Vec<_>>(), ["j-1"]);
}

#[test]
fn a_reservation_that_is_extended_is_not_deleted() {
    let world = run(&[
        Step::Reserve,
        Step::Start,
        Step::Wait(RESERVED * 1000),
        Step::Reconcile { asks: false },
        Step::Hold { reservation: 0, resource: 0 },
        Step::Delete(0),
    ]);
    assert_eq!(world.table.len(), 1);
}

#[test]
fn an_early_end_waits_for_its_token() {
    let early = [Step::Reserve, Step::Start, Step::End(0), Step::Deliver { event: 0, lag: 0 }];
    let mut world = World::new();
    for step in &early {
        world.take(step);
    }
    assert!(!world.events[0].is_done);
    world.take(&Step::Hold { reservation: 0, resource: 0 });
    world.come_to_rest();
    assert!(world.table.is_empty());
}

#[test]
fn a_token_without_its_reservation_is_deleted() {
    let mut world = World::new();
    for step in [
        Step::Reserve,
        Step::Start,
        Step::Wait(RESERVED * 1000),
        Step::Reconcile { asks: true },
        Step::Delete(0),
        Step::Hold { reservation: 0, resource: 0 },
        Step::Reconcile { asks: true },
    ] {
        world.take(&step);
    }
    assert_eq!(world.table.len(), 1);
    world.take(&Step::End(0));
    world.come_to_rest();
    assert!(world.table.is_empty());
}
