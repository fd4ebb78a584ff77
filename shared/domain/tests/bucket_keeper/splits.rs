//! Splits: a bucket gets all its shards in one transaction that creates and loses no token.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    bucket::Shard,
    split::{self, MAX_SHARDS, Plan, is_supported},
    tokens::Millitokens,
};

use crate::{
    clients::{Client, Scope, Version, set_limits},
    keeper::{Fate, Keeper, Processes},
    table::{LIMITS, States, World, amounts, any_terms, count, drain, limit, shift, terms},
    writes::Write,
};

/// Some shards of a bucket after anything that clients did: doublings, removals, creations, debt, new limits.
fn any_shards() -> impl Strategy<Value = (World, u32)> {
    let shard = (0..7_u32, any::<i16>(), 0..5_000_i64, any::<bool>());
    (any_terms(), 0..7_u32, prop::collection::btree_map(1..64_u32, shard, 0..64)).prop_map(
        |(terms, doublings, shards)| {
            let mut world = World::new(&terms);
            let count = 1 << doublings;
            for (shard, (known, tokens, age, has_first)) in [(0, (doublings, 77, 3, true))].into_iter().chain(shards) {
                let mut item = world.items[&Shard::ZERO].clone();
                item.state.shards = self::count(1 << known.min(doublings));
                item.state.last_refill = crate::table::time(crate::table::START - age);
                for name in LIMITS {
                    shift(&mut item.state, &limit(name), i64::from(tokens) * age, 1);
                }
                item.state.limits.retain(|of, _| has_first || *of != limit(LIMITS[0]));
                world.client_put(Shard::new(shard % count), Some(item), &amounts(&[]));
            }
            (world, count)
        },
    )
}

fn plan(world: &World, shards: u32) -> Option<(Plan<'static>, Write)> {
    let seen = world.states()?;
    let plan = split::plan(&seen, count(shards))?;
    Some((plan.clone(), Write::Increase { seen, plan }))
}

proptest! {
    #[test]
    fn one_transaction_completes_a_bucket((mut world, shards) in any_shards()) {
        let before = world.items.clone();
        if let Some((plan, write)) = plan(&world, shards) {
            let written = plan.splits.iter().flat_map(|split| [split.donor].into_iter().chain(split.targets.clone()));
            let written: Vec<_> = written.chain(plan.raises.clone()).collect();
            prop_assert!(written.len() <= 100);
            prop_assert!(world.apply(&write));
        }
        prop_assert_eq!(&world.faults, &[]);
        prop_assert!(plan(&world, shards).is_none());
        prop_assert!(world.items.keys().copied().eq((0..shards).map(Shard::new)));
        for (shard, state) in world.states().unwrap() {
            prop_assert_eq!(state.shards, count(shards));
            if !before.contains_key(&shard) {
                prop_assert!(state.limits.values().all(|of| of.consumed == Millitokens::default()));
                prop_assert_eq!(state.write_units().unwrap().tokens.get(), 1_000_000);
            }
        }
    }

    /// A donor and its new shards then hold the same, up to a millitoken each, since the same time.
    #[test]
    fn a_split_is_in_equal_parts((mut world, shards) in any_shards()) {
        let Some((plan, write)) = plan(&world, shards) else { return Ok(()) };
        world.apply(&write);
        for split in &plan.splits {
            let donor = world.state(split.donor);
            for target in &split.targets {
                let target = world.state(*target);
                prop_assert_eq!(target.last_refill, donor.last_refill);
                for (limit, of) in target.divided() {
                    let expected = donor.limits.get(limit).map_or(of.terms.capacity.get() / i64::from(shards), |of| of.tokens.get());
                    let parts = i64::try_from(split.targets.len()).unwrap() + 1;
                    prop_assert!((of.tokens.get() - expected).abs() < parts, "{}: {:?} {:?}", limit, donor, target);
                }
            }
        }
    }

    /// What clients do between the read and the transaction makes it lose: nobody sees a half of it.
    #[test]
    fn a_client_in_between_makes_it_lose(doublings in 0..5_u32, at in any::<u32>(), what in 0..5_usize) {
        let mut world = World::sharded(&[terms(64_000_000, 1_000, 1000)], 1 << doublings);
        let (_, write) = plan(&world, 2 << doublings).unwrap();
        let shard = Shard::new(at % (1 << doublings));
        let mut client = Client { known: 1 << doublings, ..Client::new(Version::V17, 0) };
        world.now += 5;
        match what {
            0 => drop(client.double(&mut world, shard)),
            1 => drain(&mut world, shard),
            2 => set_limits(&mut world, Scope::Marked, &limit(LIMITS[0]), terms(1000, 1, 1000)),
            3 => world.client_put(shard, None, &amounts(&[])),
            _ => {
                // Its clients know of the doubling already.
                client.known *= 2;
                client.acquire(&mut world, shard.get() + (1 << doublings), &amounts(&[1000]));
            }
        }
        let before = world.items.clone();
        prop_assert!(!world.apply(&write));
        prop_assert_eq!(world.items, before);
    }

    /// A batch may show siblings that clients told a new count, and not shard 0.
    #[test]
    fn nothing_is_trimmed_before_its_split(
        doublings in prop::collection::vec(0..3_u32, 1..4), batches in prop::collection::vec(0..5_usize, 0..40),
    ) {
        for processes in Processes::ALL {
            let mut world = World::new(&[terms(64_000_000, 64_000, 1000)]);
            let (mut client, mut keeper) = (Client::new(Version::V17, 0), Keeper::new(processes, 80));
            let mut batches = batches.iter();
            for times in &doublings {
                (0..*times).for_each(|_| _ = client.double(&mut world, Shard::ZERO));
                world.now += 1_500;
                for records in batches.by_ref().take(9) {
                    let batch = world.deliver(*records, 0);
                    keeper.handle(&mut world, batch, &[Fate::Written, Fate::Lost]);
                }
            }
            keeper.repair(&mut world, &[Fate::Written]);
            let held: i64 = world.items.values().map(|item| item.state.limits[&limit(LIMITS[0])].tokens.get()).sum();
            prop_assert_eq!(held, 64_000_000, "{:?}", processes);
            prop_assert!(world.items.values().all(|item| !item.state.is_overfull()));
        }
    }
}

#[test]
fn a_missing_shard_splits_from_its_nearest_ancestor() {
    let world = World::sharded(&[terms(64_000_000, 64_000, 1000)], 2);
    let (Plan { splits, raises, .. }, _) = plan(&world, 8).unwrap();
    let targets = |at: usize| splits[at].targets.iter().map(|shard| shard.get()).collect::<Vec<_>>();
    assert_eq!((splits.len(), targets(0), targets(1), raises), (2, vec![2, 4, 6], vec![3, 5, 7], vec![]));
}

#[test]
fn counts_are_powers_of_two_up_to_64() {
    let supported: Vec<_> = (1..=2 * MAX_SHARDS).filter(|shards| is_supported(count(*shards))).collect();
    assert_eq!(supported, [1, 2, 4, 8, 16, 32, 64]);
    let half = World::sharded(&[terms(64_000_000, 64_000, 1000)], 32);
    let missing: BTreeMap<_, _> = half.states().unwrap_or_else(States::new);
    assert_eq!(split::plan(&missing, count(64)).unwrap().splits.len(), 32);
}
