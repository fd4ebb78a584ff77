//! What a shard grants, against an exact bucket and against the same requests one after another.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use tidegate_domain::{
    admission::{self, Amounts, Change, Outcome, Remedy, Shortage, WRITE_UNIT},
    bucket::{Limit, Shard},
    state::{BucketState, LimitState, ShardCount, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

const START: i64 = 1_767_217_000_371;
const LIMITS: [&str; 3] = ["rpd", "rpm", "tpm"];

type State = BucketState<'static>;

fn limit(name: &'static str) -> Limit<'static> {
    Limit::new(name).unwrap()
}

fn any_magnitude(bits: u32) -> impl Strategy<Value = i64> {
    (0..bits).prop_flat_map(|bits| (1_i64 << bits)..(2_i64 << bits))
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let period = prop_oneof![any_magnitude(26), Just(1_000), Just(60_000)];
    (any_magnitude(24), any_magnitude(24), period).prop_map(|(capacity, refill, period)| Terms {
        capacity: Millitokens::new(capacity),
        refill: Millitokens::new(refill),
        period,
    })
}

/// A shard that holds from twice its share of debt to twice its share of tokens.
fn any_state() -> impl Strategy<Value = State> {
    let limits = prop::collection::vec((any_terms(), -2_000..2_000_i64), 1..=LIMITS.len());
    (limits, 1..5_u32, 0..2_000_i64).prop_map(|(limits, shards, units)| {
        let shards = ShardCount::new(shards).unwrap();
        let wcu = Terms { capacity: Millitokens::new(1_000_000), refill: Millitokens::new(1_000_000), period: 1_000 };
        let limits = limits.into_iter().zip(LIMITS).map(|((terms, per_mille), name)| {
            let share = terms.share(&limit(name), shards).capacity.get();
            let tokens = Millitokens::new(share * per_mille / 1_000);
            (limit(name), LimitState { tokens, consumed: Millitokens::default(), terms })
        });
        let units =
            LimitState { tokens: Millitokens::new(units * 1_000), consumed: Millitokens::default(), terms: wcu };
        BucketState {
            last_refill: time(START),
            shards,
            expires: None,
            bytes: 500,
            limits: limits.chain([(limit(Limit::WRITE_UNITS), units)]).collect(),
        }
    })
}

/// Amounts of the limits that the state has, most of them small parts of a share.
fn any_request(state: &State) -> BoxedStrategy<Amounts<'static>> {
    let amounts = state.divided().map(|(name, of)| {
        let share = state.share(name, of).capacity.get().max(1);
        let amount = prop_oneof![6 => 0..=share / 8 + 1, 2 => 0..=share, 1 => 0..=of.terms.capacity.get() * 2];
        (Just(name.clone()), prop::option::weighted(0.8, amount.prop_map(Millitokens::new)))
    });
    amounts
        .collect::<Vec<_>>()
        .prop_map(|amounts| amounts.into_iter().filter_map(|(name, amount)| Some((name, amount?))).collect())
        .boxed()
}

fn any_requests() -> impl Strategy<Value = (State, Vec<Amounts<'static>>, i64)> {
    any_state().prop_flat_map(|state| {
        let requests = prop::collection::vec(any_request(&state), 1..6);
        (Just(state), requests, prop_oneof![-500..100_i64, any_magnitude(30)])
    })
}

fn time(millis: i64) -> EpochMillis {
    EpochMillis::new(millis).unwrap()
}

/// What a limit holds without rounding, in millitokens divided by period and shards; the clients' rule.
fn exact(state: &State, name: &Limit<'_>, now: i64) -> (i128, i128) {
    let LimitState { tokens, terms, .. } = state.limits[name];
    let shards = if name.is_write_units() { 1 } else { i64::from(state.shards.get()) };
    let unit = i128::from(terms.period) * i128::from(shards);
    let elapsed = i128::from((now - state.last_refill.get()).max(0));
    let value = i128::from(tokens.get()) * unit + i128::from(terms.refill.get()) * elapsed;
    (value.min(i128::from(terms.capacity.get() / shards) * unit), unit)
}

/// The most that a write rounds off where limits have no common moment of whole millitokens.
fn rounding(state: &State, name: &Limit<'_>, passed: i64) -> i64 {
    let accrued = state.share(name, &state.limits[name]).accrued(passed.max(0).unsigned_abs().into());
    i64::try_from(accrued / 1_000).unwrap_or(i64::MAX / 2) + 1
}

fn write_units(state: &mut State, tokens: i64) {
    state.limits.get_mut(Limit::WRITE_UNITS).unwrap().tokens = Millitokens::new(tokens);
}

proptest! {
    /// After the write, and at any later moment, an exact bucket that lost the same amounts at the same moment holds
    /// as much, but for less than a millitoken or a thousandth of what has accrued.
    #[test]
    fn a_take_lowers_what_is_available_by_the_amounts(
        (state, requests, passed) in any_requests(), later in any_magnitude(24),
    ) {
        let now = START + passed;
        let decision = admission::decide(&state, &requests, time(now));
        let Some(take) = decision.take else { return Ok(()) };
        let after = take.applied_to(state.clone());
        for (name, of) in &state.limits {
            let taken = i128::from(take.changes[name].taken.get());
            let (before, unit) = exact(&state, name, now);
            let rate = i128::from(of.terms.refill.get());
            for moment in [now, now + later] {
                // A clock behind the last refill sees accrual only after it.
                let accrues = (moment.max(START) - now.max(START)) * i64::from(moment >= START);
                let capacity = exact(&state, name, i64::MAX / 2).0;
                let expect = capacity.min(before - taken * unit + rate * i128::from(accrues));
                let (held, _) = exact(&after, name, moment);
                let lost = unit + rate * i128::from(passed.max(0)) / 1_000;
                prop_assert!(held <= expect, "{name} at {moment}: {held} is more than {expect}");
                prop_assert!(expect - held <= lost, "{name} at {moment}: {held} of {expect}");
            }
        }
        prop_assert!(take.until >= state.last_refill);
        prop_assert!(take.until <= time(now.max(START)));
    }

    /// Requests in one write get what they would get one after another at the same moment. Each write of their own would
    /// round off less than a millitoken more.
    #[test]
    fn merging_changes_no_outcome((mut state, requests, passed) in any_requests()) {
        let now = time(START + passed);
        write_units(&mut state, 500_000);
        let merged = admission::decide(&state, &requests, now).outcomes;
        let mut single = state;
        for (writes, (request, merged)) in (0..).zip(requests.iter().zip(merged)) {
            let decision = admission::decide(&single, std::slice::from_ref(request), now);
            if (decision.outcomes[0] == Outcome::Granted) != (merged == Outcome::Granted) {
                let Outcome::Denied(shortages) = &decision.outcomes[0] else { panic!("{request:?}: {merged:?}") };
                let is_rounding = |of: &Shortage<'_>| of.requested.get() - of.available.get() <= writes;
                prop_assert!(shortages.iter().all(is_rounding), "{request:?}: {shortages:?}");
                // From here on, the two have granted different requests.
                return Ok(());
            }
            if let Some(take) = decision.take {
                single = take.applied_to(single);
                // Each write takes a unit of its own.
                write_units(&mut single, 500_000);
            }
        }
    }

    /// The wait counts what the requests before it in the same write have taken.
    #[test]
    fn a_wait_is_exact_behind_other_requests((mut state, requests, passed) in any_requests()) {
        let now = time(START + passed);
        write_units(&mut state, 1_000_000);
        let mut decision = admission::decide(&state, &requests, now);
        let (Some(Outcome::Denied(shortages)), Some(take)) = (decision.outcomes.pop(), decision.take) else {
            return Ok(());
        };
        let after = take.applied_to(state);
        let last = requests.last().map(std::slice::from_ref).unwrap();
        let Some(Remedy::Wait(wait)) = shortages.iter().map(|shortage| shortage.remedy).max() else { return Ok(()) };
        // What a write rounds off is missing.
        let of = |limit: &Limit<'static>| {
            let lost = 2 + rounding(&after, limit, passed);
            after.share(limit, &after.limits[limit]).time_for(lost.unsigned_abs().into())
        };
        let slack = Duration::from_millis(requests.last().unwrap().keys().map(of).max().unwrap_or_default().try_into().unwrap());
        if wait + slack < Duration::from_secs(1 << 32) {
            prop_assert_eq!(&admission::decide(&after, last, now.after(wait + slack)).outcomes[0], &Outcome::Granted);
            let earlier = wait.saturating_sub(Duration::from_millis(1));
            prop_assert_ne!(&admission::decide(&after, last, now.after(earlier)).outcomes[0], &Outcome::Granted);
        }
    }

    /// Others may take or give back between the image and the write: if its conditions still hold, everything that
    /// it takes is there.
    #[test]
    fn the_conditions_of_a_take_cover_it((state, requests, passed) in any_requests(), others in -5_000..5_000_i64) {
        let now = START + passed;
        let Some(take) = admission::decide(&state, &requests, time(now)).take else { return Ok(()) };
        for (name, of) in &state.limits {
            let Change { taken, at_least, .. } = take.changes[name];
            let stored = of.tokens.get().saturating_add(others);
            let mut changed = state.clone();
            changed.limits.get_mut(name).unwrap().tokens = Millitokens::new(stored);
            if stored >= at_least.get() && stored <= of.tokens.get() && taken.get() > 0 {
                let (held, unit) = exact(&changed, name, now);
                prop_assert!(held >= i128::from(taken.get()) * unit, "{name}");
            }
            prop_assert!(taken.get() == 0 || of.tokens >= at_least, "the image itself meets the condition");
        }
    }

    /// After the wait, the request is granted; a millisecond before, it is not.
    #[test]
    fn a_wait_is_exact((mut state, requests, passed) in any_requests()) {
        let now = time(START + passed);
        write_units(&mut state, 1_000_000);
        let decide = |after: Duration| {
            admission::decide(&state, std::slice::from_ref(&requests[0]), now.after(after)).outcomes.remove(0)
        };
        let Outcome::Denied(shortages) = decide(Duration::ZERO) else { return Ok(()) };
        let longest = shortages.iter().map(|shortage| shortage.remedy).max().unwrap();
        let Remedy::Wait(wait) = longest else {
            let is_too_much = |amount: &Millitokens, of: &LimitState| *amount > of.terms.capacity;
            let never = requests[0].iter().any(|(limit, amount)| is_too_much(amount, &state.limits[limit]));
            prop_assert_eq!(longest == Remedy::Never, never);
            prop_assert_ne!(decide(Duration::from_secs(1 << 30)), Outcome::Granted);
            return Ok(());
        };
        if wait < Duration::from_secs(1 << 32) {
            prop_assert_eq!(decide(wait), Outcome::Granted);
            prop_assert_ne!(decide(wait.saturating_sub(Duration::from_millis(1))), Outcome::Granted);
        }
    }

    /// The parts of a divided request add up to it, each shard grants its part, and it is divided whenever the shards
    /// hold enough together.
    #[test]
    fn shards_grant_the_parts_of_a_request(
        (state, requests, passed) in any_requests(), held in prop::collection::vec(-1_000..1_000_i64, 4),
    ) {
        let now = time(START + passed);
        let mut states: BTreeMap<_, _> = (0..state.shards.get()).map(|shard| (Shard::new(shard), state.clone())).collect();
        for (state, per_mille) in states.values_mut().zip(held) {
            for of in state.limits.values_mut() {
                of.tokens = Millitokens::new(of.tokens.get() * per_mille / 1_000);
            }
            write_units(state, WRITE_UNIT.get());
        }
        let enough = requests[0].iter().all(|(name, amount)| {
            let offers = states.values().map(|state| {
                admission::available(state, name, &state.limits[name], now).get().max(0)
            });
            offers.sum::<i64>() >= amount.get()
        });
        let Some(parts) = admission::divide(&states, &requests[0], now) else {
            prop_assert!(!enough);
            let is_enough = |wait| admission::divide(&states, &requests[0], now.after(wait)).is_some();
            match admission::wait_for_all(&states, &requests[0], now) {
                Some(wait) => {
                    prop_assert!(is_enough(wait));
                    prop_assert!(!is_enough(wait.saturating_sub(Duration::from_millis(1))));
                }
                None => prop_assert!(!is_enough(Duration::from_millis(1 << 39))),
            }
            return Ok(());
        };
        prop_assert!(enough);
        let mut sums = Amounts::new();
        for (shard, part) in parts {
            for (name, amount) in &part {
                let sum = sums.entry(name.clone()).or_default();
                *sum = Millitokens::new(sum.get() + amount.get());
            }
            let outcome = admission::decide(&states[&shard], &[part], now).outcomes.remove(0);
            prop_assert_eq!(outcome, Outcome::Granted);
        }
        let mut expect = requests[0].clone();
        expect.retain(|_, amount| amount.get() > 0);
        prop_assert_eq!(sums, expect);
    }
}

#[test]
fn debt_rejects_only_what_asks_for_the_limit() {
    let terms = Terms { capacity: Millitokens::new(10_000), refill: Millitokens::new(10_000), period: 60_000 };
    let of = |tokens| LimitState { tokens: Millitokens::new(tokens), consumed: Millitokens::default(), terms };
    let state = BucketState {
        last_refill: time(START),
        shards: ShardCount::ONE,
        expires: None,
        bytes: 500,
        limits: [(limit("rpm"), of(5_000)), (limit("tpm"), of(-5_000)), (limit("wcu"), of(5_000))].into(),
    };
    let check = |amounts: &[(&'static str, i64)], expect: Result<(), &[&'static str]>| {
        let request = amounts.iter().map(|(name, amount)| (limit(name), Millitokens::new(*amount))).collect();
        let outcome = admission::decide(&state, &[request], time(START)).outcomes.remove(0);
        let outcome = match outcome {
            Outcome::Granted => Ok(()),
            Outcome::Denied(shortages) => Err(shortages.into_iter().map(|of| of.limit.to_string()).collect()),
            Outcome::Missing(limit) => Err(vec![limit.to_string()]),
        };
        let expect = expect.map_err(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(outcome, expect, "{amounts:?}");
    };
    check(&[("rpm", 5_000)], Ok(()));
    check(&[("rpm", 5_000), ("tpm", 0)], Ok(()));
    check(&[("rpm", 5_000), ("tpm", 1)], Err(&["tpm"]));
    check(&[("rpm", 5_001), ("tpm", 1)], Err(&["rpm", "tpm"]));
    check(&[("rps", 1)], Err(&["rps"]));
}
