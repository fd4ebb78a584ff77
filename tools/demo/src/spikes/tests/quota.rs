//! The quota of decreases.

use proptest::prelude::*;

use crate::spikes::{
    quota::DecreaseQuota,
    traffic::{DAY, HOUR},
};

#[test]
fn four_decreases_and_then_one_an_hour() {
    let mut quota = DecreaseQuota::default();
    let last = 2_000;
    for now in [1_000, 1_000, 1_500, last] {
        assert!(quota.take(now), "{now}");
    }
    for now in [last, 1_000 + HOUR, last + HOUR - 1] {
        assert!(!quota.take(now), "{now}");
    }
    assert!(quota.take(last + HOUR));
    assert!(!quota.take(last + 2 * HOUR - 1));
    assert!(quota.take(last + 4 * HOUR));
    assert_eq!(quota.count(), 6);
}

#[test]
fn a_new_day_begins_at_midnight() {
    let mut quota = DecreaseQuota::default();
    for now in [DAY - 4, DAY - 3, DAY - 2, DAY - 1] {
        assert!(quota.take(now), "{now}");
    }
    assert!(!quota.take(DAY - 1));
    assert!(quota.take(DAY));
    assert_eq!(quota.count(), 1);
}

#[test]
fn a_day_has_27_decreases_at_most() {
    let mut quota = DecreaseQuota::default();
    for day in 0..2 {
        let taken = (day * DAY..(day + 1) * DAY).filter(|now| quota.take(*now)).count();
        assert_eq!(taken, 27);
    }
}

proptest! {
    #[test]
    fn no_attempts_exceed_the_quota(gaps in proptest::collection::vec(0..2 * HOUR, 0..200)) {
        let mut quota = DecreaseQuota::default();
        let mut now = 0;
        let mut taken: Vec<u32> = Vec::new();
        for gap in gaps {
            now += gap;
            if quota.take(now) {
                taken.push(now);
            }
        }
        for day in 0..=now / DAY {
            let of_day: Vec<_> = taken.iter().filter(|at| **at / DAY == day).collect();
            prop_assert!(of_day.len() <= 27);
            // After the fourth one, an hour without a decrease precedes each.
            prop_assert!(of_day.windows(2).skip(3).all(|pair| pair[1] - pair[0] >= HOUR));
        }
    }
}
