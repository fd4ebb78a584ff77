//! Random histories: whatever clients do at the same time, no rule is broken.

use std::collections::BTreeSet;

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tidegate_domain::{
    admission::{self, Outcome, Remedy},
    bucket::Shard,
    state::Terms,
    tokens::Millitokens,
};

use crate::{
    items::{Amounts, LIMITS, any_magnitude, any_terms, limit},
    python::{PythonClient, Version},
    reference::Reference,
    rust::{DENIAL_LIFETIME, Fate, Reply, RustClient, Write},
    table::{Fault, Rule, World},
};

/// Which clients use the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    Rust,
    /// Also zae-limiter 0.17.
    Recent,
    /// Also zae-limiter 0.10.
    All,
}

/// What happens next. Clients, leases and writes are taken modulo what there is.
#[derive(Clone, Debug)]
enum Event {
    Wait(i64),
    /// A client's clock is set, to so many milliseconds ahead.
    SetClock(usize, i64),
    /// A caller asks for parts of what is available on a shard: quarters, and millitokens beyond that.
    Ask(usize, u32, [Option<(i64, i64)>; 3]),
    /// A client makes its next call, or receives a response.
    Act(usize, Fate),
    Cancel(usize),
    /// A lease is given back.
    Refund(usize, usize),
    /// A lease is charged more for one limit, or less.
    Adjust(usize, usize, usize, i64),
    SetLimits(bool, bool, usize, Terms),
    Double(Fate),
    /// A late write arrives.
    Arrive(usize),
}

#[derive(Clone, Debug)]
struct History {
    clients: Clients,
    terms: Vec<Terms>,
    shards: u32,
    skew: i64,
    units: i64,
    events: Vec<Event>,
}

const RUST: usize = 3;

fn event() -> impl Strategy<Value = Event> {
    let wait = prop_oneof![2 => 0..20_i64, 3 => 1..3_000_i64, 1 => 1..90_000_i64, 1 => any_magnitude(30)];
    let part = (prop_oneof![1 => Just(0), 4 => 1..=4_i64, 1 => Just(5)], prop_oneof![3 => Just(0), 1 => -1..=1_i64]);
    let part = prop::option::weighted(0.8, part);
    let fate = || prop_oneof![8 => Just(Fate::Answered), 1 => Just(Fate::ResponseLost), 1 => Just(Fate::Late)];
    let change = (any_magnitude(20), any::<bool>()).prop_map(|(tokens, gives)| if gives { -tokens } else { tokens });
    let terms = any_terms().prop_map(|terms| terms[0]);
    let index = any::<usize>;
    prop_oneof![
        5 => wait.prop_map(Event::Wait),
        8 => (index(), any::<u32>(), [part.clone(), part.clone(), part]).prop_map(|(client, draw, parts)| Event::Ask(client, draw, parts)),
        24 => (index(), fate()).prop_map(|(client, fate)| Event::Act(client, fate)),
        1 => (index(), -3_000..3_000_i64).prop_map(|(client, skew)| Event::SetClock(client, skew)),
        1 => index().prop_map(Event::Cancel),
        2 => (index(), index()).prop_map(|(client, lease)| Event::Refund(client, lease)),
        1 => (index(), index(), 0..3_usize, change)
            .prop_map(|(client, lease, limit, change)| Event::Adjust(client, lease, limit, change)),
        1 => (any::<bool>(), any::<bool>(), 0..3_usize, terms)
            .prop_map(|(all, marks, limit, terms)| Event::SetLimits(all, marks, limit, terms)),
        1 => fate().prop_map(Event::Double),
        1 => index().prop_map(Event::Arrive),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let clients = prop_oneof![Just(Clients::Rust), Just(Clients::Recent), Just(Clients::All)];
    let skew = prop_oneof![Just(0), 0..5_000_i64];
    let units = prop_oneof![4 => Just(1_000), 1 => 0..5_i64];
    let shards = prop_oneof![Just(1), Just(2), Just(4)];
    let events = prop::collection::vec(event(), 1..150);
    (clients, any_terms(), shards, skew, units, events).prop_map(|(clients, terms, shards, skew, units, events)| {
        History { clients, terms, shards, skew, units, events }
    })
}

/// The state after a history.
struct End {
    world: World,
    rust: Vec<RustClient>,
    python: Vec<PythonClient>,
}

/// Runs a history. With equal clocks, no client changes the terms.
fn run(history: &History, clients: Clients, equal_clocks: bool) -> End {
    let skew = if equal_clocks { 0 } else { history.skew };
    let mut world = World::new(&history.terms, history.shards);
    for item in world.items.values_mut() {
        item.state.limits.get_mut("wcu").unwrap().tokens = Millitokens::new(history.units * 1_000);
    }
    (0..history.shards).for_each(|shard| world.settle(Shard::new(shard)));
    let mut rust: Vec<_> = [0, skew, -skew].map(RustClient::new).into();
    let python = [(Version::V17, 0), (Version::V17, -skew), (Version::V10, 0), (Version::V10, -skew)];
    let mut python: Vec<_> = python.map(|(version, skew)| PythonClient::new(version, skew)).into();
    python.truncate(match clients {
        Clients::Rust => 0,
        Clients::Recent => 2,
        Clients::All => 4,
    });
    let mut late: Vec<(u64, Write)> = Vec::new();
    let all = RUST + python.len();
    for (operation, event) in (1..).zip(history.events.iter().cloned()) {
        match event {
            Event::Wait(millis) => world.now += millis,
            Event::SetClock(client, skew) if !equal_clocks => match client % all {
                client @ 0..RUST => rust[client].skew = skew,
                client => python[client - RUST].skew = skew,
            },
            Event::Ask(client, draw, parts) => {
                let shards = u32::try_from(world.items.len()).unwrap();
                let wanted = amounts(&world, Shard::new(draw % shards), parts);
                match client % all {
                    client @ 0..RUST => rust[client].ask(Shard::new(draw % shards), &wanted),
                    client if python[client - RUST].is_idle() => {
                        python[client - RUST].acquire(&mut world, draw, &wanted);
                    }
                    _ => {}
                }
            }
            Event::Act(client, fate) => match client % all {
                client @ 0..RUST => late.extend(rust[client].act(&mut world, operation, fate)),
                client => python[client - RUST].act(&mut world),
            },
            Event::Cancel(client) => rust[client % RUST].cancel(),
            Event::Refund(client, lease) => match client % all {
                client @ 0..RUST => {
                    let client = &mut rust[client];
                    if !client.leases.is_empty() {
                        let (shard, amounts) = client.leases.swap_remove(lease % client.leases.len());
                        client.give(shard, amounts.into_iter().map(|(limit, amount)| (limit, -amount)).collect());
                    }
                }
                client => {
                    let client = &mut python[client - RUST];
                    if !client.leases.is_empty() {
                        let (shard, amounts, image) = client.leases.swap_remove(lease % client.leases.len());
                        for (limit, amount) in amounts {
                            client.adjust(&mut world, (shard, &image), &limit, -amount);
                        }
                    }
                }
            },
            Event::Adjust(client, lease, at, change) => {
                let named = limit(LIMITS[at % history.terms.len()]);
                match client % all {
                    client @ 0..RUST => {
                        let client = &mut rust[client];
                        let lease = client.leases.get(lease % client.leases.len().max(1)).map(|(shard, _)| *shard);
                        if let Some(shard) = lease {
                            client.give(shard, [(named, change)].into());
                        }
                    }
                    client => {
                        let client = &python[client - RUST];
                        if let Some((shard, _, image)) = client.leases.get(lease % client.leases.len().max(1)) {
                            client.adjust(&mut world, (*shard, image), &named, change);
                        }
                    }
                }
            }
            Event::SetLimits(all, marks, at, terms) if !equal_clocks => {
                let shards = if all { u32::MAX } else { 1 };
                world.set_limits(shards.min(64), all && marks, at % history.terms.len(), terms);
            }
            Event::Double(fate) => {
                if let Some(plan) = world.doubling().filter(|plan| plan.shards.get() <= 8) {
                    let write = Write::Split(world.items.clone(), plan);
                    if fate == Fate::Late {
                        late.push((operation, write));
                    } else {
                        write.apply(&mut world, operation);
                    }
                }
            }
            Event::Arrive(at) if !late.is_empty() => {
                let (operation, write) = late.swap_remove(at % late.len());
                write.apply(&mut world, operation);
            }
            Event::SetClock(..) | Event::SetLimits(..) | Event::Arrive(_) => {}
        }
    }
    End { world, rust, python }
}

/// Parts of what is available on a shard.
fn amounts(world: &World, shard: Shard, parts: [Option<(i64, i64)>; 3]) -> Amounts {
    let state = &world.items[&shard].state;
    let parts = LIMITS.iter().zip(parts).filter_map(|(name, part)| {
        let (limit, (quarters, beyond)) = (limit(name), part?);
        let of = state.limits.get(&limit)?;
        let whole = admission::available(state, &limit, of, world.clock(0)).get().max(0);
        Some((limit, (whole / 4 * quarters + whole % 4 * quarters / 4 + beyond).max(0)))
    });
    parts.collect()
}

/// Asks for amounts of a shard until they are granted. Waits for the announced time after each denial.
fn wait_for(world: &mut World, client: &mut RustClient, shard: Shard, wanted: &Amounts) {
    let requests = [wanted.iter().map(|(limit, amount)| (limit.clone(), Millitokens::new(*amount))).collect()];
    client.restart();
    // What was seen of the shard may be outdated, for longer if the clock was set back. Then the answer is, too. A fresh
    // one is exact.
    let mut is_promised = false;
    for operation in 0..9 {
        client.ask(shard, wanted);
        let mut calls = 0;
        while !client.is_idle() && calls < 6 {
            client.act(world, u64::MAX - operation, Fate::Answered);
            calls += 1;
        }
        let (shortages, is_fresh) = match client.replies.pop() {
            Some(Reply::Granted) => return,
            Some(Reply::Denied { shortages, is_fresh }) => (shortages, is_fresh),
            _ => break,
        };
        let wait = match shortages.iter().map(|shortage| shortage.remedy).max() {
            Some(Remedy::Wait(wait)) => i64::try_from(wait.as_millis()).unwrap(),
            // The share has grown since it was seen.
            _ if !is_fresh => DENIAL_LIFETIME + 1,
            _ => break,
        };
        let is_granted = |wait| {
            let now = world.clock(client.skew + wait);
            admission::decide(&world.items[&shard].state, &requests, now).outcomes[0] == Outcome::Granted
        };
        if is_promised || is_fresh && (is_granted(wait - 1) || !is_granted(wait)) {
            break;
        }
        is_promised = is_fresh;
        world.now += wait;
    }
    world.fail(Rule::Waits, (shard, wanted, &client));
}

/// Tests that no shard denies a request that fits a share for ever.
fn test_waits(End { world, rust, .. }: &mut End) {
    let mut broken = Vec::new();
    for (at, shard) in world.items.keys().enumerate() {
        let state = &world.items[shard].state;
        let shares = state.divided().map(|(limit, of)| (limit.clone(), state.share(limit, of).capacity.get()));
        let wanted: Amounts =
            shares.map(|(limit, share)| (limit, share - share / 2 * i64::from(at % 2 == 1))).collect();
        let (mut world, mut client) = (world.clone(), rust[at % RUST].clone());
        wait_for(&mut world, &mut client, *shard, &wanted);
        broken.extend(world.broken);
    }
    world.broken = broken;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// No [`Rule`] is broken, and Python clients grant too much for known reasons only.
    #[test]
    fn rust_clients_follow_the_common_rule(history in history()) {
        let mut end = run(&history, history.clients, false);
        test_waits(&mut end);
        prop_assert!(end.world.broken.is_empty(), "{:?}", end.world.broken[0]);
        let expect: &[Fault] = match history.clients {
            Clients::Rust => &[],
            Clients::Recent => &[Fault::MovesBack, Fault::OldTerms, Fault::StacksUp, Fault::TakesTwice],
            Clients::All => return Ok(()),
        };
        let faults = end.world.faults;
        prop_assert!(faults.iter().all(|fault| expect.contains(fault)), "{faults:?}");
    }

    /// In any interval, Rust clients get no more than what was stored, one capacity, what accrues, and what is given back.
    /// The interval begins where the first of its writes was decided on.
    #[test]
    fn grants_are_bounded_in_any_interval(history in history()) {
        let World { journal, broken, .. } = run(&history, Clients::Rust, true).world;
        prop_assert!(broken.is_empty(), "{:?}", broken[0]);
        for (name, terms) in LIMITS.iter().zip(&history.terms) {
            let name = limit(name);
            let entries: Vec<_> = journal.iter().filter(|entry| entry.limit == name).collect();
            for (first, from) in entries.iter().enumerate() {
                let (mut granted, mut given, mut start) = (0, 0, from.at);
                for entry in &entries[first..] {
                    granted += entry.taken.max(0);
                    given += (-entry.taken).max(0);
                    start = start.min(entry.decided);
                    let most = from.stored + given + Reference::whole(*terms, entry.at - start);
                    prop_assert!(granted <= most, "{name}: {granted} of {most} from {from:?} to {entry:?}");
                }
            }
        }
    }
}

/// The rules mean nothing for a write or a fault that no history contains.
#[test]
fn histories_contain_all_kinds_of_writes_and_faults() {
    let mut runner = TestRunner::deterministic();
    let (mut written, mut faults) = (Vec::new(), BTreeSet::new());
    for _ in 0..200 {
        let history = history().new_tree(&mut runner).unwrap().current();
        let end = run(&history, Clients::All, false);
        written.extend(end.rust.iter().flat_map(|client| &client.written).copied());
        written.extend(end.python.iter().flat_map(|client| &client.granted).copied());
        faults.extend(end.world.faults);
    }
    let kinds = [
        "speculative write",
        "take",
        "take that clamps",
        "take from several shards",
        "adjustment",
        "fast",
        "slow",
        "retry",
    ];
    for kind in kinds {
        let times = written.iter().filter(|written| **written == kind).count();
        assert!(times >= 5, "{kind}: {times}");
    }
    assert_eq!(faults.len(), 6, "{faults:?}");
}
