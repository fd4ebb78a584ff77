//! What a worker may consume.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_demo::fleet::allowance::Allowance;

use crate::is_near;

#[derive(Clone, Debug)]
enum Step {
    /// So much is wanted for so many milliseconds.
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
        // Whatever is wanted and there is had, at least up to the limit.
        prop_assert!(consumed >= wanted.min(allowance.limit() * elapsed.as_secs_f64()) - 1e-6, "{consumed}");
        prop_assert!(allowance.tokens() >= 0.0 && allowance.tokens() <= 2.0 * allowance.limit() + 1e-6);
    }

    #[test]
    fn it_does_not_matter_when_one_looks(allowance in allowance(), demand in 0.0..10_000.0_f64, parts in proptest::collection::vec(0..5_000_u64, 1..8)) {
        let mut whole = allowance;
        let at_once = whole.consume(demand, Duration::from_millis(parts.iter().sum()));
        let mut cut = allowance;
        let in_parts: f64 = parts.iter().map(|millis| cut.consume(demand, Duration::from_millis(*millis))).sum();
        prop_assert!(is_near(at_once, in_parts), "{at_once}, and {in_parts} in parts");
        prop_assert!(is_near(whole.tokens(), cut.tokens()));
    }

    #[test]
    fn a_new_limit_keeps_how_full_the_bucket_is(mut allowance in allowance(), limit in 1.0..5_000.0_f64) {
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
