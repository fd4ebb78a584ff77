//! Activity: each record of a batch counts once, and only as what was consumed now.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    activity::{self, Activity},
    bucket::Shard,
};

use crate::{
    clients::{Client, Scope, Version, set_limits},
    table::{LIMITS, START, World, amounts, count, limit, terms, time},
};

/// A bucket from which so much is taken, each time so many milliseconds after the one before.
fn taken(taken: &[(i64, i64)]) -> World {
    let mut world = World::new(&[terms(i64::from(u32::MAX), 1, 1000)], 1);
    take(&mut world, taken);
    world
}

fn take(world: &mut World, taken: &[(i64, i64)]) {
    for (wait, taken) in taken {
        world.now += wait;
        Client::new(Version::V17, 0).acquire(world, 0, &amounts(&[*taken]));
    }
}

fn acquires() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((prop_oneof![0..300_i64, 0..5_000_i64], 1..100_000_i64), 1..40)
}

fn only(world: &World, from: usize) -> Activity<'static> {
    let mut activities = activity::fold(world.stream[from..].to_vec());
    assert_eq!(activities.len(), 1);
    activities.remove(0)
}

proptest! {
    /// Records that a batch repeats, alone or as a tail, leave no trace.
    #[test]
    fn a_repeated_record_counts_once(
        acquires in acquires(), again in prop::collection::vec((any::<usize>(), 1..10_usize), 0..8),
    ) {
        let changes = taken(&acquires).stream;
        let mut batch = changes.clone();
        for (at, records) in again {
            let end = at % batch.len() + 1;
            let rest = batch.split_off(end);
            batch.extend_from_within(end.saturating_sub(records)..);
            batch.extend(rest);
        }
        prop_assert_eq!(activity::fold(batch), activity::fold(changes));
    }

    #[test]
    fn the_busiest_second_is_what_it_consumed(acquires in acquires()) {
        let world = taken(&acquires);
        let mut seconds: BTreeMap<i64, i64> = BTreeMap::new();
        let mut now = START;
        for (wait, taken) in &acquires {
            now += wait;
            *seconds.entry(now / 1000).or_default() += taken;
        }
        let (sum, busiest) = (seconds.values().sum::<i64>(), *seconds.values().max().unwrap());
        let activity = only(&world, 0);
        let demand = activity.demand[&limit(LIMITS[0])];
        prop_assert_eq!(demand.a_second().get(), busiest);
        prop_assert_eq!(demand.within(std::time::Duration::from_millis(2500)).get(), busiest * 5 / 2);
        prop_assert_eq!(demand.mean().get(), sum / i64::try_from(acquires.len()).unwrap());
        prop_assert_eq!(demand.largest().get(), acquires.iter().map(|(_, taken)| *taken).max().unwrap());
        prop_assert_eq!((activity.first_created, activity.created), (time(START / 1000 * 1000), time(now / 1000 * 1000)));
        prop_assert_eq!((activity.first, activity.last), (world.stream[0].sequence, world.stream.last().unwrap().sequence));
        prop_assert_eq!(activity.image.plain(), Some(world.zero()));
    }

    /// With twice the shards, each is written half as much.
    #[test]
    fn a_doubling_begins_the_demand_anew(before in acquires(), after in acquires()) {
        let mut world = taken(&before);
        Client::new(Version::V17, 0).double(&mut world, Shard::ZERO);
        let doubled = world.stream.len();
        take(&mut world, &after);
        let (whole, since) = (only(&world, 0), only(&world, doubled));
        prop_assert_eq!(whole.demand, since.demand);
        prop_assert!(whole.has_new_count && !since.has_new_count);
    }
}

/// Clocks of storage nodes differ.
#[test]
fn a_late_record_counts_in_the_current_second() {
    let changes = taken(&[(1000, 4_000), (1, 5_000), (1, 6_000)]).stream;
    let mut late = changes.clone();
    late[2].created = time(late[1].created.get() - 1_000);
    assert_eq!(activity::fold(late)[0].demand, activity::fold(changes)[0].demand);
}

#[test]
fn what_is_given_back_is_no_demand() {
    let mut world = taken(&[(0, 5_000)]);
    Client::new(Version::V17, 0).adjust(&mut world, Shard::ZERO, &limit(LIMITS[0]), 2_000);
    let demand = only(&world, 1).demand[&limit(LIMITS[0])];
    assert_eq!((demand.mean().get(), demand.largest().get()), (1_500, 5_000));
}

/// An item's `tc` counts since its creation: the first plain image after a `vu` shows no demand.
#[test]
fn a_bucket_without_its_mark_shows_no_demand() {
    let mut world = taken(&[(0, 90_000); 900]);
    set_limits(&mut world, Scope::Marked, 0, terms(90_000_000, 90_000, 1000));
    let marked = world.stream.len();
    take(&mut world, &[(1, 2_000)]);
    let activity = only(&world, marked);
    assert_eq!(activity.image.plain().map(|state| state.shards), Some(count(1)));
    assert_eq!(activity.demand, BTreeMap::new());
}
