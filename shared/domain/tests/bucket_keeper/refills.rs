//! Refills: what accrues is credited in the end, and then the keeper rests.

use proptest::prelude::*;
use tidegate_domain::{
    activity,
    bucket::Shard,
    level::Level,
    refill::{self, Decision},
    state::{BucketImage, Share, Terms},
    tokens::Millitokens,
};

use crate::{
    keeper::{Keeper, Luck},
    model::{self, LIMITS, START, State, World, Write, limit, terms, time, ugly, ugly_terms},
};

/// Terms by which a bucket fills within some months, also on one of many shards.
fn fills_in_time(terms: Vec<Terms>) -> Vec<Terms> {
    let most = |terms: &Terms| (terms.refill.get() * 10_000_000_000 / terms.period).max(1);
    terms
        .into_iter()
        .map(|terms| Terms { capacity: terms.capacity.min(Millitokens::new(most(&terms))), ..terms })
        .collect()
}

/// The longest that a limit of a shard takes to fill up.
fn longest(world: &World) -> i64 {
    let times = world.items.values().flat_map(|state| {
        state.limits.iter().map(|(limit, limit_state)| {
            let share = state.share(limit, limit_state);
            let room = (share.capacity.get() - limit_state.tokens.get()).max(0);
            i64::try_from(share.time_for(u128::try_from(room).unwrap())).unwrap()
        })
    });
    times.max().unwrap()
}

fn is_stocked(world: &World) -> bool {
    world.items.values().all(|state| {
        state.limits.iter().all(|(limit, limit_state)| {
            limit_state.tokens.get() * 16 >= state.share(limit, limit_state).capacity.get() * 15
        })
    })
}

fn drain(world: &mut World) {
    for shard in world.items.keys().copied().collect::<Vec<_>>() {
        let state = &world.items[&shard];
        let taken: Vec<_> = LIMITS.iter().filter_map(|name| state.limits.get(&limit(name))).collect();
        let taken: Vec<_> = taken.into_iter().map(|state| state.tokens.get().max(0)).collect();
        world.acquire(shard, &taken);
    }
}

/// A bucket from which clients take, four times a batch, what its limits give; for so long, after a while
/// in which it comes to that.
struct Busy {
    world: World,
    keeper: Keeper,
    /// What is taken beside what accrues.
    taken: Vec<i64>,
}

impl Busy {
    fn new(terms: &[Terms], horizon: u32) -> Self {
        let (world, mut keeper) = (World::new(terms), Keeper::new(1000, 1));
        keeper.policy.horizon = horizon;
        let mut busy = Self { world, keeper, taken: vec![0; terms.len()] };
        // They leave enough for the horizon and a second.
        let left = |terms: &Terms| terms.capacity.get() - terms.refill.get() * i64::from(horizon + 1000) / terms.period;
        let taken: Vec<_> = terms.iter().map(left).collect();
        busy.world.acquire(Shard::ZERO, &taken);
        busy.keep(&[1000], i64::from(horizon) + 10_000);
        assert!(busy.world.zero().last_refill > time(START));
        busy
    }

    fn keep(&mut self, every: &[i64], millis: i64) {
        let end = self.world.now + millis;
        for every in every.iter().cycle() {
            if self.world.now >= end {
                break;
            }
            for _ in 0..4 {
                self.world.now += every / 4;
                self.acquire();
            }
            self.keeper.deliver(&mut self.world, usize::MAX, 0, Luck::GOOD);
        }
    }

    fn acquire(&mut self) {
        let elapsed = u128::try_from(self.world.now - START).unwrap();
        let zero = self.world.zero();
        let wanted = LIMITS.iter().zip(&self.taken).map(|(name, taken)| {
            let accrued = i64::try_from(share_of(zero, name).accrued(elapsed)).unwrap();
            (accrued - taken).min(zero.limits[&limit(name)].tokens.get())
        });
        let wanted: Vec<_> = wanted.collect();
        assert!(self.world.acquire(Shard::ZERO, &wanted));
        self.taken.iter_mut().zip(wanted).for_each(|(taken, wanted)| *taken += wanted);
    }
}

/// What a limit got since an earlier state of shard 0, and what it was to get.
fn got(before: &State, after: &State, name: &'static str) -> (i64, i64) {
    let held = |state: &State| state.limits[&limit(name)].tokens.get() + state.limits[&limit(name)].consumed.get();
    let elapsed = u128::try_from(after.last_refill.get() - before.last_refill.get()).unwrap();
    let due = share_of(after, name).accrued(elapsed);
    (held(after) - held(before), i64::try_from(due).unwrap())
}

fn share_of(state: &State, name: &'static str) -> Share {
    state.limits[&limit(name)].terms.share(&limit(name), state.shards)
}

proptest! {
    /// A drained shard that nobody draws is filled up to 15 in 16 within two repairs and twice the time that it
    /// takes to fill up: a limit of some millitokens can lose one to rounding. Then it is left alone.
    #[test]
    fn an_idle_shard_fills_up(
        terms in ugly_terms().prop_map(fills_in_time),
        doublings in 0..5_u32,
        debt in prop::option::of(1..3_i64),
        removed in prop::collection::vec(1..16_u32, 0..4),
        min_credit in prop_oneof![Just(1000), ugly(20)],
        parts in 1..9_i64,
        wait in 1..100_000_i64,
    ) {
        let mut world = World::new(&terms);
        let mut keeper = Keeper::new(1000, min_credit);
        for _ in 0..doublings {
            let seen = world.zero().shards;
            world.apply(&Write::Double { seen });
        }
        keeper.repair(&mut world, Luck::GOOD);
        drain(&mut world);
        for shard in removed {
            world.put(Shard::new(shard), None);
        }
        if let Some(times) = debt {
            world.adjust(&limit(LIMITS[0]), -times * terms[0].capacity.get());
        }
        keeper.repair(&mut world, Luck::GOOD);
        let gap = longest(&world) / parts + wait.max(1000);
        let mut repairs = 0;
        while !is_stocked(&world) {
            world.now += gap;
            keeper.repair(&mut world, Luck::GOOD);
            repairs += 1;
            prop_assert!(repairs <= 2 * parts + 2);
        }
        for wait in [gap; 16].into_iter().chain([60_000, 3_600_000, 400_000_000_000]) {
            world.now += wait;
            prop_assert_eq!(keeper.repair(&mut world, Luck::GOOD), 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Where all limits accrue whole millitokens in the time from one refill to the next, nothing is lost.
    #[test]
    fn rounding_takes_nothing(
        a_second in ugly(23), a_minute in ugly(16), every in prop::collection::vec(1000..2000_i64, 1..9),
    ) {
        let terms = [terms(a_second * 60, a_second, 1000), terms(a_minute * 60_000, a_minute * 60, 60_000)];
        let mut busy = Busy::new(&terms, 4000);
        let before = busy.world.zero().clone();
        busy.keep(&every, 300_000);
        let world = &busy.world;
        prop_assert!(world.now - world.zero().last_refill.get() <= 6_000);
        for name in &LIMITS[..2] {
            let (got, due) = got(&before, world.zero(), name);
            // A fraction from before may have made a millitoken.
            prop_assert!((due..=due + 1).contains(&got), "{}: {} of {}", name, got, due);
        }
    }

    /// Where they do not, the fractions that a refill leaves are kept.
    #[test]
    fn a_fraction_of_a_millitoken_is_kept(
        terms in prop::collection::vec((ugly(23), ugly(13)), 1..3), every in prop::collection::vec(1000..2000_i64, 1..9),
    ) {
        // What accrues in a second is worth taking: where nobody can take anything, no record tells of it.
        let slowest = |refill: i64, period: i64| period.min(refill * 200);
        let large = |(refill, period): (i64, i64)| {
            let period = slowest(refill, period);
            model::terms(refill * 600_000 / period + 600_000, refill, period)
        };
        let terms: Vec<_> = terms.into_iter().map(large).collect();
        let mut busy = Busy::new(&terms, 4000);
        let before = busy.world.zero().clone();
        busy.keep(&every, 300_000);
        let world = &busy.world;
        for name in &LIMITS[..terms.len()] {
            let (got, due) = got(&before, world.zero(), name);
            prop_assert!((due - 1..=due + 1).contains(&got), "{}: {} of {}", name, got, due);
        }
    }
}

proptest! {
    /// The keeper's own record is no reason for another write.
    #[test]
    fn a_refill_is_not_followed_by_another(terms in ugly_terms(), wait in 1000..100_000_i64, later in ugly(20)) {
        let (mut world, mut keeper) = (World::new(&terms), Keeper::new(1000, 1));
        drain(&mut world);
        keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
        world.now += wait;
        world.acquire(Shard::ZERO, &[0; 3]);
        keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
        world.now += later;
        let records = world.stream.len();
        keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
        prop_assert_eq!(world.stream.len(), records);
    }
}

/// A drained shard does not wait until it can be full.
#[test]
fn a_drained_shard_gets_what_there_is() {
    let mut world = World::new(&[terms(1_000_000, 1_000, 1000)]);
    let mut keeper = Keeper::new(1000, 5_000);
    drain(&mut world);
    let mut tokens = Vec::new();
    for _ in 0..7 {
        keeper.repair(&mut world, Luck::GOOD);
        tokens.push(world.zero().limits[&limit("rpd")].tokens.get());
        world.now += 2_500;
    }
    assert_eq!(tokens, [0, 0, 5_000, 5_000, 10_000, 10_000, 15_000]);
}

/// Ten tokens a day, beside a thousand a second.
#[test]
fn a_slow_limit_gets_its_tokens() {
    let terms = [terms(10_000, 10_000, 86_400_000), terms(60_000_000, 1_000_000, 1000)];
    let mut busy = Busy::new(&terms, 4000);
    let before = busy.world.zero().clone();
    busy.keep(&[1000, 2000, 1700], 3_600_000);
    let world = &busy.world;
    for name in &LIMITS[..2] {
        let (got, _) = got(&before, world.zero(), name);
        let due = share_of(world.zero(), name).accrued(3_600_000);
        assert!(got * 100 >= i64::try_from(due).unwrap() * 99, "{name}: {got} of {due}");
    }
}

/// A bucket that is drained by a batch, which is decided on so much later.
fn decide(capacity: i64, later: i64, change: impl Fn(&mut State)) -> Decision<'static> {
    let mut world = World::new(&[terms(capacity, 10_000, 1000)]);
    drain(&mut world);
    let mut state = world.zero().clone();
    change(&mut state);
    let mut batch = world.read(2, 0);
    batch[1].new = BucketImage::Plain(state.clone());
    let activities = activity::fold(batch, |_| None);
    let policy = Keeper::new(1000, 15_000).policy;
    refill::decide(&Level::since_refill(state), &activities[0].demand, time(START + later), &policy)
}

#[test]
fn a_refill_is_worth_its_write() {
    let is_refill = |decision: Decision<'_>| matches!(decision, Decision::Refill(_));
    assert!(is_refill(decide(15_000, 1_500, |_| {})));
    assert_eq!(decide(15_000, 999, |_| {}), Decision::TooSoon);
    assert_eq!(decide(15_000, -10_000, |_| {}), Decision::TooSoon);
    // 14,990 millitokens, or no room for more.
    assert_eq!(decide(15_000, 1_499, |_| {}), Decision::Enough);
    assert_eq!(decide(14_999, 60_000, |_| {}), Decision::Enough);
    // Four times what was asked for in a second: it lasts.
    let holds = |tokens: i64| {
        move |state: &mut State| state.limits.get_mut(&limit("rpd")).unwrap().tokens = Millitokens::new(tokens)
    };
    assert_eq!(decide(100_000, 60_000, holds(400_000)), decide(100_000, 60_000, holds(400_001)));
    let expires = |seconds| move |state: &mut State| state.expires = Some(seconds);
    assert_eq!(decide(15_000, 1_500, expires((START + 1_500) / 1000)), Decision::Expired);
    assert!(is_refill(decide(15_000, 1_500, expires((START + 1_500) / 1000 + 1))));
}

/// A limit in debt asks for tokens when it is drawn from, and not when it is refilled.
#[test]
fn debt_is_paid_off_without_a_chain_of_refills() {
    let (mut world, mut keeper) = (World::new(&[terms(100_000, 10_000, 1000)]), Keeper::new(1000, 1));
    drain(&mut world);
    keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
    world.adjust(&limit(LIMITS[0]), -50_000);
    world.now += 1_500;
    keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
    let records = world.stream.len();
    for _ in 0..20 {
        world.now += 1_500;
        keeper.deliver(&mut world, usize::MAX, 0, Luck::GOOD);
    }
    assert_eq!(world.stream.len(), records);
}
