//! Pressure: shards are doubled for buckets that are written too hard, as far as that helps, and for no others.

use proptest::prelude::*;
use tidegate_domain::{
    activity,
    bucket::Shard,
    pressure::{self, Policy, Pressure},
    state::ShardCount,
    tokens::Millitokens,
};

use crate::{
    keeper::{Keeper, Luck},
    model::{Change, World, Write, count, limit, terms, time},
};

fn policy() -> Policy {
    Policy { max_shards: count(64), percent: 80 }
}

/// A bucket that is no limit to anybody, with so many shards.
fn spread(shards: u32) -> World {
    let mut world = World::new(&[terms(1 << 50, 1 << 40, 1000)]);
    while world.zero().shards < count(shards) {
        double(&mut world);
    }
    world
}

fn double(world: &mut World) {
    let seen = world.zero().shards;
    assert!(world.apply(&Write::Double { seen }));
    assert!(Keeper::new(1000, 1000).settle(world, Luck::GOOD).is_some());
}

/// What one batch shows of shard 0.
fn measure(batch: &[Change]) -> Pressure {
    let zero = |change: &&Change| change.bucket.shard == Shard::ZERO;
    let activities = activity::fold(batch.iter().filter(zero).cloned().collect(), |_| None);
    let Some(activity) = activities.first() else { return Pressure::Bearable };
    pressure::measure(activity, activity.image.plain().unwrap(), &policy())
}

/// Two seconds of so many writes a second to any shard, of which a partition takes 1,000; then a refill.
fn rush(world: &mut World, a_second: u32, shard: impl Fn(u32) -> u32) -> Pressure {
    let records = world.stream.len();
    for _ in 0..2 {
        world.now = world.now / 1000 * 1000;
        for shard in world.items.keys().copied().collect::<Vec<_>>() {
            let mut state = world.items[&shard].clone();
            state.limits.get_mut(&limit("wcu")).unwrap().tokens = Millitokens::new(1_000_000);
            state.last_refill = time(world.now);
            world.put(shard, Some(state));
        }
        for at in 0..a_second {
            world.now += i64::from(at % (a_second / 1000 + 1) == 0);
            world.acquire(Shard::new(shard(at)), &[1000]);
        }
        world.now += 1000;
    }
    measure(&world.stream[records..])
}

/// Whether the writes of a bucket spread over its newest shards, since shard 0 had so much.
fn spreads(world: &World, then: Millitokens) -> bool {
    let shards = world.zero().shards.get();
    let newest = world.items.range(Shard::new(shards / 2)..).map(|(_, state)| state);
    pressure::spreads(newest, then, pressure::written(world.zero()))
}

#[test]
fn two_thousand_writes_a_second_need_four_shards() {
    let mut world = spread(1);
    let mut then = pressure::written(world.zero());
    let mut shards = Vec::new();
    for _ in 0..6 {
        let count = world.zero().shards;
        match rush(&mut world, 2000, |at| at % count.get()) {
            Pressure::High(doubled) => {
                assert!(count == ShardCount::ONE || spreads(&world, then));
                assert_eq!(Some(doubled), count.doubled());
                double(&mut world);
                then = pressure::written(world.zero());
            }
            Pressure::Bearable => {}
            Pressure::AtLimit => panic!("{count:?}"),
        }
        shards.push(world.zero().shards.get());
    }
    assert_eq!(shards, [2, 4, 4, 4, 4, 4]);
}

/// The parent of a cascade is written on shard 0, however many shards it has.
#[test]
fn a_parent_is_doubled_once() {
    let mut world = spread(2);
    let then = pressure::written(world.zero());
    for _ in 0..4 {
        assert_eq!(rush(&mut world, 1000, |_| 0), Pressure::High(count(4)));
        assert!(!spreads(&world, then));
    }
}

#[test]
fn there_is_a_most() {
    let mut world = spread(64);
    assert_eq!(rush(&mut world, 900, |_| 0), Pressure::AtLimit);
    let mut world = spread(32);
    assert_eq!(rush(&mut world, 900, |_| 0), Pressure::High(count(64)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A request a second is no pressure, however the stream is cut, and whatever the write units say.
    #[test]
    fn a_quiet_bucket_is_left_alone(
        write_units in -2_000_000..=1_000_000_i64, idle in 0..10_000_000_i64, refills in any::<bool>(), batches in prop::collection::vec(1..200_usize, 1..9),
    ) {
        let mut world = spread(1);
        let mut state = world.zero().clone();
        state.limits.get_mut(&limit("wcu")).unwrap().tokens = Millitokens::new(write_units);
        world.put(Shard::ZERO, Some(state));
        world.now += idle;
        for _ in 0..7_200 {
            world.now += 1000;
            let mut state = world.zero().clone();
            if refills {
                // A refill that leaves the write units as they are.
                state.last_refill = time(world.now);
            }
            let units = state.limits.get_mut(&limit("wcu")).unwrap();
            units.tokens = Millitokens::new(units.tokens.get() - 1000);
            units.consumed = Millitokens::new(units.consumed.get() + 1000);
            world.put(Shard::ZERO, Some(state));
        }
        let mut records = &world.stream[..];
        for size in batches.iter().cycle() {
            let (batch, rest) = records.split_at(records.len().min(*size));
            prop_assert_eq!(measure(batch), Pressure::Bearable);
            records = rest;
            if rest.is_empty() {
                break;
            }
        }
    }

    /// Clients draw shards at random: then their writes spread.
    #[test]
    fn random_draws_spread(doublings in 1..4_u32, draws in prop::collection::vec(any::<u32>(), 512)) {
        let mut world = spread(1 << doublings);
        let then = pressure::written(world.zero());
        prop_assert!(!spreads(&world, then));
        for draw in draws {
            prop_assert!(world.acquire(Shard::new(draw % (1 << doublings)), &[1000]));
        }
        prop_assert!(spreads(&world, then));
    }
}
