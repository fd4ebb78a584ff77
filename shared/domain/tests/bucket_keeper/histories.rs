//! Random histories of clients and keeper: whatever meets, the keeper does no harm.

use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tidegate_domain::{bucket::Shard, state::Terms};

use crate::{
    clients::{Client, Scope, Version, set_limits},
    keeper::{Fate, Keeper, Processes},
    table::{Amounts, LIMITS, World, any_magnitude, any_terms, drain, limit},
    writes::Write,
};

/// What happens next; clients, shards and writes are taken modulo what there is.
#[derive(Clone, Debug)]
enum Event {
    Wait(i64),
    /// An acquire, of so many quarters of what exact buckets hold, by limit; none asks for nothing.
    Acquire(usize, u32, [Option<i64>; 3]),
    /// Many small acquires.
    Burst(usize, u32, usize),
    /// The fast path takes everything from a shard.
    Drain(u32),
    Adjust(usize, u32, usize, i64),
    SetLimits(Scope, usize, Terms),
    Double(usize),
    /// A shard expires and is removed.
    Remove(u32),
    Batch {
        records: usize,
        again: usize,
        fates: Vec<Fate>,
    },
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

fn event() -> impl Strategy<Value = Event> {
    let client = 0..CLIENTS;
    let wait = prop_oneof![3 => any_magnitude(10), 6 => 1..4_000_i64, 2 => 1..60_000_i64, 1 => any_magnitude(32)];
    let quarters = prop_oneof![1 => Just(None), 3 => (0..=5_i64).prop_map(Some)];
    let change = (any_magnitude(24), any::<bool>()).prop_map(|(tokens, gives)| if gives { tokens } else { -tokens });
    let scope = prop_oneof![Just(Scope::Zero), Just(Scope::All), Just(Scope::Marked)];
    let records = prop_oneof![3 => Just(usize::MAX), 1 => 0..6_usize];
    let again = prop_oneof![3 => Just(0), 1 => 0..9_usize];
    prop_oneof![
        10 => wait.prop_map(Event::Wait),
        8 => (client.clone(), any::<u32>(), [quarters.clone(), quarters.clone(), quarters])
            .prop_map(|(client, draw, quarters)| Event::Acquire(client, draw, quarters)),
        1 => (client.clone(), any::<u32>(), 5..20_usize).prop_map(|(client, draw, times)| Event::Burst(client, draw, times)),
        4 => any::<u32>().prop_map(Event::Drain),
        2 => (client.clone(), any::<u32>(), 0..3_usize, change)
            .prop_map(|(client, shard, limit, change)| Event::Adjust(client, shard, limit, change)),
        1 => (scope, 0..3_usize, any_terms().prop_map(|terms| terms[0]))
            .prop_map(|(scope, limit, terms)| Event::SetLimits(scope, limit, terms)),
        1 => client.prop_map(Event::Double),
        1 => any::<u32>().prop_map(Event::Remove),
        10 => (records, again, fates()).prop_map(|(records, again, fates)| Event::Batch { records, again, fates }),
        3 => fates().prop_map(Event::Repair),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Event::Arrive(at, again)),
    ]
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
    let events = prop::collection::vec(event(), 1..80);
    (any_terms(), ttl, skew, percent, events).prop_map(|(terms, ttl, skew, percent, events)| History {
        terms,
        ttl,
        skew,
        percent,
        events,
    })
}

const CLIENTS: usize = 5;

fn clients(skew: i64) -> [Client; CLIENTS] {
    let behind = -skew;
    [
        Client::new(Version::V17, 0),
        Client::new(Version::V17, skew),
        Client::new(Version::V17, behind),
        Client::new(Version::V10, 0),
        Client::new(Version::V10, behind),
    ]
}

/// Runs a history, with late writes or with such as never arrive.
fn run(history: &History, processes: Processes, late_writes_arrive: bool) -> (World, Keeper) {
    let mut world = World::new(&history.terms);
    world.ttl = history.ttl;
    let mut clients = clients(history.skew);
    let mut keeper = Keeper::new(processes, history.percent);
    for event in &history.events {
        match event {
            Event::Batch { records, again, fates } => {
                let batch = world.deliver(*records, *again);
                keeper.handle(&mut world, batch, fates);
            }
            Event::Repair(fates) => keeper.repair(&mut world, fates),
            Event::Arrive(at, again) if late_writes_arrive => keeper.arrive(&mut world, *at, *again),
            Event::Arrive(..) => {}
            other => clients_do(&mut world, &mut clients, other),
        }
    }
    (world, keeper)
}

fn clients_do(world: &mut World, clients: &mut [Client; CLIENTS], event: &Event) {
    let drawn = |world: &World, draw: u32| {
        let shards: Vec<_> = world.items.keys().copied().collect();
        shards.get(usize::try_from(draw).unwrap() % shards.len().max(1)).copied().unwrap_or(Shard::ZERO)
    };
    match event {
        Event::Wait(millis) => world.now += millis,
        Event::Acquire(client, draw, quarters) => {
            let client = &mut clients[*client];
            let wanted = parts(world, Shard::new(draw % client.known), quarters);
            client.acquire(world, *draw, &wanted);
        }
        Event::Burst(client, draw, times) => {
            let small = [(limit(LIMITS[0]), 1)].into();
            for _ in 0..*times {
                clients[*client].acquire(world, *draw, &small);
            }
        }
        Event::Drain(draw) => drain(world, drawn(world, *draw)),
        Event::Adjust(client, draw, name, given) => {
            let shard = drawn(world, *draw);
            clients[*client].adjust(world, shard, &limit(LIMITS[*name]), *given);
        }
        Event::SetLimits(scope, name, terms) => {
            let limit = limit(LIMITS[*name]);
            if world.config.contains_key(&limit) {
                set_limits(world, *scope, &limit, *terms);
            }
        }
        Event::Double(client) => drop(clients[*client].double(world, Shard::ZERO)),
        Event::Remove(draw) => {
            let shard = drawn(world, *draw);
            world.client_put(shard, None, &Amounts::new());
        }
        Event::Batch { .. } | Event::Repair(_) | Event::Arrive(..) => {}
    }
}

/// So many quarters of what the exact buckets of a shard hold, or of its shares if it is missing.
fn parts(world: &World, shard: Shard, quarters: &[Option<i64>; 3]) -> Amounts {
    let of = |(name, quarters): (&&'static str, &Option<i64>)| {
        let limit = limit(name);
        let whole = world.exact.held(shard, &limit, world.now);
        let whole = whole.or_else(|| Some(world.config.get(&limit)?.capacity.get()))?.max(0);
        Some((limit, i64::try_from(i128::from(whole) * i128::from((*quarters)?) / 4).unwrap()))
    };
    LIMITS.iter().zip(quarters).filter_map(of).collect()
}

proptest! {
    /// No [`Rule`](crate::table::Rule) is broken, whichever process handles a batch.
    #[test]
    fn the_keeper_does_no_harm(history in history()) {
        for processes in Processes::ALL {
            let (world, _) = run(&history, processes, true);
            prop_assert!(world.faults.is_empty(), "{processes:?}: {:?}", world.faults[0]);
        }
    }

    /// A decision depends on the images, the batch, the time and the policy. So it does not matter who decides.
    #[test]
    fn any_process_decides_the_same(history in history()) {
        let [one, others @ ..] = Processes::ALL.map(|processes| run(&history, processes, false).0);
        for other in others {
            prop_assert_eq!(&other.items, &one.items);
            prop_assert_eq!(&other.stream, &one.stream);
        }
    }
}

/// The rules mean nothing for a kind of write that no history contains.
#[test]
fn histories_contain_all_kinds_of_writes() {
    let mut runner = TestRunner::deterministic();
    let mut written = Vec::new();
    for _ in 0..500 {
        let history = history().new_tree(&mut runner).unwrap().current();
        written.extend(run(&history, Processes::One, true).1.written);
    }
    for kind in Write::KINDS {
        let times = written.iter().filter(|written| **written == kind).count();
        assert!(times >= 5, "{kind}: {times}");
    }
}
