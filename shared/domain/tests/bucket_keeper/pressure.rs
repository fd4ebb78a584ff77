//! Activity and pressure: each record of a batch counts once, and shards are doubled for buckets with too many writes, as far
//! as that helps.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_domain::{
    activity::{self, Activity},
    bucket::Shard,
    pressure::{self, Policy, Pressure, Spread, SpreadCheck},
    refill::MAX_AGE,
    tokens::Millitokens,
};

use crate::{
    clients::{Client, Scope, Version, set_limits},
    table::{LIMITS, START, State, World, amounts, any_magnitude, count, limit, shift, terms, time},
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

/// The start of a second.
const SECOND: i64 = START / 1000 * 1000;

/// Takes a write unit, and so much of the first limit, from a shard.
fn write(world: &mut World, shard: u32, taken: i64) {
    let mut item = world.items[&Shard::new(shard)].clone();
    shift(&mut item.state, &limit("wcu"), -1000, 1000);
    shift(&mut item.state, &limit(LIMITS[0]), -taken, taken);
    world.put(Shard::new(shard), Some(item));
}

fn measure(world: &World, from: usize, later: i64) -> Pressure {
    let policy = Policy { max_shards: count(64), percent: 80 };
    let activities = activity::fold(world.stream[from..].to_vec());
    pressure::measure(&activities[0], activities[0].image.plain().unwrap(), time(world.now + later), &policy)
}

/// A second with so many writes of a shard 0 of so many bytes, decided on so much later.
fn second(shards: u32, bytes: u32, writes: u32, taken: i64, later: i64) -> Pressure {
    let mut world = World::new(&[terms(64_000_000, 64_000_000, 1000)], shards);
    world.now = SECOND;
    let state = &mut world.items.get_mut(&Shard::ZERO).unwrap().state;
    (state.bytes, state.last_refill) = (bytes, time(SECOND));
    let records = world.stream.len();
    (0..writes).for_each(|_| write(&mut world, 0, taken));
    measure(&world, records, later)
}

#[test]
fn pressure_counts_write_units() {
    let check = |bytes, writes, pressure| assert_eq!(second(1, bytes, writes, 1, 0), pressure, "{bytes} {writes}");
    check(1024, 800, Pressure::High(count(2)));
    check(1024, 799, Pressure::Bearable);
    check(1025, 400, Pressure::High(count(2)));
    check(1025, 399, Pressure::Bearable);
    check(0, 800, Pressure::High(count(2)));
}

#[test]
fn old_records_are_no_pressure() {
    let max_age = i64::try_from(MAX_AGE.as_millis()).unwrap();
    assert_eq!(second(1, 500, 900, 1, max_age), Pressure::High(count(2)));
    assert_eq!(second(1, 500, 900, 1, max_age + 1), Pressure::Bearable);
}

#[test]
fn a_bucket_has_64_shards_at_most() {
    assert_eq!(second(32, 500, 900, 1, 0), Pressure::High(count(64)));
    assert_eq!(second(64, 500, 900, 1, 0), Pressure::AtLimit);
}

/// With four shards, a share would be 16,000,000.
#[test]
fn a_share_covers_the_largest_acquire() {
    assert_eq!(second(2, 500, 900, 16_000_000, 0), Pressure::High(count(4)));
    assert_eq!(second(2, 500, 900, 16_000_001, 0), Pressure::Indivisible);
}

/// A batch with half of a second's writes shows too few; that write units have run low shows the rest.
#[test]
fn low_write_units_complete_a_short_batch() {
    let short = |left: i64, writes: u32, millis: i64| {
        let mut world = World::new(&[terms(64_000_000, 64_000_000, 1000)], 1);
        world.now = SECOND + millis;
        let state = &mut world.items.get_mut(&Shard::ZERO).unwrap().state;
        shift(state, &limit("wcu"), left - 1_000_000 + i64::from(writes) * 1000, 0);
        state.last_refill = time(SECOND);
        (0..writes).for_each(|_| write(&mut world, 0, 0));
        measure(&world, 1, 0)
    };
    // By the end of the second, 999 millitokens less than all accrue.
    let low = 200_000 - 999_000;
    assert_eq!(short(low - 1, 400, 0), Pressure::High(count(2)));
    assert_eq!(short(low, 400, 0), Pressure::Bearable);
    assert_eq!(short(low - 1, 399, 0), Pressure::Bearable);
    assert_eq!(short(low - 1, 400, 1_000), Pressure::Bearable);
}

/// Checks `zero` and `newest` write units after an earlier one.
fn spread(shards: u32, millis: i64, zero: i64, newest: i64) -> Spread {
    let at = |millis, zero, newest| {
        let [zero, newest] = [zero, newest].map(|units| {
            let mut state: State = World::new(&[], 1).zero().clone();
            shift(&mut state, &limit("wcu"), 0, 7_000_000 + units * 1000);
            state
        });
        SpreadCheck::new(time(START + millis), &zero, [&newest])
    };
    at(millis, zero, newest).spread_since(&at(0, 0, 0), count(shards))
}

/// Writes spread if the newer half of the shards have a quarter of the writes of shard 0 each, since the last check.
#[test]
fn spread_is_judged_since_the_last_check() {
    assert_eq!(spread(2, 1000, 800, 200), Spread::Even);
    assert_eq!(spread(2, 1000, 800, 199), Spread::Uneven);
    assert_eq!(spread(8, 1000, 800, 800), Spread::Even);
    assert_eq!(spread(8, 1000, 800, 799), Spread::Uneven);
    assert_eq!(spread(2, 1000, 200, 0), Spread::Uneven);
    assert_eq!(spread(2, 1000, 199, 0), Spread::TooSoon);
    assert_eq!(spread(2, 60_000, 800, 800), Spread::Even);
    assert_eq!(spread(2, 60_001, 800, 800), Spread::Unknown);
    for (millis, zero, newest) in [(-1, 800, 800), (1000, -1, 800), (1000, 800, -1)] {
        assert_eq!(spread(2, millis, zero, newest), Spread::Unknown);
    }
}

/// A check adds up the newer shards.
#[test]
fn a_check_adds_the_newest_shards() {
    let mut world = World::new(&[], 4);
    (0..4).for_each(|shard| (0..=shard).for_each(|_| write(&mut world, shard, 0)));
    let check = SpreadCheck::new(time(START), world.zero(), [world.state(Shard::new(2)), world.state(Shard::new(3))]);
    assert_eq!((check.zero, check.newest), (Millitokens::new(1000), Millitokens::new(7000)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A write a second is no pressure, however the stream is cut, and however few write units are left.
    #[test]
    fn a_quiet_bucket_is_left_alone(
        left in -2_000_000..=1_000_000_i64, idle in any_magnitude(23), size in 1..200_usize, refills in any::<bool>(),
    ) {
        let mut world = World::new(&[], 1);
        let state = &mut world.items.get_mut(&Shard::ZERO).unwrap().state;
        shift(state, &limit("wcu"), left - 1_000_000, 0);
        world.now += idle;
        for _ in 0..1_000 {
            world.now += 1000;
            if refills {
                // Of a client that leaves the write units as they are.
                world.items.get_mut(&Shard::ZERO).unwrap().state.last_refill = time(world.now);
            }
            write(&mut world, 0, 0);
        }
        for from in (1..=1_000).step_by(size) {
            let to = (from + size).min(world.stream.len());
            let activities = activity::fold(world.stream[from..to].to_vec());
            let state = activities[0].image.plain().unwrap();
            let policy = Policy { max_shards: count(64), percent: 80 };
            prop_assert_eq!(pressure::measure(&activities[0], state, activities[0].created, &policy), Pressure::Bearable);
        }
    }
}
