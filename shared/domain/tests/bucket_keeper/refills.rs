//! Refills: what one refill credits, and when it pays.

use proptest::prelude::*;
use tidegate_domain::{
    activity,
    bucket::{Limit, Shard},
    refill::{self, Decision, MAX_AGE, Refill},
    state::{LimitState, Terms},
    tokens::Millitokens,
};

use crate::{
    clients::{Acquired, Client, Version, drain},
    keeper::{Fate, Keeper, Processes},
    table::{
        Exact, LIMITS, START, State, World, amounts, any_magnitude, any_terms, count, full, limit, shift, terms, time,
    },
    writes::Write,
};

fn tokens(state: &State, name: &'static str) -> i64 {
    state.limits[&limit(name)].tokens.get()
}

/// A shard with anything from debt to more than its share.
fn any_state() -> impl Strategy<Value = State> {
    (any_terms(), 0..4_u32, [-9..=18_i64, -1..=8, 0..=8]).prop_map(|(terms, doublings, eighths)| {
        let mut state = full(&terms, 1 << doublings, START);
        for (name, eighths) in LIMITS.iter().zip(eighths) {
            let share = state.limits.get(&limit(name)).map_or(0, |of| of.tokens.get());
            shift(&mut state, &limit(name), share * eighths / 8 - share, 0);
        }
        state
    })
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

proptest! {
    /// Without other writes, what a refill admits later is what would have been admitted without it: of each limit
    /// exactly that, or a millitoken less where no moment has whole millitokens of all.
    #[test]
    fn a_refill_changes_nothing_later(state in any_state(), elapsed in any_magnitude(28), later in any_magnitude(28)) {
        let (at, now) = (time(START + elapsed), START + elapsed + later);
        let Decision::Refill(refill) = refill::decide_idle(&state, at) else { return Ok(()) };
        let after = refill.applied_to(state.clone());
        prop_assert!(state.last_refill < refill.until && refill.until <= at);
        prop_assert!(refill.credits.values().all(|credit| credit.get() > 0));
        prop_assert!(!after.is_overfull());
        let mut exact = Exact::default();
        exact.settle(Shard::ZERO, Some(&state), now);
        let lost = exact.excess(Shard::ZERO, &after, now);
        prop_assert!(lost.iter().all(|(_, millitokens)| *millitokens == 1), "{:?} {:?}", lost, refill);
        // Limits that are not full yet must accrue whole millitokens, if they ever do by then.
        let is_open = |(limit, of): &(&Limit<'_>, &LimitState)| of.tokens < after.share(limit, of).capacity;
        let open: Vec<_> = after.limits.iter().filter(is_open).collect();
        let grains = open.iter().map(|(limit, of)| after.share(limit, of).grain());
        let grain = grains.fold(1, |a, b| a / gcd(a, b) * b);
        if refill.until.since(state.last_refill).as_millis() >= grain {
            prop_assert_eq!(lost, []);
        } else {
            let credit = |limit: &Limit<'static>| refill.credits.get(limit).map_or(0, |credit| credit.get());
            prop_assert!(open.iter().all(|(limit, _)| credit(limit) >= 1000), "{:?}", refill);
        }
        let mut refilled = Exact::default();
        refilled.settle(Shard::ZERO, Some(&after), now);
        prop_assert_eq!(refilled.excess(Shard::ZERO, &state, now), []);
    }

    /// An idle shard is refilled by the first process that reads it, until it holds half or nothing comes.
    #[test]
    fn an_idle_shard_fills_up(terms in any_terms(), doublings in 1..5_u32, waits in prop::collection::vec(any_magnitude(24), 1..9)) {
        let large = |terms: Terms| Terms { capacity: terms.capacity.max(Millitokens::new(64_000)), ..terms };
        let terms: Vec<_> = terms.into_iter().map(large).collect();
        let mut world = World::new(&terms, 1 << doublings);
        for shard in 0..1 << doublings {
            drain(&mut world, Shard::new(shard));
        }
        let first = terms.iter().map(|terms| terms.capacity.get() * terms.period / terms.refill.get()).max().unwrap();
        let mut keeper = Keeper::new(Processes::NewForEachBatch, 80);
        for wait in [first + (1 << 26) * 16].into_iter().chain(waits) {
            world.now += wait;
            keeper.repair(&mut world, &[Fate::Written]);
            for item in world.items.values() {
                let is_stocked = |(limit, of): (&_, &LimitState)| {
                    of.tokens.get() * 2 >= item.state.share(limit, of).capacity.get() - 1
                };
                prop_assert!(item.state.limits.iter().all(is_stocked), "{:?}", item);
            }
        }
        prop_assert_eq!(keeper.written.len(), 1 << doublings, "once each");
    }
}

/// The keeper's own record is no reason for another write, and neither is a repeated batch.
#[test]
fn a_refill_is_not_followed_by_another() {
    for processes in Processes::ALL {
        let mut world = World::new(&[terms(100_000, 100_000, 100_000)], 1);
        let mut keeper = Keeper::new(processes, 80);
        // The lag counts from the first record of a batch, so the creation is in a batch of its own.
        let creation = world.deliver(usize::MAX, 0);
        keeper.handle(&mut world, creation, &[Fate::Written]);
        world.now += 200_000;
        (0..100).for_each(|_| _ = Client::new(Version::V10, 0).acquire(&mut world, 0, &amounts(&[1_000])));
        for (wait, again) in [(1_500, 0), (1_000, 0), (1_000, 9), (1_000, 1), (90_000, 9)] {
            world.now += wait;
            let batch = world.deliver(usize::MAX, again);
            keeper.handle(&mut world, batch, &[Fate::Written]);
        }
        assert_eq!(keeper.written, ["refill"]);
    }
}

/// Decides on a bucket of 100 tokens and one a second, full 90 seconds ago. One batch took `taken` in 80 acquires at
/// once, so many milliseconds before.
fn decide(taken: i64, later: i64, change: impl Fn(&mut State)) -> Decision<'static> {
    decide_after(80, taken, later, change)
}

fn decide_after(acquires: i64, taken: i64, later: i64, change: impl Fn(&mut State)) -> Decision<'static> {
    let mut world = World::new(&[terms(100_000, 100_000, 100_000)], 1);
    world.now = START / 1000 * 1000 + 90_000;
    let state = &mut world.items.get_mut(&Shard::ZERO).unwrap().state;
    state.last_refill = time(world.now - 90_000);
    change(state);
    (0..acquires).for_each(|_| _ = Client::new(Version::V10, 0).acquire(&mut world, 0, &amounts(&[taken / acquires])));
    let activities = activity::fold(world.stream[1..].to_vec());
    refill::decide(&activities[0], activities[0].image.plain().unwrap(), time(world.now + later))
}

fn is_refill(decision: &Decision<'_>) -> bool {
    matches!(decision, Decision::Refill(_))
}

#[test]
fn a_refill_is_due_when_tokens_run_low() {
    // At 10 tokens a second, 100 millitokens are left.
    let holds = |tokens: i64| move |state: &mut State| shift(state, &limit(LIMITS[0]), tokens - 100_000, 0);
    assert!(is_refill(&decide(10_000, 1_000, holds(10_100))));
    assert_eq!(decide(10_000, 0, holds(10_100)), Decision::Enough);
    assert_eq!(decide(1_000, 1_000, holds(100_000)), Decision::Enough);
    // No less than half of the limit is worth a write, and no less than 40 average acquires.
    let accrued =
        |millis: i64| move |state: &mut State| state.last_refill = time(state.last_refill.get() + 90_000 - millis);
    assert!(is_refill(&decide(96_000, 1_000, accrued(50_000))));
    assert_eq!(decide(96_000, 1_000, accrued(49_999)), Decision::Unprofitable);
    assert!(is_refill(&decide_after(60, 96_000, 1_000, accrued(64_000))));
    assert_eq!(decide_after(60, 96_000, 1_000, accrued(63_999)), Decision::Unprofitable);
}

#[test]
fn stale_and_expired_shards_are_left_alone() {
    let max_age = i64::try_from(MAX_AGE.as_millis()).unwrap();
    assert!(is_refill(&decide(96_000, max_age, |_| {})));
    assert_eq!(decide(96_000, max_age + 1, |_| {}), Decision::Stale);
    let expires = |seconds| move |state: &mut State| state.expires = Some(START / 1000 + 90 + seconds);
    assert!(is_refill(&decide(96_000, 1_000, expires(2))));
    assert_eq!(decide(96_000, 1_000, expires(1)), Decision::Expired);
    let state = State { expires: Some(START / 1000), ..full(&[], 1, START) };
    assert_eq!(refill::decide_idle(&state, time(START)), Decision::Expired);
}

/// The slow path of its clients is faster. Write units fill up in a second, but a client of 0.10 doubles the shards
/// without them.
#[test]
fn a_limit_that_fills_soon_is_left_alone() {
    let quick =
        |state: &mut State| state.limits.get_mut(&limit(LIMITS[0])).unwrap().terms = terms(100_000, 100_000, 1000);
    assert!(is_refill(&decide(96_000, 3_000, |_| {})));
    assert_eq!(decide(96_000, 3_000, quick), Decision::Unprofitable);
    let few_units = |state: &mut State| shift(state, &limit(Limit::WRITE_UNITS), 80_100 - 1_000_000, 0);
    assert!(is_refill(&decide(1_000, 3_000, few_units)));
}

/// Only a read of all shards tells whether the rest belongs to a shard that is missing.
#[test]
fn an_overfull_shard_of_several_waits() {
    let overfull = |shards| {
        move |state: &mut State| {
            shift(state, &limit(LIMITS[0]), 300_000, 0);
            state.shards = count(shards);
        }
    };
    assert_eq!(decide(96_000, 1_000, overfull(2)), Decision::Waiting);
    let Decision::Refill(Refill { trims, .. }) = decide(96_000, 1_000, overfull(1)) else { panic!("is trimmed") };
    assert_eq!(trims, [(limit(LIMITS[0]), Millitokens::new(100_000))].into());
}

/// A trim would be a gift to a shard that no longer holds too much.
#[test]
fn a_late_trim_gives_nothing() {
    let mut world = World::new(&[terms(100_000, 100_000, 100_000)], 1);
    Client::new(Version::V10, 0).adjust(&mut world, Shard::ZERO, &limit(LIMITS[0]), 1);
    let seen = world.zero().clone();
    let Decision::Refill(refill) = refill::decide_idle(&seen, time(START + 1_000)) else { panic!("is trimmed") };
    drain(&mut world, Shard::ZERO);
    assert!(!world.apply(&Write::Refill { shard: Shard::ZERO, seen, refill }));
}

/// Whether a shard with a share of 160 tokens is refilled by the repair.
fn is_due(stored: i64, accrues: i64, capacity: i64) -> bool {
    let mut state = full(&[terms(capacity, 1, 1)], 1, START);
    shift(&mut state, &limit(LIMITS[0]), stored - capacity, 0);
    // Write units are no reason of their own.
    shift(&mut state, &limit(Limit::WRITE_UNITS), -1, 0);
    is_refill(&refill::decide_idle(&state, time(START + accrues)))
}

#[test]
fn an_idle_shard_is_refilled_when_low() {
    // Below half, a sixteenth is worth a write.
    assert!(is_due(79_999, 10_000, 160_000));
    assert!(!is_due(80_000, 10_000, 160_000));
    assert!(!is_due(79_999, 9_999, 160_000));
    // Nearly dry, a token is; or all that there is room for.
    assert!(is_due(9_999, 1_000, 160_000));
    assert!(!is_due(10_000, 1_000, 160_000));
    assert!(!is_due(9_999, 999, 160_000));
    assert!(is_due(0, 500, 500));
    assert!(!is_due(0, 499, 500));
    // More than the share is trimmed.
    assert!(is_due(160_001, 1, 160_000));
    assert!(!is_due(160_000, 1, 160_000));
}

/// Decides on an idle shard that is empty, so many milliseconds after its last refill.
fn refilled(of: &[Terms], elapsed: i64) -> Option<i64> {
    let mut state = full(of, 1, START);
    LIMITS.iter().zip(of).for_each(|(name, of)| shift(&mut state, &limit(name), -of.capacity.get(), 0));
    match refill::decide_idle(&state, time(START + elapsed)) {
        Decision::Refill(Refill { until, .. }) => Some(until.get() - START),
        _ => None,
    }
}

#[test]
fn a_refill_ends_where_rounding_takes_nothing() {
    // Whole millitokens of both accrue every 21 seconds.
    let [seven, three] = [terms(100_000, 5_001, 7_000), terms(100_000, 5_002, 3_000)];
    assert_eq!(refilled(&[seven, three], 50_000), Some(42_000));
    // In a long time without such a moment, a millitoken is less than a thousandth.
    let [day, minute] = [terms(100_000, 100_001, 86_399_981), terms(100_000, 100_003, 60_013)];
    assert_eq!(refilled(&[day, minute], 900_000), Some(900_000));
    assert_eq!(refilled(&[day, minute], 800_000), None);
    // The limit that is full at the end is not yet full at the earlier moment that is whole for the other limit.
    assert_eq!(refilled(&[terms(100_000, 1, 7_000), terms(4_600, 1_000, 3_001)], 13_999), None);
}

/// What a bucket costs its clients.
#[derive(Debug, Default, PartialEq, Eq)]
struct Costs {
    slow: usize,
    rejected: usize,
    writes: usize,
}

/// Two clients take from a bucket that is full at first, so many millitokens each time, for 400 acquires.
/// Batches come every second, 0.3 s after it.
fn simulate(terms: Terms, every: i64, taken: i64, processes: Option<Processes>) -> Costs {
    let mut world = World::new(&[terms], 1);
    let mut keeper = processes.map(|processes| Keeper::new(processes, 80));
    let mut clients = [Client::new(Version::V17, 0), Client::new(Version::V10, 0)];
    let (mut costs, mut batch) = (Costs::default(), START);
    for at in 1..=400_usize {
        let next = START + i64::try_from(at).unwrap() * every;
        while batch < next {
            world.now = batch;
            if let Some(keeper) = &mut keeper {
                keeper.catch_up(&mut world);
            }
            batch += 1_300;
        }
        world.now = next;
        match clients[at % 2].acquire(&mut world, 0, &amounts(&[taken])) {
            Acquired::Fast => {}
            Acquired::Slow => costs.slow += 1,
            Acquired::Rejected => costs.rejected += 1,
        }
    }
    costs.writes = keeper.map_or(0, |keeper| keeper.written.len());
    costs
}

/// Without the keeper, and with it, which is the same for any processes.
fn compare(terms: Terms, every: i64, taken: i64) -> (Costs, Costs) {
    let [kept, two, new] = Processes::ALL.map(|processes| simulate(terms, every, taken, Some(processes)));
    assert_eq!((&kept, &kept), (&two, &new));
    (simulate(terms, every, taken, None), kept)
}

#[test]
fn a_refill_replaces_slow_paths() {
    for (terms, every, taken) in [
        (terms(60_000, 60_000, 60_000), 1_250, 1_000),
        (terms(2_000_000, 400_000, 1000), 62, 20_000),
        (terms(100_000_000, 100_000_000, 60_000), 370, 500_000),
    ] {
        let (free, kept) = compare(terms, every, taken);
        assert!(free.slow > 0 && kept.slow * 2 <= free.slow, "{free:?} {kept:?}");
        assert_eq!((free.rejected, kept.rejected), (0, 0));
    }
}

#[test]
fn unprofitable_buckets_are_left_alone() {
    // One fills up within a second; from the other, twice as much is wanted as accrues.
    for (terms, every) in [(terms(40_000, 40_000, 1000), 31), (terms(60_000, 60_000, 60_000), 500)] {
        let (free, kept) = compare(terms, every, 1_000);
        assert!(free.slow > 0);
        // When the bucket runs low for the first time, one refill pays.
        assert!(kept.writes <= 1 && (kept.slow, kept.rejected) <= (free.slow, free.rejected), "{free:?} {kept:?}");
    }
}

/// Ten tokens a day, beside a thousand a second.
#[test]
fn a_slow_limit_gets_its_tokens() {
    let mut world = World::new(&[terms(10_000, 10_000, 86_400_000), terms(60_000_000, 1_000_000, 1000)], 1);
    let mut keeper = Keeper::new(Processes::TwoInTurn, 80);
    let mut client = Client::new(Version::V17, 0);
    drain(&mut world, Shard::ZERO);
    for _ in 0..3_600 * 4 {
        world.now += 1_000;
        for _ in 0..2 {
            client.acquire(&mut world, 0, &[(limit(LIMITS[1]), 400_000)].into());
        }
        keeper.catch_up(&mut world);
    }
    // Four hours, less the time since the last refill.
    let due = 10_000 * (world.zero().last_refill.get() - START) / 86_400_000;
    assert!(tokens(world.zero(), LIMITS[0]) * 100 >= due * 99 && due > 1_600, "{due}: {:?}", world.zero());
    assert!(keeper.written.len() > 50);
}
