//! The rule by itself.

use proptest::prelude::*;
use tidegate_demo::fleet::rule::Rule;

use crate::is_near;

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
    fn at_the_cap_or_without_news_a_limit_stays((rule, limit) in limited()) {
        prop_assert!(is_near(rule.adjust(limit, rule.cap()), limit));
        prop_assert!(is_near(rule.adjust(limit, 0.0), limit));
    }

    #[test]
    fn a_limit_goes_four_tenths_of_the_way_or_is_refused((rule, limit) in limited(), load in load()) {
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
        // Only a refusal keeps a limit that a lower load would have lowered.
        let (less, more) = (load * rule.cap(), load * more * rule.cap());
        prop_assert!(rule.target(limit, more) <= rule.target(limit, less));
    }

    /// Nobody catches up: limits keep their proportion for as long as none is at its bounds.
    #[test]
    fn limits_keep_their_proportion((rule, limit) in limited(), part in 0.01..1.0_f64, load in 0.5..2.0_f64) {
        let (sum, lower) = (load * rule.cap(), limit * part);
        prop_assume!(lower * 0.6 >= Rule::FLOOR && limit / load < rule.maximum());
        prop_assert!(is_near(rule.adjust(lower, sum) / rule.adjust(limit, sum), part));
    }

    /// An old summary compounds: each time that it is read, limits change by the same factor once more.
    #[test]
    fn a_summary_that_nobody_renews_moves_limits_on_and_on(load in 0.5..0.99_f64, times in 1..400_i32) {
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
fn a_worker_starts_with_a_tenth_of_the_cap_within_its_bounds() {
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
fn no_worker_works_by_less_than_one_or_by_no_number() {
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
