//! Repair: shards agree with shard 0, and a dry shard gets tokens from one that can spare them.

use proptest::prelude::*;
use tidegate_domain::{
    bucket::Shard,
    repair::{self, Expiry},
    state::Share,
};

use crate::{
    clients::{Client, Scope, Version, drain, set_limits},
    table::{LIMITS, Rule, START, State, World, amounts, any_terms, full, limit, shift, terms, time},
    writes::Write,
};

/// Shards that hold so many eighths of their share of each limit, in debt or overfull too, for so long.
fn any_shards() -> impl Strategy<Value = World> {
    let shard = ([-20..=30_i64, 0..=8, 0..=1], prop_oneof![Just(0), 0..2_000_i64, 0..3_600_000_i64]);
    (any_terms(), prop::collection::vec(shard, 2..9)).prop_map(|(terms, shards)| {
        let count = u32::try_from(shards.len()).unwrap().next_power_of_two();
        let mut world = World::new(&terms, count);
        for (shard, (eighths, age)) in shards.into_iter().enumerate() {
            let shard = Shard::new(u32::try_from(shard).unwrap());
            let mut item = world.items[&shard].clone();
            item.state.last_refill = time(START - age);
            shift(&mut item.state, &limit("wcu"), -40_000 * eighths[0].max(0), 0);
            for (name, eighths) in LIMITS.iter().zip(eighths) {
                let Some(of) = item.state.limits.get(&limit(name)).copied() else { continue };
                let whole = item.state.share(&limit(name), &of).capacity.get();
                shift(&mut item.state, &limit(name), whole * eighths / 8 - of.tokens.get(), 0);
            }
            world.client_put(shard, Some(item), &amounts(&[]));
        }
        world
    })
}

/// The share of a limit, what a shard stores of it, and that with what has accrued.
fn held(state: &State, name: &tidegate_domain::bucket::Limit<'static>, now: i64) -> (i64, i64, i64) {
    let of = &state.limits[name];
    let share: Share = state.share(name, of);
    let accrued = share.accrued(time(now).since(state.last_refill).as_millis());
    (share.capacity.get(), of.tokens.get(), of.tokens.get() + i64::try_from(accrued).unwrap())
}

proptest! {
    #[test]
    fn moves_go_from_half_full_to_dry(mut world in any_shards()) {
        let seen = world.states().unwrap();
        for transfer in repair::rebalance(&seen, time(world.now)) {
            let (share, stored, _) = held(&seen[&transfer.from], &transfer.limit, world.now);
            prop_assert!(stored >= share / 2);
            let settled = transfer.settled.as_ref().map(|settled| settled.applied_to(seen[&transfer.from].clone()));
            let stored = settled.map_or(stored, |state| held(&state, &transfer.limit, world.now).1);
            let stored = stored - transfer.forfeited.get();
            let (_, _, available) = held(&seen[&transfer.to], &transfer.limit, world.now);
            let moved = transfer.tokens.get();
            prop_assert!(available < share / 16 && !transfer.limit.is_write_units());
            prop_assert!(0 < moved && available + moved <= share);
            prop_assert!(stored - moved >= available + moved);
            // None takes part twice, so no move makes another lose.
            let write = Write::Move { at: world.now, seen: seen.clone(), transfer };
            prop_assert!(world.apply(&write));
            // A repeated move changes nothing.
            prop_assert!(!world.apply(&write));
        }
        prop_assert_eq!(&world.faults, &[]);
    }

    /// In the end no shard is dry beside one that can spare tokens.
    #[test]
    fn moves_come_to_an_end(mut world in any_shards()) {
        for _ in 0..=world.items.len() * LIMITS.len() {
            let seen = world.states().unwrap();
            let moves = repair::rebalance(&seen, time(world.now));
            if moves.is_empty() {
                break;
            }
            for transfer in moves {
                let write = Write::Move { at: world.now, seen: seen.clone(), transfer };
                prop_assert!(world.apply(&write));
            }
        }
        prop_assert_eq!(repair::rebalance(&world.states().unwrap(), time(world.now)), []);
        for (name, _) in world.zero().divided() {
            let held: Vec<_> = world.items.values().map(|item| held(&item.state, name, world.now)).collect();
            let is_dry = held.iter().any(|(share, _, available)| *available < share / 16);
            // A shard whose accrual does not fit can only give if rounding allows a refill.
            let can_spare = |(share, stored, available): &(i64, i64, i64)| {
                *share > 32 && *stored >= share / 2 && available <= share
            };
            let can_spare = held.iter().any(can_spare);
            prop_assert!(!(is_dry && can_spare), "{:?}", held);
        }
    }

    #[test]
    fn an_aligned_shard_agrees_with_zero(
        zero in any_terms(), other in any_terms(), left in [prop::option::of(-9..99_i64), prop::option::of(-9..99_i64)],
    ) {
        let mut zero = full(&zero, 2, START);
        let mut shard = full(&other, 2, START);
        [zero.expires, shard.expires] = left.map(|left| Some(START / 1000 + left?));
        let before = shard.clone();
        if let Some(alignment) = repair::align(&zero, &shard, time(START)) {
            repair::apply(&alignment, &mut shard);
        }
        prop_assert_eq!(repair::align(&zero, &shard, time(START)), None);
        for (limit, of) in &zero.limits {
            prop_assert_eq!(shard.limits[limit].terms, of.terms);
            let added = shard.share(limit, &shard.limits[limit]).capacity;
            prop_assert_eq!(shard.limits[limit].tokens, before.limits.get(limit).map_or(added, |of| of.tokens));
        }
        // An expiry is never brought forward.
        prop_assert!(shard.expires.is_none_or(|at| before.expires.is_some_and(|before| before <= at)));
    }
}

/// The giver's other limits accrue no whole millitokens at a common moment, so its refill rounds.
#[test]
fn a_move_may_round_what_its_giver_accrued() {
    let terms = [terms(31_353, 1024, 21), terms(64, 128, 1), terms(338_424, 8320, 1000)];
    let mut world = World::new(&terms, 4);
    for (shard, age, tokens) in [(0, 482, [1959, 10, 10_575]), (1, 0, [7838, 0, 84_606])] {
        let mut item = world.items[&Shard::new(shard)].clone();
        item.state.last_refill = time(START - age);
        for (name, tokens) in LIMITS.iter().zip(tokens) {
            let before = item.state.limits[&limit(name)].tokens.get();
            shift(&mut item.state, &limit(name), tokens - before, 0);
        }
        world.client_put(Shard::new(shard), Some(item), &amounts(&[]));
    }
    let seen = world.states().unwrap();
    let moves = repair::rebalance(&seen, time(START));
    let [transfer] = &moves[..] else { panic!("{moves:?}") };
    let credits = &transfer.settled.as_ref().unwrap().credits;
    // 482 ms times 2080 millitokens a second: 1002.56.
    assert_eq!(credits[&limit("tpm")].get(), 1002);
    assert!(world.apply(&Write::Move { at: START, seen, transfer: transfer.clone() }));
    assert_eq!(world.faults, []);
}

/// The driest shard gets from the fullest, and debt no more than the other holds.
#[test]
fn the_driest_gets_from_the_fullest() {
    let mut world = World::new(&[terms(400_000, 1, 1000)], 4);
    for (shard, tokens) in [(0, 60_000), (1, 5_000), (2, 100_000), (3, -500_000)] {
        shift(&mut world.items.get_mut(&Shard::new(shard)).unwrap().state, &limit(LIMITS[0]), tokens - 100_000, 0);
    }
    let moves = repair::rebalance(&world.states().unwrap(), time(START));
    let moves: Vec<_> = moves.iter().map(|of| (of.from.get(), of.to.get(), of.tokens.get())).collect();
    assert_eq!(moves, [(2, 3, 100_000), (0, 1, 27_500)]);
    // With shares of a millitoken, one that holds nothing has nothing to give.
    let mut world = World::new(&[terms(2, 1, 1000)], 2);
    for (shard, tokens) in [(0, 0), (1, -1)] {
        shift(&mut world.items.get_mut(&Shard::new(shard)).unwrap().state, &limit(LIMITS[0]), tokens - 1, 0);
    }
    assert_eq!(repair::rebalance(&world.states().unwrap(), time(START)), []);
}

#[test]
fn an_expiry_is_extended_after_half_its_time() {
    let at = |left: Option<i64>| {
        let mut state = full(&[], 2, START);
        state.expires = left.map(|left| START / 1000 + left);
        state
    };
    let expiry = |zero, shard| repair::align(&at(zero), &at(shard), time(START)).and_then(|to| to.expiry);
    assert_eq!(expiry(Some(100), Some(49)), Some(Expiry::At(START / 1000 + 100)));
    assert_eq!(expiry(Some(100), Some(50)), None);
    assert_eq!(expiry(Some(-9), Some(-9)), None);
    assert_eq!(expiry(None, Some(50)), Some(Expiry::Never));
    assert_eq!(expiry(Some(100), None), None);
}

#[test]
fn a_late_move_finds_what_it_saw() {
    let (from, to) = (Shard::ZERO, Shard::new(1));
    let late = |change: &dyn Fn(&mut World)| {
        let mut world = World::new(&[terms(200_000, 1, 1000)], 2);
        drain(&mut world, to);
        let seen = world.states().unwrap();
        let transfer = repair::rebalance(&seen, time(START)).remove(0);
        change(&mut world);
        world.apply(&Write::Move { at: START, seen, transfer })
    };
    assert!(late(&|_| {}));
    assert!(!late(&|world| drain(world, from)));
    assert!(!late(&|world| Client::new(Version::V17, 0).adjust(world, to, &limit(LIMITS[0]), 1)));
}

/// While a move is on its way, its full giver accrues tokens that it would have lost: rate times delay, and no more.
#[test]
fn a_late_move_admits_what_its_giver_accrues() {
    let late = |delay: i64, allowed: i64| {
        let mut world = World::new(&[terms(200_000, 2_000, 1000)], 2);
        drain(&mut world, Shard::new(1));
        let seen = world.states().unwrap();
        let transfer = repair::rebalance(&seen, time(world.now)).remove(0);
        world.now += delay;
        let write = Write::Move { at: world.now - allowed, seen, transfer };
        assert!(world.apply(&write));
        world.faults.iter().map(|(rule, _)| *rule).collect::<Vec<_>>()
    };
    assert_eq!((late(0, 0), late(700, 700)), (vec![], vec![]));
    // Each shard gets a millitoken in a millisecond. Rounding may add one.
    assert_eq!((late(700, 699), late(700, 698)), (vec![], vec![Rule::NeverRaises]));
}

/// Clients write terms again, limits that a shard does not have yet, and its expiry.
#[test]
fn a_late_alignment_changes_nothing_newer() {
    let mut world = World::new(&[terms(8_000, 8_000, 1000); 2], 2);
    let shard = Shard::new(1);
    let late = |world: &World, seen: State| {
        let alignment = repair::align(world.zero(), &seen, time(START)).unwrap();
        Write::Align { shard, seen, alignment }
    };
    let mut lacks = world.state(shard).clone();
    lacks.limits.remove(&limit(LIMITS[1]));
    let added = late(&world, lacks);
    assert!(!world.apply(&added));
    set_limits(&mut world, Scope::Zero, 0, terms(4_000, 4_000, 1000));
    let changed = late(&world, world.state(shard).clone());
    set_limits(&mut world, Scope::All, 0, terms(2_000, 2_000, 1000));
    assert!(!world.apply(&changed));
    let expires = |world: &mut World, at: Shard, seconds| {
        world.items.get_mut(&at).unwrap().state.expires = Some(START / 1000 + seconds);
    };
    expires(&mut world, shard, 10);
    expires(&mut world, Shard::ZERO, 100);
    let put_off = late(&world, world.state(shard).clone());
    expires(&mut world, shard, 200);
    assert!(!world.apply(&put_off));
}
