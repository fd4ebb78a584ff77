//! What a batch shows: each record counts once, where it belongs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    activity::{self, Activity, Demand, Trail},
    bucket::Shard,
    tokens::Millitokens,
};

use crate::model::{START, World, Write, limit, terms};

/// A bucket of one shard from which so much is taken, each time so many milliseconds after the one before.
fn taken(taken: &[(i64, i64)]) -> World {
    let mut world = World::new(&[terms(i64::from(u32::MAX), 1, 1000)]);
    take(&mut world, taken);
    world
}

fn take(world: &mut World, taken: &[(i64, i64)]) {
    for (wait, taken) in taken {
        world.now += wait;
        assert!(world.acquire(Shard::ZERO, &[*taken]));
    }
}

fn acquires() -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((prop_oneof![0..300_i64, 0..5_000_i64], 1..100_000_i64), 1..40)
}

fn only(mut activities: Vec<Activity<'_>>) -> Activity<'_> {
    assert_eq!(activities.len(), 1);
    activities.remove(0)
}

proptest! {
    /// Records that come again in a batch, alone or as a tail, leave no trace.
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
        prop_assert_eq!(activity::fold(batch, |_| None), activity::fold(changes, |_| None));
    }

    /// However a stream is cut into batches, the level is what it is after one batch, and a second that lies in
    /// several batches is as busy in the last of them.
    #[test]
    fn a_trail_is_recalled(acquires in acquires(), size in 1..9_usize) {
        let changes = taken(&acquires).stream;
        let (mut trail, mut busiest) = (None, Millitokens::default());
        for batch in changes.chunks(size) {
            let activity = only(activity::fold(batch.to_vec(), |_| trail.take()));
            busiest = busiest.max(activity.demand.get(&limit("rpd")).map_or(busiest, Demand::a_second));
            trail = activity.trail();
        }
        let whole = only(activity::fold(changes, |_| None));
        prop_assert_eq!(trail.as_ref().map(Trail::level), whole.level.as_ref());
        prop_assert_eq!(busiest, whole.demand[&limit("rpd")].a_second());
    }

    /// The demand is that of the shards that there are now.
    #[test]
    fn a_doubling_begins_the_demand_anew(before in acquires(), after in acquires()) {
        let mut world = taken(&before);
        let seen = world.zero().shards;
        world.apply(&Write::Double { seen });
        let doubled = world.stream.len();
        take(&mut world, &after);
        let since = only(activity::fold(world.stream[doubled..].to_vec(), |_| None));
        prop_assert_eq!(only(activity::fold(world.stream, |_| None)).demand, since.demand);
    }

    /// The busiest second is the one in which most was consumed, and all that was consumed in it.
    #[test]
    fn the_busiest_second_is_what_was_consumed_in_it(acquires in acquires()) {
        let changes = taken(&acquires).stream;
        let mut seconds: BTreeMap<i64, i64> = BTreeMap::new();
        let mut now = START;
        for (wait, taken) in &acquires {
            now += wait;
            *seconds.entry(now / 1000).or_default() += taken;
        }
        let (sum, busiest) = (seconds.values().sum::<i64>(), *seconds.values().max().unwrap());
        let activity = only(activity::fold(changes, |_| None));
        let demand = activity.demand[&limit("rpd")];
        prop_assert_eq!(demand.a_second().get(), busiest);
        prop_assert_eq!(demand.within(2500).get(), busiest * 5 / 2);
        prop_assert_eq!(demand.mean().get(), sum / i64::try_from(acquires.len()).unwrap());
    }
}
