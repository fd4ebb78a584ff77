//! Splits: a bucket gets all its shards in one transaction that creates and loses no token.

use proptest::prelude::*;
use tidegate_domain::{
    bucket::Shard,
    split::{self, MAX_SHARDS, Plan, is_supported},
    state::Terms,
};

use crate::{
    clients::{Client, Scope, Version, drain, set_limits},
    keeper::{Fate, Keeper, Processes},
    table::{LIMITS, START, World, amounts, any_terms, count, limit, shift, terms, time},
    writes::Write,
};

const TERMS: Terms = terms(64_000_000, 64_000, 1000);

/// Some shards of a bucket after anything that clients did: doublings, removals, creations, debt.
fn any_shards() -> impl Strategy<Value = (World, u32)> {
    let shard = (0..7_u32, any::<i16>(), 0..5_000_i64);
    (any_terms(), 0..7_u32, prop::collection::btree_map(1..64_u32, shard, 0..64)).prop_map(
        |(terms, doublings, shards)| {
            let mut world = World::new(&terms, 1);
            for (shard, (known, tokens, age)) in [(0, (doublings, 77, 3))].into_iter().chain(shards) {
                let mut item = world.items[&Shard::ZERO].clone();
                item.state.shards = count(1 << known.min(doublings));
                item.state.last_refill = time(START - age);
                for name in LIMITS {
                    shift(&mut item.state, &limit(name), i64::from(tokens) * age, 1);
                }
                world.client_put(Shard::new(shard % (1 << doublings)), Some(item), &amounts(&[]));
            }
            (world, 1 << doublings)
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
        if let Some((Plan { splits, raises, .. }, write)) = plan(&world, shards) {
            prop_assert!(splits.iter().map(|split| 1 + split.targets.len()).sum::<usize>() + raises.len() <= 100);
            prop_assert!(world.apply(&write));
            // A donor and its new shards hold the same, up to the rest of a division, since the same time.
            for (donor, target) in splits.iter().flat_map(|split| split.targets.iter().map(move |target| (split, target))) {
                let (parts, donor, target) = (donor.targets.len() + 1, world.state(donor.donor), world.state(*target));
                prop_assert_eq!(target.last_refill, donor.last_refill);
                prop_assert_eq!(target.write_units().unwrap().tokens.get(), 1_000_000);
                prop_assert!(target.limits.values().all(|of| of.consumed.get() == 0));
                for (limit, of) in target.divided() {
                    let difference = of.tokens.get() - donor.limits[limit].tokens.get();
                    prop_assert!(difference.unsigned_abs() < parts as u64, "{:?} {:?}", donor, target);
                }
            }
        }
        prop_assert_eq!(&world.faults, &[]);
        prop_assert!(plan(&world, shards).is_none());
        prop_assert!(world.items.keys().copied().eq((0..shards).map(Shard::new)));
        prop_assert!(world.items.values().all(|item| item.state.shards == count(shards)));
    }

    /// What clients do between the read and the transaction makes it lose: no client sees half of it.
    #[test]
    fn a_client_in_between_makes_it_lose(doublings in 0..5_u32, at in any::<u32>(), what in 0..5_usize) {
        let mut world = World::new(&[TERMS], 1 << doublings);
        let (_, write) = plan(&world, 2 << doublings).unwrap();
        let shard = Shard::new(at % (1 << doublings));
        let mut client = Client { known: 1 << doublings, ..Client::new(Version::V17, 0) };
        world.now += 5;
        match what {
            0 => _ = client.double(&mut world, shard),
            1 => drain(&mut world, shard),
            2 => set_limits(&mut world, Scope::Marked, 0, TERMS),
            3 => world.client_put(shard, None, &amounts(&[])),
            _ => {
                // It has heard of more shards.
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
            let mut world = World::new(&[TERMS], 1);
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
            let held = world.items.values().map(|item| item.state.limits[&limit(LIMITS[0])].tokens.get());
            prop_assert_eq!(held.sum::<i64>(), 64_000_000, "{:?}", processes);
            prop_assert!(world.items.values().all(|item| !item.state.is_overfull()));
        }
    }
}

#[test]
fn a_missing_shard_splits_from_its_nearest_ancestor() {
    let (Plan { splits, raises, .. }, _) = plan(&World::new(&[TERMS], 2), 8).unwrap();
    let targets = splits.iter().map(|split| split.targets.iter().map(|shard| shard.get()).collect());
    assert_eq!((targets.collect::<Vec<Vec<_>>>(), raises), (vec![vec![2, 4, 6], vec![3, 5, 7]], vec![]));
}

/// If only shard 0 has a limit, a new shard starts with its share of it.
#[test]
fn an_unknown_limit_begins_with_a_share() {
    let mut world = World::new(&[TERMS, TERMS], 2);
    world.items.get_mut(&Shard::new(1)).unwrap().state.limits.remove(&limit(LIMITS[1]));
    let (Plan { splits, .. }, _) = plan(&world, 4).unwrap();
    assert!(splits.iter().all(|split| split.tokens[&limit(LIMITS[1])].get() == 16_000_000));
    assert_eq!(splits[1].given(&limit(LIMITS[1])).get(), 0);
}

#[test]
fn counts_are_powers_of_two_up_to_64() {
    let supported = (1..=2 * MAX_SHARDS).filter(|shards| is_supported(count(*shards)));
    assert_eq!(supported.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
}
