//! The steps of a worker's lease are its allowance.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::{
    lease::{EQUAL_WEIGHT, LeaseTerms, ReportNumber, holder::LeaseHolder},
    throttle::limit::RateSteps,
};

use crate::{millis, rates};

/// What a worker does next, after a number of milliseconds.
#[derive(Clone, Copy, Debug)]
enum Act {
    Report,
    Confirm(u64),
    Adopt(u64, u64),
}

fn act() -> impl Strategy<Value = (u64, Act)> {
    let number = 1..12_u64;
    let act = prop_oneof![
        2 => Just(Act::Report),
        1 => number.clone().prop_map(Act::Confirm),
        2 => (number, 0..100_u64).prop_map(|(number, level)| Act::Adopt(number, level)),
    ];
    (0..12_000_u64, act)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn steps_agree_with_the_allowance(acts in prop::collection::vec(act(), 1..20), moments in prop::collection::vec(0..90_000_u64, 8)) {
        let mut holder = LeaseHolder::default();
        let mut now = Duration::ZERO;
        for (wait, act) in acts {
            now += millis(wait);
            match act {
                Act::Report => drop(holder.begin_report(rates(50), EQUAL_WEIGHT, now)),
                Act::Confirm(number) => holder.confirm(ReportNumber::new(number), now),
                Act::Adopt(number, level) => {
                    let terms = LeaseTerms { cap: rates(100), active: 3, level: rates(level), growth: rates(level) };
                    holder.adopt(&terms, ReportNumber::new(number), now);
                }
            }
            let steps = holder.steps();
            for later in &moments {
                let at = now + millis(*later);
                prop_assert_eq!(steps.at(at), holder.allowance(at).rates, "{:?}", at);
            }
            // The same at the very moments of the changes.
            let mut change = Some(now);
            while let Some(at) = change {
                prop_assert_eq!(steps.at(at), holder.allowance(at).rates, "{:?}", at);
                change = steps.next_change(at);
            }
        }
    }

    #[test]
    fn the_last_change_before_a_moment_applies(
        changes in prop::collection::vec((0..50_u64, 0..100_u64), 0..6),
        now in 0..60_u64,
    ) {
        let steps = changes.iter().fold(RateSteps::constant(rates(7)), |steps, (from, to)| {
            steps.then(millis(*from), rates(*to))
        });
        // A change replaces all later ones that were added before it.
        let expect = changes.iter().rfind(|(from, _)| *from <= now).map_or(7, |(_, to)| *to);
        prop_assert_eq!(steps.at(millis(now)), rates(expect));
        let applied = changes.iter().rposition(|(from, _)| *from <= now).map_or(0, |last| last + 1);
        let next = changes[applied..].iter().map(|(from, _)| *from).min();
        prop_assert_eq!(steps.next_change(millis(now)), next.map(millis));
    }
}
