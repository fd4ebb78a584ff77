//! The figures by which rules are compared.

use proptest::prelude::*;

use super::{is_near, scenario, wanting};
use crate::fleet::{
    figures::{Figures, fair_shares, jain},
    python::Rule,
    scenario::Scenario,
    simulation::{FleetTrace, Second},
};

proptest! {
    #[test]
    fn fairness_is_between_one_in_n_and_one(parts in proptest::collection::vec(0.0..1e9_f64, 1..50), scale in 0.001..1e6_f64) {
        prop_assume!(parts.iter().any(|part| *part > 0.0));
        let index = jain(&parts).unwrap();
        let least = 1.0 / f64::from(u32::try_from(parts.len()).unwrap());
        prop_assert!(index >= least - 1e-12 && index <= 1.0, "{index}");
        let scaled: Vec<_> = parts.iter().map(|part| part * scale).collect();
        prop_assert!(is_near(jain(&scaled).unwrap(), index));
    }

    #[test]
    fn fairness_is_one_only_for_equal_parts(part in 0.001..1e6_f64, n in 1..50_usize, more in 0.01..10.0_f64) {
        let mut parts = vec![part; n];
        prop_assert!(is_near(jain(&parts).unwrap(), 1.0));
        parts.push(part * (1.0 + more));
        prop_assert!(jain(&parts).unwrap() < 1.0 - 1e-7);
    }

    #[test]
    fn fair_shares_are_max_min_fair(wants in proptest::collection::vec(0.0..1e4_f64, 0..30), cap in 1.0..1e5_f64) {
        let shares = fair_shares(&wants, cap);
        prop_assert!(is_near(shares.iter().sum(), wants.iter().sum::<f64>().min(cap)));
        let most = shares.iter().copied().fold(0.0, f64::max);
        for (share, want) in shares.iter().zip(&wants) {
            prop_assert!(share <= want);
            prop_assert!(is_near(*share, *want) || is_near(*share, most), "{share} of {want}, and another gets {most}");
        }
    }
}

#[test]
fn a_single_winner_is_one_in_n() {
    assert!(is_near(jain(&[0.0, 7.0, 0.0, 0.0]).unwrap(), 0.25));
    assert_eq!(jain(&[0.0, 0.0]), None);
    assert_eq!(jain(&[]), None);
}

/// Two members of a fleet with a cap of 100: what each consumes, by spans of seconds.
fn check(event: u32, settles_from: u32, spans: &[(usize, [f64; 2])], expect: Figures) {
    let consumed: Vec<_> = spans.iter().flat_map(|(seconds, consumed)| vec![consumed.to_vec(); *seconds]).collect();
    let length = u32::try_from(consumed.len()).unwrap();
    let scenario = Scenario {
        event,
        settles_from,
        ..scenario(vec![wanting(500.0); 2], Rule::new(100.0, 1_000.0).unwrap(), length)
    };
    let seconds = consumed.into_iter().map(|consumed| Second { consumed, limits: Vec::new() }).collect();
    let figures = Figures::of(&scenario, &FleetTrace { seconds, ..FleetTrace::default() });
    assert_eq!(figures.settled_after, expect.settled_after);
    for (figure, expect) in [
        (figures.overshoot, expect.overshoot),
        (figures.fairness, expect.fairness),
        (figures.utilisation, expect.utilisation),
    ] {
        assert!(is_near(figure, expect), "{figures:?}");
    }
}

#[test]
fn figures_match_their_definitions() {
    let exact = Figures { settled_after: Some(0), overshoot: 0.0, fairness: 1.0, utilisation: 1.0 };
    check(0, 0, &[(60, [50.0, 50.0])], exact);
    // Within 5 % from the 11th second on; 10 seconds of 100 above the cap.
    check(
        0,
        0,
        &[(10, [150.0, 50.0]), (90, [50.0, 50.0])],
        Figures { settled_after: Some(10), overshoot: 1_000.0, ..exact },
    );
    // Consumption before the event is ignored. The wait counts from `settles_from`.
    check(
        5,
        8,
        &[(10, [150.0, 50.0]), (90, [50.0, 50.0])],
        Figures { settled_after: Some(2), overshoot: 500.0, ..exact },
    );
    // 29 seconds are no settling; 30 are.
    check(
        0,
        0,
        &[(29, [50.0, 50.0]), (1, [0.0, 0.0]), (30, [50.0, 50.0])],
        Figures { settled_after: Some(30), utilisation: 59.0 / 60.0, ..exact },
    );
    check(
        0,
        0,
        &[(29, [50.0, 50.0]), (1, [0.0, 0.0]), (29, [50.0, 50.0])],
        Figures { settled_after: None, utilisation: 58.0 / 59.0, ..exact },
    );
    // Fairness and utilisation are those of the last minute.
    check(0, 0, &[(60, [90.0, 0.0]), (60, [50.0, 50.0])], Figures { settled_after: Some(60), ..exact });
    // 6 % below or above the aim is not near. Parts of 3 to 1 have a fairness of 16 / 20.
    check(0, 0, &[(60, [47.0, 47.0])], Figures { settled_after: None, utilisation: 0.94, ..exact });
    check(0, 0, &[(60, [53.0, 53.0])], Figures { settled_after: None, overshoot: 360.0, ..exact });
    check(0, 0, &[(60, [75.0, 25.0])], Figures { fairness: 0.8, ..exact });
    // If no member got anything, fairness is 1.
    check(0, 0, &[(60, [0.0, 0.0])], Figures { settled_after: None, utilisation: 0.0, ..exact });
}
