//! Level and growth are exact.

use proptest::prelude::*;
use tidegate_domain::{
    lease::{
        EQUAL_WEIGHT, distributable,
        holder::SlowStart,
        level::{Demand, by_weight, growth, level},
        should_report_early,
    },
    rates::{Rate, Rates},
};

use crate::{rate, reads, weight};

fn demand(wants: u64, held: u64, of: u32) -> Demand {
    Demand { wants: rate(wants), held: rate(held), weight: weight(of) }
}

/// What a worker would hold, in millionths: at least what it holds, if `keeps`.
fn holds(demand: &Demand, level: u128, growth: u128, keeps: bool) -> u128 {
    let weight = u128::from(demand.weight.get());
    let aim = u128::from(demand.wants.millionths()).min(level * weight).min(growth * weight);
    if keeps { aim.max(demand.held.millionths().into()) } else { aim }
}

fn sum(demands: &[Demand], level: u128, growth: u128, keeps: bool) -> u128 {
    demands.iter().map(|demand| holds(demand, level, growth, keeps)).sum()
}

fn demands() -> impl Strategy<Value = Vec<Demand>> {
    let small = || (0..60_u64, 0..40_u64, 1..4_u32);
    let any = || (0..=Rate::MAX.millionths(), 0..=Rate::MAX.millionths() / 8, 1..=u32::MAX);
    let of = |(wants, held, weight)| demand(wants, held, weight);
    prop_oneof![prop::collection::vec(small().prop_map(of), 0..8), prop::collection::vec(any().prop_map(of), 0..8),]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// The next greater level, or growth, exceeds the room, if it changes anything.
    #[test]
    fn levels_are_the_greatest_that_fit(
        demands in demands(),
        room in prop_oneof![0..120_u64, 0..=Rate::MAX.millionths()],
    ) {
        let (level, limit) = (level(&demands, rate(room)), u128::from(room));
        let height = u128::from(level.millionths());
        prop_assert!(height <= limit && sum(&demands, height, height, false) <= limit);
        prop_assert!(height == limit || sum(&demands, height + 1, height + 1, false) > limit);

        let growth = u128::from(growth(&demands, level, rate(room)).millionths());
        let held = sum(&demands, 0, 0, true);
        prop_assert!(growth <= height);
        if held > limit {
            prop_assert_eq!(growth, 0);
        } else {
            prop_assert!(sum(&demands, height, growth, true) <= limit);
            prop_assert!(growth == height || sum(&demands, height, growth + 1, true) > limit);
        }
    }

    #[test]
    fn ramps_rise_to_the_maximum(from in 0..2_000_u64, maximum in 0..2_000_u64, over in 0..100_u64, at in 0..120_u64) {
        let ramp = SlowStart { from: reads(from), over: std::time::Duration::from_secs(over) };
        let limit = |seconds| ramp.limit(reads(maximum), std::time::Duration::from_secs(seconds)).read.millionths();
        let expect = if at >= over { maximum } else { from.min(maximum) + (maximum - from.min(maximum)) * at / over };
        prop_assert_eq!(limit(at), expect);
    }
}

#[test]
fn room_is_filled_from_below() {
    let check = |demands: &[(u64, u64, u32)], room, expect: (u64, u64)| {
        let demands: Vec<_> = demands.iter().map(|(wants, held, weight)| demand(*wants, *held, *weight)).collect();
        let level = level(&demands, rate(room));
        let growth = growth(&demands, level, rate(room));
        assert_eq!((level.millionths(), growth.millionths()), expect, "{demands:?} {room}");
    };
    check(&[], 100, (100, 100));
    check(&[(10, 0, 1), (20, 0, 1)], 100, (100, 100));
    check(&[(10, 0, 1), (90, 0, 1)], 100, (100, 100));
    check(&[(10, 0, 1), (91, 0, 1)], 100, (90, 90));
    check(&[(100, 0, 1), (100, 0, 1), (100, 0, 1)], 100, (33, 33));
    check(&[(100, 0, 1), (100, 0, 3)], 100, (25, 25));
    check(&[(100, 100, 1), (100, 0, 1)], 100, (50, 0));
    check(&[(100, 101, 1), (100, 0, 1)], 100, (50, 0));
    check(&[(100, 60, 1), (100, 20, 1), (100, 0, 1)], 100, (33, 20));
    check(&[(100, 0, 1)], 0, (0, 0));
    // Both are satisfied between a height of 2 and 3.
    check(&[(29, 0, 10), (21, 0, 10)], 50, (50, 50));
}

#[test]
fn amounts_do_not_overflow() {
    let most = Rate::MAX.millionths();
    assert_eq!(by_weight(Rate::MAX, weight(u32::MAX)), Rate::MAX);
    assert_eq!(by_weight(rate(7), weight(3)), rate(21));
    assert_eq!(rate(u64::MAX), Rate::MAX);
    let demands = vec![demand(most, most, u32::MAX); 100];
    assert_eq!((level(&demands, Rate::MAX), growth(&demands, rate(1), Rate::MAX)), (rate(23), rate(0)));
    let ramp = SlowStart { from: reads(0), over: std::time::Duration::MAX };
    assert!(ramp.limit(reads(most), std::time::Duration::MAX / 2).read <= Rate::MAX);
}

#[test]
fn two_hundredths_of_the_cap_stay_free() {
    let check = |cap, expect| assert_eq!(distributable(reads(cap)), reads(expect), "{cap}");
    check(0, 0);
    check(1, 0);
    check(149, 146);
    check(Rate::MAX.millionths(), Rate::MAX.millionths() / 100 * 98);
}

#[test]
fn changes_by_a_fifth_are_news() {
    let check = |reported, wants, expect| {
        let writes = |amount| Rates { write: rate(amount), ..Rates::default() };
        assert_eq!(should_report_early(reads(reported), reads(wants)), expect, "{reported} {wants}");
        assert_eq!(should_report_early(writes(reported), writes(wants)), expect, "{reported} {wants}");
    };
    let unit = Rate::UNIT;
    check(0, 0, false);
    check(0, unit - 1, false);
    check(0, unit, true);
    check(3 * unit, 3 * unit + unit - 1, false);
    check(100 * unit, 100 * unit, false);
    check(100 * unit, 120 * unit - 1, false);
    check(100 * unit, 120 * unit, true);
    check(100 * unit, 80 * unit + 1, false);
    check(100 * unit, 80 * unit, true);
    check(unit, 0, true);
    assert_eq!(EQUAL_WEIGHT, weight(1));
}
