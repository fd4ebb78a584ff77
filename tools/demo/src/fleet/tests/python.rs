//! The rule by itself, and what a worker may consume.

use std::time::Duration;

use proptest::prelude::*;

use super::is_near;
use crate::fleet::python::{Allowance, Rule};

fn rule() -> impl Strategy<Value = Rule> {
    (1.0..1e6_f64, 1.0..1e4_f64).prop_map(|(cap, maximum)| Rule::new(cap, maximum).unwrap())
}

/// A rule, and a limit that a worker by this rule may have.
fn limited() -> impl Strategy<Value = (Rule, f64)> {
    rule().prop_flat_map(|rule| (Just(rule), 1.0..=rule.maximum()))
}

/// A sum as a fraction of the cap, from none to many times it.
fn load() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(f64::MIN_POSITIVE), 0.001..1.0_f64, 1.0..100.0_f64, Just(1e12)]
}

proptest! {
    #[test]
    fn a_limit_stays_between_floor_and_maximum((rule, limit) in limited(), load in load()) {
        let sum = load * rule.cap();
        prop_assert!(rule.target(limit, sum) <= rule.maximum());
        let adjusted = rule.adjust(limit, sum);
        prop_assert!((Rule::FLOOR..=rule.maximum() * (1.0 + f64::EPSILON)).contains(&adjusted), "{adjusted}");
        prop_assert!((Rule::FLOOR..=rule.maximum()).contains(&rule.initial()));
    }

    #[test]
    fn a_limit_stays_at_cap_or_zero_sum((rule, limit) in limited()) {
        prop_assert!(is_near(rule.adjust(limit, rule.cap()), limit));
        prop_assert!(is_near(rule.adjust(limit, 0.0), limit));
    }

    #[test]
    fn a_limit_moves_four_tenths_or_is_refused((rule, limit) in limited(), load in load()) {
        let (target, adjusted) = (rule.target(limit, load * rule.cap()), rule.adjust(limit, load * rule.cap()));
        let way = limit + Rule::SMOOTHING * (target - limit);
        if way < Rule::FLOOR - 1e-9 {
            prop_assert!(is_near(adjusted, limit), "{adjusted}");
        } else if way > Rule::FLOOR + 1e-9 {
            prop_assert!(is_near(adjusted, way), "{adjusted}, not {way}");
        }
    }

    #[test]
    fn more_load_never_raises_a_limit((rule, limit) in limited(), load in 0.001..100.0_f64, more in 1.0..10.0_f64) {
        // Targets, because a refused limit stays although a lower load would lower it.
        let (less, more) = (load * rule.cap(), load * more * rule.cap());
        prop_assert!(rule.target(limit, more) <= rule.target(limit, less));
    }

    /// Limits keep their proportion for as long as none is at its bounds.
    #[test]
    fn limits_keep_their_proportion((rule, limit) in limited(), part in 0.01..1.0_f64, load in 0.5..2.0_f64) {
        let (sum, lower) = (load * rule.cap(), limit * part);
        prop_assume!(lower * 0.6 >= Rule::FLOOR && limit / load < rule.maximum());
        prop_assert!(is_near(rule.adjust(lower, sum) / rule.adjust(limit, sum), part));
    }

    /// An old summary compounds: each time that it is read, limits change by the same factor once more.
    #[test]
    fn an_old_summary_keeps_moving_limits(load in 0.5..0.99_f64, times in 1..400_i32) {
        let rule = Rule::new(1_000.0, 1e9).unwrap();
        let last = (0..times).fold(1.0, |limit, _| rule.adjust(limit, load * rule.cap()));
        let factor = 1.0 - Rule::SMOOTHING + Rule::SMOOTHING / load;
        let compounded = factor.powi(times);
        if compounded < rule.maximum() * load {
            prop_assert!((last / compounded - 1.0).abs() < 1e-6, "{last}, not {compounded}");
        } else {
            prop_assert!(last > rule.maximum() * load * 0.5 && last <= rule.maximum());
        }
    }
}

#[test]
fn a_worker_starts_with_a_tenth_of_cap() {
    let check = |cap, maximum, expect| {
        let initial = Rule::new(cap, maximum).unwrap().initial();
        assert!(is_near(initial, expect), "{initial} of {cap}, {maximum}");
    };
    check(100_000.0, 1_500.0, 1_500.0);
    check(10_000.0, 1_500.0, 1_000.0);
    check(5.0, 1_500.0, 1.0);
    check(1.0, 1.0, 1.0);
}

#[test]
fn rates_below_one_and_non_numbers_are_rejected() {
    let check = |cap, maximum, expect: &str| {
        let error = Rule::new(cap, maximum).unwrap_err();
        assert!(error.to_string().starts_with(expect), "{error}");
    };
    check(0.99, 1_500.0, "0.99 ");
    check(100.0, 0.0, "0 ");
    check(100.0, -1.0, "-1 ");
    check(f64::NAN, 1.0, "NaN ");
    check(f64::INFINITY, 1.0, "inf ");
}

#[derive(Clone, Debug)]
enum Step {
    /// A demand, and for how many milliseconds.
    Consume(f64, u64),
    SetLimit(f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (prop_oneof![Just(0.0), 0.0..10_000.0_f64], 0..10_000_u64).prop_map(|(demand, millis)| Step::Consume(demand, millis)),
        1 => (1.0..5_000.0_f64).prop_map(Step::SetLimit),
    ];
    proptest::collection::vec(step, 0..30)
}

fn allowance() -> impl Strategy<Value = Allowance> {
    (1.0..5_000.0_f64, steps()).prop_map(|(limit, steps)| {
        let mut allowance = Allowance::new(limit);
        for step in steps {
            match step {
                Step::Consume(demand, millis) => {
                    allowance.consume(demand, Duration::from_millis(millis));
                }
                Step::SetLimit(limit) => allowance.set_limit(limit),
            }
        }
        allowance
    })
}

proptest! {
    #[test]
    fn consumption_is_bounded_by_demand_and_by_tokens(mut allowance in allowance(), demand in 0.0..10_000.0_f64, millis in 0..60_000_u64) {
        let elapsed = Duration::from_millis(millis);
        let (wanted, there) = (demand * elapsed.as_secs_f64(), allowance.tokens() + allowance.limit() * elapsed.as_secs_f64());
        let consumed = allowance.consume(demand, elapsed);
        prop_assert!(consumed <= wanted + 1e-6 && consumed <= there + 1e-6, "{consumed} of {wanted} and {there}");
        // All demand up to the limit is met.
        prop_assert!(consumed >= wanted.min(allowance.limit() * elapsed.as_secs_f64()) - 1e-6, "{consumed}");
        prop_assert!(allowance.tokens() >= 0.0 && allowance.tokens() <= 2.0 * allowance.limit() + 1e-6);
    }

    #[test]
    fn consumption_does_not_depend_on_the_steps(allowance in allowance(), demand in 0.0..10_000.0_f64, parts in proptest::collection::vec(0..5_000_u64, 1..8)) {
        let mut whole = allowance;
        let at_once = whole.consume(demand, Duration::from_millis(parts.iter().sum()));
        let mut cut = allowance;
        let in_parts: f64 = parts.iter().map(|millis| cut.consume(demand, Duration::from_millis(*millis))).sum();
        prop_assert!(is_near(at_once, in_parts), "{at_once}, and {in_parts} in parts");
        prop_assert!(is_near(whole.tokens(), cut.tokens()));
    }

    #[test]
    fn a_new_limit_keeps_the_fill_level(mut allowance in allowance(), limit in 1.0..5_000.0_f64) {
        let full = allowance.tokens() / allowance.limit();
        allowance.set_limit(limit);
        prop_assert!(is_near(allowance.tokens() / limit, full));
    }
}

#[test]
fn a_burst_is_two_seconds_of_the_limit() {
    let mut idle = Allowance::new(100.0);
    idle.consume(0.0, Duration::from_mins(1));
    assert!(is_near(idle.tokens(), 200.0));
    assert!(is_near(idle.consume(1_000.0, Duration::from_secs(1)), 300.0));
    assert!(is_near(idle.consume(1_000.0, Duration::from_secs(1)), 100.0));
}
