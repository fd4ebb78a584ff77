//! Random histories of clients and keeper: whatever meets, the keeper does no harm.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tidegate_domain::{bucket::Shard, state::Terms};

use crate::{
    clients::{Client, Scope, Version, drain, set_limits},
    keeper::{Fate, Keeper, Processes},
    table::{Amounts, LIMITS, World, any_magnitude, any_terms, limit},
    writes::Write,
};

/// What happens next; shards and writes are taken modulo what there is.
#[derive(Clone, Debug)]
enum Event {
    Wait(i64),
    /// So many quarters of what exact buckets hold, by limit, in so many acquires; none asks for nothing.
    Acquire(usize, u32, [Option<i64>; 3], i64),
    /// Many small acquires.
    Burst(usize, u32, usize),
    Drain(u32),
    Adjust(usize, u32, usize, i64),
    SetLimits(Scope, usize, Terms),
    Double(usize),
    /// A shard expires and is removed.
    Remove(u32),
    /// A batch: the number of new records, and of records before them that are delivered again.
    Batch(usize, usize, Vec<Fate>),
    Repair(Vec<Fate>),
    Arrive(usize, bool),
}

#[derive(Clone, Debug)]
struct History {
    terms: Vec<Terms>,
    ttl: Option<i64>,
    skew: i64,
    /// The part of a partition that a shard may take, in percent.
    percent: u8,
    events: Vec<Event>,
}

/// Acquires and batches, as on most days.
fn calm_event() -> impl Strategy<Value = Event> {
    let wait = prop_oneof![1 => any_magnitude(10), 4 => 1..3_000_i64, 3 => 1..90_000_i64];
    let quarters = prop_oneof![1 => Just(None), 3 => (0..=5_i64).prop_map(Some)];
    let records = prop_oneof![1 => Just(usize::MAX), 1 => 1..4_usize];
    let again = prop_oneof![3 => Just(0), 1 => 0..9_usize];
    prop_oneof![
        5 => wait.prop_map(Event::Wait),
        4 => (0..CLIENTS, any::<u32>(), [quarters.clone(), quarters.clone(), quarters])
            .prop_map(|(client, draw, quarters)| Event::Acquire(client, draw, quarters, 1)),
        2 => any::<u32>().prop_map(Event::Drain),
        4 => (records, again, fates()).prop_map(|(records, again, fates)| Event::Batch(records, again, fates)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Event::Arrive(at, again)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let change = (any_magnitude(24), any::<bool>()).prop_map(|(tokens, gives)| if gives { tokens } else { -tokens });
    let scope = prop_oneof![Just(Scope::Zero), Just(Scope::All), Just(Scope::Marked)];
    prop_oneof![
        12 => calm_event(),
        1 => any_magnitude(32).prop_map(Event::Wait),
        1 => (0..CLIENTS, any::<u32>(), 5..20_usize).prop_map(|(client, draw, times)| Event::Burst(client, draw, times)),
        1 => (0..CLIENTS, any::<u32>(), 0..3_usize, change)
            .prop_map(|(client, shard, limit, change)| Event::Adjust(client, shard, limit, change)),
        1 => (scope, 0..3_usize, any_terms().prop_map(|terms| terms[0]))
            .prop_map(|(scope, limit, terms)| Event::SetLimits(scope, limit, terms)),
        1 => (0..CLIENTS).prop_map(Event::Double),
        1 => any::<u32>().prop_map(Event::Remove),
        2 => fates().prop_map(Event::Repair),
    ]
}

/// A refill that pays, and something before the batch and after it that its image does not show.
fn stale_refill() -> impl Strategy<Value = Vec<Event>> {
    let waits = [1..90_000_i64, 0..2_500, 0..2_500].prop_map(|waits| waits.map(Event::Wait));
    let between = [calm_event().boxed(), event().boxed()];
    (waits, 1..=4_i64, any::<u32>(), between, 60..67_usize, fates(), any::<bool>()).prop_map(
        |([idle, lag, more], quarters, draw, [hidden, late], records, fates, again)| {
            // A refill must credit 40 of them.
            let acquire = Event::Acquire(0, draw, [Some(quarters); 3], 64);
            let batch = Event::Batch(records, 0, fates);
            vec![
                Event::Batch(usize::MAX, 0, vec![Fate::Lost]),
                idle,
                acquire,
                lag,
                hidden,
                more,
                batch,
                late,
                Event::Arrive(0, again),
            ]
        },
    )
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate =
        prop_oneof![4 => Just(Fate::Written), 1 => Just(Fate::Twice), 2 => Just(Fate::Late), 1 => Just(Fate::Lost)];
    prop::collection::vec(fate, 1..4)
}

fn history() -> impl Strategy<Value = History> {
    let skew = prop_oneof![Just(0), 0..5_000_i64];
    let ttl = prop_oneof![2 => Just(None), 1 => (5..1_000_i64).prop_map(Some)];
    let percent = prop_oneof![Just(1_u8), Just(80)];
    let events = prop_oneof![
        prop::collection::vec(stale_refill(), 1..9).prop_map(|rounds| rounds.concat()),
        prop::collection::vec(event(), 1..90),
    ];
    (any_terms(), ttl, skew, percent, events).prop_map(|(terms, ttl, skew, percent, events)| History {
        terms,
        ttl,
        skew,
        percent,
        events,
    })
}

const CLIENTS: usize = 5;

/// Runs a history; late writes arrive or are lost.
fn run(history: &History, processes: Processes, late_writes_arrive: bool) -> (World, Keeper) {
    let (ahead, behind) = (history.skew, -history.skew);
    let clients =
        [(Version::V17, 0), (Version::V17, ahead), (Version::V17, behind), (Version::V10, 0), (Version::V10, behind)];
    let mut clients: [Client; CLIENTS] = clients.map(|(version, skew)| Client::new(version, skew));
    let mut keeper = Keeper::new(processes, history.percent);
    let mut world = World::new(&history.terms, 1);
    world.ttl = history.ttl;
    for event in history.events.iter().cloned() {
        let shards: Vec<_> = world.items.keys().copied().collect();
        let drawn = |draw: u32| {
            shards.get(usize::try_from(draw).unwrap() % shards.len().max(1)).copied().unwrap_or(Shard::ZERO)
        };
        match event {
            Event::Wait(millis) => world.now += millis,
            Event::Acquire(client, draw, quarters, times) => {
                let client = &mut clients[client];
                let mut wanted = parts(&world, Shard::new(draw % client.known), quarters);
                for tokens in wanted.values_mut() {
                    *tokens /= times;
                }
                (0..times).for_each(|_| _ = client.acquire(&mut world, draw, &wanted));
            }
            Event::Burst(client, draw, times) => {
                let small = [(limit(LIMITS[0]), 1)].into();
                (0..times).for_each(|_| _ = clients[client].acquire(&mut world, draw, &small));
            }
            Event::Drain(draw) => drain(&mut world, drawn(draw)),
            Event::Adjust(client, draw, at, given) => {
                clients[client].adjust(&mut world, drawn(draw), &limit(LIMITS[at]), given);
            }
            Event::SetLimits(scope, at, terms) => set_limits(&mut world, scope, at, terms),
            Event::Double(client) => drop(clients[client].double(&mut world, Shard::ZERO)),
            Event::Remove(draw) => world.client_put(drawn(draw), None, &Amounts::new()),
            Event::Batch(records, again, fates) => {
                let batch = world.deliver(records, again);
                keeper.handle(&mut world, batch, &fates);
            }
            Event::Repair(fates) => keeper.repair(&mut world, &fates),
            Event::Arrive(at, again) if late_writes_arrive => keeper.arrive(&mut world, at, again),
            Event::Arrive(..) => {}
        }
    }
    (world, keeper)
}

/// So many quarters of what the exact buckets of a shard hold, or of the capacities if it is missing.
fn parts(world: &World, shard: Shard, quarters: [Option<i64>; 3]) -> Amounts {
    let limits = LIMITS.iter().zip(&world.config).zip(quarters);
    let parts = limits.filter_map(|((name, terms), quarters)| {
        let whole = world.exact.held(shard, &limit(name), world.now).unwrap_or(terms.capacity.get()).max(0);
        Some((limit(name), i64::try_from(i128::from(whole) * i128::from(quarters?) / 4).unwrap()))
    });
    parts.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    /// No [`Rule`](crate::table::Rule) is broken, whichever process handles a batch.
    #[test]
    fn the_keeper_does_no_harm(history in history()) {
        for processes in Processes::ALL {
            let (world, _) = run(&history, processes, true);
            prop_assert!(world.faults.is_empty(), "{processes:?}: {:?}", world.faults[0]);
        }
    }
}

proptest! {
    /// A decision depends on the images, the batch, the time and the policy. So it does not matter who decides.
    #[test]
    fn any_process_decides_the_same(history in history()) {
        let [one, others @ ..] = Processes::ALL.map(|processes| run(&history, processes, false).0);
        for other in others {
            prop_assert_eq!((&other.items, &other.stream), (&one.items, &one.stream));
        }
    }
}

/// The rules mean nothing for a kind of write that no history contains.
#[test]
fn histories_contain_all_kinds_of_writes() {
    let mut runner = TestRunner::deterministic();
    let histories = (0..500).map(|_| history().new_tree(&mut runner).unwrap().current());
    let written: Vec<_> = histories.flat_map(|history| run(&history, Processes::One, true).1.written).collect();
    for kind in Write::KINDS {
        let times = written.iter().filter(|written| **written == kind).count();
        assert!(times >= 5, "{kind}: {times}");
    }
}
