//! Proof of the rule of fungible tokens on a model of several clients that share one row.
//!
//! Our clients decide with the real code, and each of their writes applies under the conditions that the table checks.
//! Clients of rate-limiter-py take with their two writes. Calls follow each other in any order: a write may arrive late or
//! never, and its response may be lost. The reference is an exact bucket, which is charged at the moments of the takes.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::{
    fungible::{Denial, EpochNanos, Ours, Rate, Refill, Row, Step, Take, decide, refill},
    time::EpochMillis,
};

/// 2026-01-01T00:00:00Z
const START: i64 = 1_767_225_600_000;
const MILLI: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Limit {
    tokens: u64,
    window: Duration,
}

impl Limit {
    fn rate(self) -> Rate {
        Rate::new(self.tokens, self.window).unwrap()
    }

    fn nanos(self) -> i128 {
        i128::try_from(self.window.as_nanos()).unwrap()
    }
}

/// Tokens that were granted at a moment, in nanoseconds. A fail-safe take is granted without tokens.
#[derive(Clone, Copy, Debug)]
struct Grant {
    at: i128,
    tokens: u64,
    is_fail_safe: bool,
}

fn granted(at: i128, tokens: u64) -> Grant {
    Grant { at, tokens, is_fail_safe: false }
}

/// An exact bucket with debt. Its unit is a token divided by the window's nanoseconds.
struct Reference {
    limit: Limit,
    capacity: i128,
    level: i128,
    at: i128,
}

impl Reference {
    /// A full bucket, for clients whose clocks differ by at most `spread` milliseconds.
    fn new(limit: Limit, spread: i64) -> Self {
        let capacity = i128::from(limit.tokens) * (limit.nanos() + i128::from(spread) * MILLI);
        Self { limit, capacity, level: capacity, at: 0 }
    }

    fn advance(&mut self, at: i128) {
        let accrued = (at - self.at).saturating_mul(self.limit.tokens.into());
        self.level = self.level.saturating_add(accrued).min(self.capacity);
        self.at = at;
    }

    /// Charges a grant. Returns whether the bucket had its tokens.
    fn charge(&mut self, grant: Grant) -> bool {
        self.advance(grant.at);
        let tokens = i128::from(grant.tokens) * self.limit.nanos();
        let had = self.level >= tokens;
        self.level -= tokens;
        had || grant.is_fail_safe
    }
}

/// A write that is under way.
#[derive(Clone, Debug)]
struct Pending {
    client: usize,
    seen: Option<Row>,
    step: Step,
    /// The client's clock.
    now: EpochMillis,
    decided_at: i128,
}

/// One of our clients: how far its clock is ahead, in milliseconds, and what it last saw.
#[derive(Clone, Debug)]
struct Client {
    ahead: i64,
    image: Option<Image>,
}

/// The row as a client saw it; `None` if there was none.
#[derive(Clone, Debug)]
struct Image(Option<Row>);

#[derive(Debug)]
struct World {
    limit: Limit,
    seals: bool,
    now: i64,
    row: Option<Row>,
    clients: Vec<Client>,
    writes: Vec<Pending>,
    /// The moments of the takes whose refill is under way.
    python_refills: Vec<i64>,
    python_ahead: i64,
    grants: Vec<Grant>,
    refills: i128,
}

impl World {
    fn new(limit: Limit, seals: bool, ahead: &[i64]) -> Self {
        let clients = ahead.iter().map(|ahead| Client { ahead: *ahead, image: None }).collect();
        Self {
            limit,
            seals,
            now: START,
            row: None,
            clients,
            writes: Vec::new(),
            python_refills: Vec::new(),
            python_ahead: 0,
            grants: Vec::new(),
            refills: 0,
        }
    }

    fn nanos(&self) -> i128 {
        i128::from(self.now) * MILLI
    }

    fn clock(&self, client: usize) -> EpochMillis {
        EpochMillis::new(self.now + self.clients[client].ahead).unwrap()
    }

    /// A client decides on a request from the row that it last saw, or from the row.
    fn ask(&self, client: usize, tokens: u64, is_fresh: bool) -> Pending {
        let image = self.clients[client].image.clone().filter(|_| !is_fresh);
        let seen = image.map_or_else(|| self.row.clone(), |Image(row)| row);
        let now = self.clock(client);
        let step = decide(seen.as_ref(), self.limit.rate(), tokens, now, self.seals);
        Pending { client, seen, step, now, decided_at: self.nanos() }
    }

    /// A client refills without taking.
    fn ask_refill(&self, client: usize) -> Option<Pending> {
        let (seen, now) = (self.row.clone(), self.clock(client));
        let step = Step::Refill(refill(seen.as_ref(), self.limit.rate(), now, self.seals)?);
        Some(Pending { client, seen, step, now, decided_at: self.nanos() })
    }

    /// A write arrives. Returns whether its conditions hold.
    fn apply(&mut self, write: &Pending, is_answered: bool) -> bool {
        let is_applied = match write.step {
            Step::Take(take) => self.apply_take(take, write),
            Step::Refill(refill) => self.apply_refill(refill, write),
            Step::Deny(_) | Step::Never => false,
        };
        if is_answered {
            self.clients[write.client].image = Some(Image(self.row.clone()));
        }
        is_applied
    }

    fn apply_take(&mut self, take: Take, write: &Pending) -> bool {
        let Some(row) = &mut self.row else { return false };
        let Some(ours) = &mut row.ours else { return false };
        let taken = i64::try_from(take.tokens).unwrap();
        let holds = (taken..=take.at_most).contains(&row.tokens)
            && row.tokens == ours.left
            && ours.refilled >= take.since
            && (row.is_sealed || !self.seals);
        if !holds {
            return false;
        }
        // A late write counts as early as the bucket may have been full.
        let room = i128::from(self.limit.tokens) - i128::from(row.tokens);
        let full_at = ours.refilled.get() + room * self.limit.nanos() / i128::from(self.limit.tokens);
        let at = (i128::from(self.now) * MILLI).min(full_at).max(write.decided_at);
        row.tokens -= taken;
        ours.left -= taken;
        row.last_token = Some(write.now.get());
        self.grants.push(granted(at, take.tokens));
        true
    }

    fn apply_refill(&mut self, refill: Refill, write: &Pending) -> bool {
        let pins = |row: &Option<Row>| {
            row.as_ref().map(|row| {
                let last_refill = if row.ours.is_none() { row.last_refill } else { None };
                (row.tokens, row.ours.map(|ours| ours.refilled), last_refill)
            })
        };
        if pins(&self.row) != pins(&write.seen) {
            return false;
        }
        let old = self.row.take();
        let tokens = i128::from(old.as_ref().map_or(0, |row| row.tokens)) + refill.change;
        let last_token = old.as_ref().and_then(|row| row.last_token);
        self.row = Some(Row {
            tokens: i64::try_from(tokens).unwrap(),
            last_refill: old.as_ref().and_then(|row| row.last_refill),
            last_token: if refill.tokens > 0 { Some(write.now.get()) } else { last_token },
            is_sealed: self.seals || old.is_some_and(|row| row.is_sealed),
            ours: Some(Ours { refilled: refill.until, left: refill.left }),
        });
        self.refills += 1;
        if refill.tokens > 0 {
            // The row was as it was seen, so the write could have arrived at once.
            self.grants.push(granted(write.decided_at, refill.tokens));
        }
        true
    }

    /// The first write of `get_token`.
    fn python_takes(&mut self) -> bool {
        let now = self.now + self.python_ahead;
        let fail_safe =
            now - i64::try_from((self.limit.window.as_millis() / u128::from(self.limit.tokens)).max(1)).unwrap();
        let Some(row) = &mut self.row else {
            let row = Row { tokens: -1, last_refill: None, last_token: Some(now), is_sealed: false, ours: None };
            self.row = Some(row);
            self.python_refills.push(now);
            return true;
        };
        let has_tokens = row.tokens > 0;
        if !has_tokens && row.last_token.is_none_or(|time| time >= fail_safe) {
            return false;
        }
        row.tokens -= 1;
        row.last_token = Some(now);
        self.python_refills.push(now);
        self.grants.push(Grant { at: i128::from(self.now) * MILLI, tokens: 1, is_fail_safe: !has_tokens });
        true
    }

    /// The second write of `get_token`. It sets the tokens to the limit less one, because it takes the time since 1970 for
    /// the time since the last refill.
    fn python_refills(&mut self, number: usize) {
        let now = self.python_refills.swap_remove(number);
        let Some(row) = &mut self.row else { return };
        if !row.is_sealed && row.last_refill.is_none_or(|time| time < now) {
            row.tokens = i64::try_from(self.limit.tokens).unwrap() - 1;
            row.last_refill = Some(now);
        }
    }

    /// A client takes tokens, call by call. Returns its denial if it gets none.
    fn take(&mut self, client: usize, tokens: u64) -> Result<(), Denial> {
        for _ in 0..4 {
            let write = self.ask(client, tokens, false);
            if let Step::Deny(denial) = write.step {
                return Err(denial);
            }
            if self.apply(&write, true) {
                return Ok(());
            }
        }
        panic!("no other client writes: {self:?}");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wait(i64),
    /// A client asks for so many quarters of the limit, and so many tokens more. It looks at the row first, or not.
    Ask(usize, u64, u64, bool),
    Refill(usize),
    /// A write arrives. Its response is lost, or not.
    Arrive(usize, bool),
    PythonTakes,
    PythonRefills(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let any = any::<usize>;
    let wait = prop_oneof![3 => 0..20_i64, 3 => 0..3_000_i64, 1 => 0..200_000_i64];
    let ask = (any(), prop_oneof![3 => Just(0), 1 => 0..=4_u64], 0..4_u64, prop::bool::weighted(0.3));
    prop_oneof![
        4 => wait.prop_map(Event::Wait),
        6 => ask.prop_map(|(client, quarters, tokens, is_fresh)| Event::Ask(client, quarters, tokens, is_fresh)),
        1 => any().prop_map(Event::Refill),
        7 => (any(), prop::bool::weighted(0.8)).prop_map(|(write, is_answered)| Event::Arrive(write, is_answered)),
        4 => Just(Event::PythonTakes),
        2 => any().prop_map(Event::PythonRefills),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    let tokens = prop_oneof![3 => 1..30_u64, 1 => 1..100_000_u64];
    let window = prop_oneof![2 => Just(60_000_u64), 2 => 1_000..10_000_u64, 1 => 1..1_000_000_u64];
    (tokens, window).prop_map(|(tokens, millis)| Limit { tokens, window: Duration::from_millis(millis) })
}

/// Runs a history. With `python`, its clients act, too.
fn run(world: &mut World, events: &[Event], python: bool) {
    for event in events {
        let count = world.clients.len();
        match *event {
            Event::Wait(millis) => world.now += millis,
            Event::Ask(client, quarters, tokens, is_fresh) => {
                let tokens = (world.limit.tokens * quarters / 4 + tokens).clamp(1, world.limit.tokens);
                let write = world.ask(client % count, tokens, is_fresh);
                match write.step {
                    Step::Take(_) | Step::Refill(_) => world.writes.push(write),
                    Step::Deny(_) => world.clients[client % count].image = None,
                    Step::Never => panic!("{tokens} tokens are not more than the limit"),
                }
            }
            Event::Refill(client) => {
                let write = world.ask_refill(client % count);
                world.writes.extend(write);
            }
            Event::Arrive(number, is_answered) if !world.writes.is_empty() => {
                let write = world.writes.swap_remove(number % world.writes.len());
                world.apply(&write, is_answered);
            }
            Event::PythonTakes if python => drop(world.python_takes()),
            Event::PythonRefills(number) if python && !world.python_refills.is_empty() => {
                world.python_refills(number % world.python_refills.len());
            }
            Event::Arrive(..) | Event::PythonTakes | Event::PythonRefills(_) => {}
        }
    }
}

/// No grant exceeds the reference.
fn check_grants(world: &mut World, spread: i64) -> Result<(), TestCaseError> {
    world.grants.sort_by_key(|grant| grant.at);
    let mut reference = Reference::new(world.limit, spread);
    for grant in &world.grants {
        prop_assert!(reference.charge(*grant), "{grant:?} of {:?}", world.grants);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn our_clients_never_exceed_the_limit(
        limit in limit(),
        skew in prop_oneof![Just(0), 0..5_000_i64],
        seals: bool,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World::new(limit, seals, &[0, skew, -skew]);
        run(&mut world, &events, false);
        check_grants(&mut world, 2 * skew)?;
    }

    /// From the moment on at which the row is sealed. What clients of rate-limiter-py take without tokens is paid for.
    #[test]
    fn clients_of_both_kinds_never_exceed_the_limit(
        limit in limit(),
        skew in prop_oneof![Just(0), 0..5_000_i64],
        before in prop::collection::vec(prop_oneof![Just(Event::PythonTakes), any::<usize>().prop_map(Event::PythonRefills)], 0..6),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World::new(limit, true, &[0, skew, -skew]);
        world.python_ahead = -skew;
        run(&mut world, &before, true);
        let seal = world.ask_refill(0).unwrap();
        prop_assert!(world.apply(&seal, true));
        world.grants.clear();
        run(&mut world, &events, true);
        check_grants(&mut world, 2 * skew)?;
    }

    /// Clients with outdated images, one take after the other: a denial is due, but for a nanosecond per refill.
    #[test]
    fn nothing_is_lost(
        limit in limit(),
        seals: bool,
        takes in prop::collection::vec((0..3_usize, 0..4_000_i64, 0..=4_u64, 0..3_u64), 1..80),
    ) {
        let mut world = World::new(limit, seals, &[0, 0, 0]);
        let mut reference = Reference::new(limit, 0);
        for (client, wait, quarters, tokens) in takes {
            world.now += wait;
            let tokens = (limit.tokens * quarters / 4 + tokens).clamp(1, limit.tokens);
            let at = world.nanos();
            match world.take(client, tokens) {
                Ok(()) => prop_assert!(reference.charge(granted(at, tokens))),
                Err(denial) => {
                    reference.advance(at);
                    let lost = world.refills * i128::from(limit.tokens);
                    let wanted = i128::from(tokens) * limit.nanos();
                    prop_assert!(reference.level - lost < wanted, "{denial:?}: {} of {wanted}", reference.level);
                    // The wait that the row asks for is enough, and a millisecond less is too short.
                    world.clients[client].image = None;
                    let denial = world.take(client, tokens).unwrap_err();
                    let wait = i64::try_from(denial.retry_after.as_millis()).unwrap();
                    prop_assert!(wait > 0);
                    world.now += wait - 1;
                    prop_assert!(world.take(client, tokens).is_err());
                    world.now += 1;
                    prop_assert_eq!(world.take(client, tokens), Ok(()));
                    prop_assert!(reference.charge(granted(world.nanos(), tokens)));
                }
            }
        }
    }

    /// No row and no limit makes a computation overflow.
    #[test]
    fn no_row_overflows(
        tokens: i64,
        left: i64,
        refilled in any::<i64>().prop_map(|nanos| EpochNanos::new(i128::from(nanos) * 30)),
        last_token: Option<i64>,
        last_refill: Option<i64>,
        is_ours: bool,
        rate in (1_u64.., 1_u64..).prop_map(|(limit, nanos)| Rate::new(limit, Duration::from_nanos(nanos)).unwrap()),
        wanted: u64,
        now in 0..253_370_764_799_999_i64,
    ) {
        let ours = is_ours.then_some(Ours { refilled, left });
        let row = Row { tokens, last_refill, last_token, is_sealed: false, ours };
        let now = EpochMillis::new(now).unwrap();
        let credit = refill(Some(&row), rate, now, false);
        prop_assert!(credit.is_none_or(|credit| credit.tokens == 0));
        match decide(Some(&row), rate, wanted, now, false) {
            Step::Take(take) => prop_assert!(take.at_most >= tokens && i128::from(wanted) <= i128::from(tokens)),
            Step::Refill(refill) => prop_assert!(refill.left >= 0 && refill.tokens == wanted),
            Step::Deny(denial) => prop_assert!(i128::from(denial.available) < i128::from(wanted)),
            Step::Never => prop_assert!(wanted > 0),
        }
    }
}

const TEN_A_MINUTE: Limit = Limit { tokens: 10, window: Duration::from_mins(1) };

fn time(millis: i64) -> EpochMillis {
    EpochMillis::new(START + millis).unwrap()
}

/// A row of our clients, refilled at [`START`].
fn row(tokens: i64) -> Row {
    let ours = Some(Ours { refilled: EpochNanos::from(time(0)), left: tokens });
    Row { tokens, last_refill: None, last_token: None, is_sealed: false, ours }
}

#[track_caller]
fn check(row: Option<&Row>, tokens: u64, millis: i64, expect: Step) {
    assert_eq!(decide(row, TEN_A_MINUTE.rate(), tokens, time(millis), false), expect, "{tokens} after {millis} ms");
}

fn refills(change: i128, left: i64, until: i64, tokens: u64) -> Step {
    Step::Refill(Refill { change, left, until: EpochNanos::from(time(until)), tokens })
}

fn takes(tokens: u64, at_most: i64) -> Step {
    Step::Take(Take { tokens, at_most, since: EpochNanos::from(time(0)) })
}

fn denies(available: i64, millis: u64) -> Step {
    Step::Deny(Denial { available, retry_after: Duration::from_millis(millis) })
}

#[test]
fn a_missing_row_starts_full() {
    check(None, 3, 0, refills(7, 7, 0, 3));
    check(None, 10, 0, refills(0, 0, 0, 10));
    check(None, 11, 0, Step::Never);
}

#[test]
fn stored_tokens_are_taken_while_the_bucket_is_not_full() {
    check(Some(&row(10)), 1, 0, takes(1, 10));
    check(Some(&row(5)), 5, 30_000, takes(5, 5));
    // A part of a token more would be forfeited.
    check(Some(&row(5)), 5, 30_001, refills(0, 5, 30_001, 5));
    check(Some(&row(10)), 1, 1, refills(-1, 9, 1, 1));
}

#[test]
fn what_has_accrued_is_taken_with_a_refill() {
    check(Some(&row(0)), 1, 5_999, denies(0, 1));
    check(Some(&row(0)), 1, 6_000, refills(0, 0, 6_000, 1));
    // The rest of the second token stays.
    check(Some(&row(0)), 1, 11_000, refills(0, 0, 6_000, 1));
    check(Some(&row(-2)), 1, 12_000, denies(0, 6_000));
    check(Some(&row(-2)), 1, 18_000, refills(2, 0, 18_000, 1));
}

#[test]
fn a_lowered_limit_takes_the_surplus_away() {
    check(Some(&row(50)), 1, 0, refills(-41, 9, 0, 1));
    // Ahead of the clock, so the moment stays.
    check(Some(&row(50)), 1, -5_000, refills(-41, 9, 0, 1));
}

#[test]
fn a_clock_that_is_behind_credits_nothing() {
    check(Some(&row(0)), 1, -60_000, denies(0, 66_000));
    check(Some(&row(2)), 1, -60_000, takes(1, 10));
}

#[test]
fn a_row_of_python_is_adopted() {
    let adopt = |tokens, last_refill, wanted, expect| {
        let row = Row { last_refill, ours: None, ..row(tokens) };
        check(Some(&row), wanted, 12_000, expect);
    };
    adopt(4, Some(START), 5, refills(-3, 1, 12_000, 5));
    adopt(4, None, 4, refills(-4, 0, 12_000, 4));
    adopt(4, Some(START + 90_000), 4, refills(-4, 0, 12_000, 4));
    adopt(4, None, 5, denies(4, 6_000));
    adopt(-1, None, 1, denies(-1, 12_000));
    adopt(9, Some(0), 1, refills(0, 9, 12_000, 1));
}

/// A bucket that was full at the last take of rate-limiter-py does not get back what was taken from it.
#[test]
fn what_python_has_taken_accrues_from_its_last_take() {
    let taken = |left, tokens, last_token| {
        let ours = Some(Ours { refilled: EpochNanos::from(time(0)), left });
        Row { tokens, last_token: Some(START + last_token), ours, ..row(tokens) }
    };
    check(Some(&taken(10, 0, 600_000)), 1, 600_000, denies(0, 6_000));
    check(Some(&taken(10, 0, 600_000)), 1, 606_000, refills(0, 0, 606_000, 1));
    check(Some(&taken(4, 1, 600_000)), 7, 600_000, refills(-1, 0, 600_000, 7));
    check(Some(&taken(4, 1, 600_000)), 8, 600_000, denies(7, 6_000));
    // It was not full, so nothing is forfeited.
    check(Some(&taken(4, 1, 12_000)), 3, 12_000, refills(-1, 0, 12_000, 3));
    // The time of its take is not known.
    check(Some(&Row { last_token: None, ..taken(4, 1, 0) }), 8, 600_000, denies(7, 6_000));
    // What it has set is what there is.
    check(Some(&taken(4, 9, 12_000)), 9, 0, refills(-9, 0, 0, 9));
}

#[test]
fn a_row_is_sealed_before_stored_tokens_are_taken() {
    let (rate, now) = (TEN_A_MINUTE.rate(), time(0));
    let sealed = Row { is_sealed: true, ..row(5) };
    assert_eq!(decide(Some(&sealed), rate, 1, now, true), takes(1, 10));
    assert_eq!(decide(Some(&sealed), rate, 1, now, false), takes(1, 10));
    assert_eq!(decide(Some(&row(5)), rate, 1, now, true), refills(-1, 4, 0, 1));
    assert_eq!(refill(Some(&sealed), rate, now, true), None);
    assert!(refill(Some(&row(5)), rate, now, true).is_some());
}

#[test]
fn a_refill_writes_only_what_changes() {
    let refilled = |row: Option<&Row>, millis| refill(row, TEN_A_MINUTE.rate(), time(millis), false);
    let of = |change, left, until| Some(Refill { change, left, until: EpochNanos::from(time(until)), tokens: 0 });
    assert_eq!(refilled(None, 0), of(10, 10, 0));
    assert_eq!(refilled(Some(&row(5)), 5_999), None);
    assert_eq!(refilled(Some(&row(5)), 7_000), of(1, 6, 6_000));
    assert_eq!(refilled(Some(&row(-5)), 7_000), of(1, -4, 6_000));
    assert_eq!(refilled(Some(&row(5)), 600_000), of(5, 10, 600_000));
    assert_eq!(refilled(Some(&row(10)), 600_000), None);
    assert_eq!(refilled(Some(&Row { ours: None, ..row(5) }), 0), of(0, 5, 0));
}

/// Three tokens a second: a third of a second is no whole number of nanoseconds.
#[test]
fn the_moment_of_a_refill_is_rounded_up() {
    let rate = Rate::new(3, Duration::from_secs(1)).unwrap();
    let until = EpochNanos::new(EpochNanos::from(time(0)).get() + 333_333_334);
    assert_eq!(refill(Some(&row(0)), rate, time(400), false), Some(Refill { change: 1, left: 1, until, tokens: 0 }));
}

#[test]
fn the_largest_numbers_fill_a_bucket() {
    let rate = Rate::new(u64::MAX, Duration::MAX).unwrap();
    let now = EpochMillis::new(253_370_764_799_999).unwrap();
    for tokens in [5, i64::MIN] {
        let ours = Some(Ours { refilled: EpochNanos::new(0), left: tokens });
        let row = Row { last_token: Some(0), ours, ..row(tokens) };
        let change = i128::from(i64::MAX) - 1 - i128::from(tokens);
        let full = Refill { change, left: i64::MAX - 1, until: EpochNanos::from(now), tokens: 1 };
        assert_eq!(decide(Some(&row), rate, 1, now, false), Step::Refill(full));
    }
    let ours = Some(Ours { refilled: EpochNanos::from(now), left: i64::MAX });
    let emptied = Row { ours, ..row(i64::MIN) };
    let Step::Deny(denial) = decide(Some(&emptied), rate, i64::MAX.unsigned_abs(), now, false) else { panic!() };
    assert_eq!((denial.available, denial.retry_after.as_secs() / 31_557_600), (i64::MIN, 584));
}

#[test]
fn a_rate_needs_a_limit_and_a_window() {
    assert_eq!(Rate::new(0, Duration::from_secs(1)), None);
    assert_eq!(Rate::new(1, Duration::ZERO), None);
    assert_eq!(
        Rate::new(u64::MAX, Duration::MAX),
        Rate::new(i64::MAX.unsigned_abs(), Duration::from_nanos(u64::MAX / 2))
    );
}
