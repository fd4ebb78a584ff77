//! However writes and records come, the bucket admits no more than its limits say.

use proptest::prelude::*;
use tidegate_domain::{
    bucket::Shard,
    state::{ShardCount, Terms},
};

use crate::{
    keeper::{Keeper, Luck},
    model::{self, LIMITS, State, World, Write, ugly, ugly_terms},
};

/// What happens next; shards and writes are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(i64),
    /// An acquire of so many quarters of what a shard holds, by limit.
    Acquire(u32, [i64; 3]),
    /// Everything is taken from every shard.
    Drain,
    Double,
    /// A shard above 0 expires and is removed.
    Remove(u32),
    /// One of the keeper's processes does something.
    Work(usize, Work),
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Deliver { records: usize, again: usize, luck: Luck },
    Repair(Luck),
    Write { at: usize, again: bool },
    Forget,
}

fn event() -> impl Strategy<Value = Event> {
    let wait = prop_oneof![3 => ugly(10), 3 => 1..3_000_i64, 1 => ugly(32)];
    let process = prop_oneof![3 => Just(0), 1 => Just(1_usize)];
    prop_oneof![
        8 => wait.prop_map(Event::Wait),
        3 => (any::<u32>(), [0..=4_i64, 0..=4, 0..=4]).prop_map(|(shard, quarters)| Event::Acquire(shard, quarters)),
        5 => Just(Event::Drain),
        1 => Just(Event::Double),
        1 => (1..8_u32).prop_map(Event::Remove),
        12 => (process, work()).prop_map(|(process, work)| Event::Work(process, work)),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let records = prop_oneof![3 => Just(usize::MAX), 1 => 0..4_usize];
    let again = prop_oneof![3 => Just(0), 1 => 0..6_usize];
    prop_oneof![
        6 => (records, again, luck()).prop_map(|(records, again, luck)| Work::Deliver { records, again, luck }),
        3 => luck().prop_map(Work::Repair),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Work::Write { at, again }),
        1 => Just(Work::Forget),
    ]
}

fn luck() -> impl Strategy<Value = Luck> {
    (prop_oneof![Just(usize::MAX), 0..4_usize], prop::bool::weighted(0.7))
        .prop_map(|(steps, refills)| Luck { steps, refills })
}

fn drain(world: &mut World) {
    for shard in world.items.keys().copied().collect::<Vec<_>>() {
        take(world, shard, [4; 3]);
    }
}

fn take(world: &mut World, shard: Shard, quarters: [i64; 3]) {
    let Some(state) = world.items.get(&shard) else { return };
    let taken = parts(state, quarters);
    world.acquire(shard, &taken);
}

/// So many quarters of what a shard holds, by limit.
fn parts(state: &State, quarters: [i64; 3]) -> Vec<i64> {
    let limits = LIMITS.iter().filter_map(|name| state.limits.get(&model::limit(name)));
    limits.zip(quarters).map(|(state, quarters)| state.tokens.get().max(0) * quarters / 4).collect()
}

fn happen(world: &mut World, keepers: &mut [Keeper; 2], event: Event) {
    match event {
        Event::Wait(millis) => world.now += millis,
        Event::Acquire(shard, quarters) => {
            let shards = world.zero().shards.get();
            take(world, Shard::new(shard % shards), quarters);
        }
        Event::Drain => drain(world),
        Event::Double if world.zero().shards < ShardCount::new(8).unwrap() => {
            let seen = world.zero().shards;
            world.apply(&Write::Double { seen });
        }
        Event::Double => {}
        Event::Remove(shard) => world.put(Shard::new(shard), None),
        Event::Work(process, work) => do_work(world, &mut keepers[process], work),
    }
}

fn do_work(world: &mut World, keeper: &mut Keeper, work: Work) {
    match work {
        Work::Deliver { records, again, luck } => keeper.deliver(world, records, again, luck),
        Work::Repair(luck) => drop(keeper.repair(world, luck)),
        Work::Write { at, again } if !keeper.writes.is_empty() => {
            let at = at % keeper.writes.len();
            keeper.write(world, at, again);
        }
        Work::Write { .. } => {}
        Work::Forget => keeper.forget(),
    }
}

fn policy() -> impl Strategy<Value = (u32, i64)> {
    (prop_oneof![Just(0), Just(1000_u32), 0..2000_u32], prop_oneof![Just(1), Just(1000_i64)])
}

/// What clients do beside the fast path.
#[derive(Clone, Debug)]
enum Other {
    Slow { quarters: [i64; 3], divides: bool },
    Adjust(usize, i64),
    Configure(usize, Terms),
}

fn other() -> impl Strategy<Value = Other> {
    let change = (ugly(24), any::<bool>()).prop_map(|(tokens, gives)| if gives { tokens } else { -tokens });
    let terms = ugly_terms().prop_map(|terms| terms[0]);
    prop_oneof![
        ([0..=4_i64, 0..=4, 0..=4], any::<bool>()).prop_map(|(quarters, divides)| Other::Slow { quarters, divides }),
        (0..3_usize, change).prop_map(|(limit, change)| Other::Adjust(limit, change)),
        (0..3_usize, terms).prop_map(|(limit, terms)| Other::Configure(limit, terms)),
    ]
}

fn happen_too(world: &mut World, terms: &[Terms], other: &Other) {
    match other {
        Other::Slow { quarters, divides } => {
            let taken = parts(world.zero(), *quarters);
            world.acquire_slowly(&taken, terms, *divides);
        }
        Other::Adjust(limit, change) => world.adjust(&model::limit(LIMITS[*limit]), *change),
        Other::Configure(limit, terms) => world.configure(&model::limit(LIMITS[*limit]), *terms),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Callers on the fast path get the capacity and what accrues, and not a millitoken more, in any time.
    #[test]
    fn the_fast_path_admits_no_more_than_the_limit(
        terms in ugly_terms(),
        (min_interval, min_credit) in policy(),
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut world = World::new(&terms);
        let mut keepers = [(); 2].map(|()| Keeper::new(min_interval, min_credit));
        for event in events {
            happen(&mut world, &mut keepers, event);
            prop_assert_eq!(&world.excess, &Vec::<String>::new());
        }
        drain(&mut world);
        prop_assert_eq!(&world.excess, &Vec::<String>::new());
    }

    /// Whatever clients do, no credit lifts a limit above the share of the shard.
    #[test]
    fn a_credit_ends_at_the_share(
        terms in ugly_terms(),
        (min_interval, min_credit) in policy(),
        events in prop::collection::vec((event(), prop::option::of(other())), 1..80),
    ) {
        let mut world = World::new(&terms);
        let mut keepers = [(); 2].map(|()| Keeper::new(min_interval, min_credit));
        for (event, other) in events {
            happen(&mut world, &mut keepers, event);
            if let Some(other) = other {
                happen_too(&mut world, &terms, &other);
            }
            prop_assert_eq!(&world.overfilled, &Vec::<String>::new());
        }
    }
}
