//! Random histories: whatever clients do at the same time, no rule is broken.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::{
    fungible::{EpochNanos, Ours, Rate, Row, Step, decide, refill},
    time::EpochMillis,
};

use crate::{
    Limit,
    reference::{Reference, granted},
    world::World,
};

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

    /// While only rate-limiter-py takes, our refills follow the exact bucket to within two limits, however seldom they are.
    #[test]
    fn debt_follows_the_exact_bucket(
        limit in limit(),
        waits in prop::collection::vec((prop_oneof![3 => 0..400_i64, 1 => 0..60_000_i64], 1..4_usize), 1..150),
        refill_every in 1..60_usize,
    ) {
        let mut world = World::new(limit, true, &[0]);
        let seal = world.ask_refill(0).unwrap();
        world.apply(&seal, true);
        for (number, (wait, takes)) in waits.into_iter().enumerate() {
            world.now += wait;
            for _ in 0..takes {
                world.python_takes();
            }
            if number % refill_every == 0
                && let Some(write) = world.ask_refill(0)
            {
                prop_assert!(world.apply(&write, true));
            }
        }
        let mut reference = Reference::new(limit, 0);
        for grant in &world.grants {
            reference.charge(*grant);
        }
        reference.advance(world.nanos());
        let exact = reference.level.div_euclid(limit.nanos());
        let stored = world.row.as_ref().unwrap().tokens;
        let available = world.ask_refill(0).map_or(stored, |write| match write.step {
            Step::Refill(refill) => refill.left,
            other => panic!("{other:?}"),
        });
        let least = exact - 2 * i128::from(limit.tokens) - world.refills;
        prop_assert!(i128::from(available) >= least, "{available} of {exact}");
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
