//! Splits: whatever stops or repeats them, tokens stay as many, and shares add up to no more than the limit.

use proptest::prelude::*;
use tidegate_domain::{
    bucket::Shard,
    split::{self, MOST_SHARDS, Step},
    tokens::Millitokens,
};

use crate::{
    keeper::{Items, Keeper, Luck},
    model::{self, LIMITS, World, Write, count, ugly, ugly_terms},
};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The shards are doubled so many times in a row.
    Double(u32),
    Acquire(u32, [i64; 3]),
    /// A client gives tokens back to shard 0, or takes what is not there.
    Adjust(usize, i64),
    /// The keeper reads the shards and gets so many steps done; it still sends the one after, later.
    Settle(usize),
    /// A step that was sent arrives.
    Write {
        at: usize,
        again: bool,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let change = (ugly(24), any::<bool>()).prop_map(|(tokens, gives)| if gives { tokens } else { -tokens });
    prop_oneof![
        1 => (1..=4_u32).prop_map(Event::Double),
        2 => (any::<u32>(), [0..3_000_i64, 0..3_000, 0..3_000]).prop_map(|(at, taken)| Event::Acquire(at, taken)),
        1 => (0..3_usize, change).prop_map(|(limit, change)| Event::Adjust(limit, change)),
        3 => (0..9_usize).prop_map(Event::Settle),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Event::Write { at, again }),
    ]
}

fn happen(world: &mut World, keeper: &mut Keeper, event: Event) {
    match event {
        Event::Double(times) => {
            for _ in 0..times {
                let seen = world.zero().shards;
                if seen < count(64) {
                    world.apply(&Write::Double { seen });
                }
            }
        }
        Event::Acquire(at, taken) => {
            let shards = world.zero().shards.get();
            world.acquire(Shard::new(at % shards), &taken);
        }
        Event::Adjust(limit, change) => world.adjust(&model::limit(LIMITS[limit]), change),
        Event::Settle(steps) => drop(keeper.settle(world, Luck { steps, refills: true })),
        Event::Write { at, again } if !keeper.writes.is_empty() => {
            let at = at % keeper.writes.len();
            keeper.write(world, at, again);
        }
        Event::Write { .. } => {}
    }
}

/// The sum of the shares of the shards that there are, of so many parts of the whole.
fn shares(world: &World) -> u32 {
    world.items.values().map(|state| MOST_SHARDS / state.shards.get()).sum()
}

fn complete(world: &mut World, keeper: &mut Keeper) -> Result<(), TestCaseError> {
    prop_assert!(keeper.settle(world, Luck::GOOD).is_some(), "nobody is in the way");
    prop_assert_eq!(split::next(&world.items), None);
    let shards = world.zero().shards;
    let all: Vec<_> = (0..shards.get()).map(Shard::new).collect();
    prop_assert_eq!(world.items.keys().copied().collect::<Vec<_>>(), all);
    prop_assert!(world.items.values().all(|state| state.shards == shards));
    Ok(())
}

proptest! {
    /// The tokens of all shards change by what clients take and give, whatever becomes of the splits.
    #[test]
    fn tokens_stay_as_many(terms in ugly_terms(), events in prop::collection::vec(event(), 1..60)) {
        let mut world = World::new(&terms);
        let mut keeper = Keeper::new(1000, 1000);
        let sums = world.sums();
        for event in events {
            happen(&mut world, &mut keeper, event);
            prop_assert_eq!(world.sums(), sums.clone());
            prop_assert!(shares(&world) <= MOST_SHARDS);
        }
        complete(&mut world, &mut keeper)?;
        prop_assert_eq!(world.sums(), sums);
        prop_assert_eq!(shares(&world), MOST_SHARDS);
    }

    /// Without a race, each step creates a shard that there is not, and there are no more steps than shards.
    #[test]
    fn each_step_is_needed(terms in ugly_terms(), from in 0..4_u32, doublings in 1..5_u32, debt in 0..10_000_000_i64) {
        let mut items = Items::from([(Shard::ZERO, model::full(&terms, 1))]);
        for shards in [1 << from, 1 << (from + doublings)].map(count) {
            let zero = items.get_mut(&Shard::ZERO).unwrap();
            zero.shards = shards;
            zero.limits.values_mut().for_each(|state| state.tokens = Millitokens::new(state.tokens.get() - debt));
            while let Some(step) = split::next(&items) {
                let Step::Split(split) = &step else { return Err(TestCaseError::fail(format!("{step:?}"))) };
                prop_assert!(!items.contains_key(&split.target));
                split::apply(&step, &mut items);
            }
            prop_assert_eq!(items.len(), shards.get() as usize);
        }
    }

    /// Shards that were removed come back with the shares that they had.
    #[test]
    fn removed_shards_come_back(
        terms in ugly_terms(), doublings in 1..6_u32, more in 0..2_u32, removed in prop::collection::vec(1..32_u32, 0..32),
    ) {
        let mut world = World::new(&terms);
        let mut keeper = Keeper::new(1000, 1000);
        happen(&mut world, &mut keeper, Event::Double(doublings));
        complete(&mut world, &mut keeper)?;
        for shard in removed {
            world.put(Shard::new(shard), None);
        }
        happen(&mut world, &mut keeper, Event::Double(more));
        while split::next(&world.items).is_some() {
            happen(&mut world, &mut keeper, Event::Settle(1));
            prop_assert!(shares(&world) <= MOST_SHARDS);
        }
        complete(&mut world, &mut keeper)?;
    }
}
