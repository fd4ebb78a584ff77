//! One caller after another.

use std::time::Duration;

use tidegate_domain::{
    lease::holder::SlowStart,
    rates::Rates,
    throttle::{
        CapacityKind::{Read, Write},
        Place, Throttle, Turn, Units, Usage, estimate,
        limit::{Limit, RateSteps},
    },
};

use crate::{millis, rates, units};

const START: Duration = Duration::ZERO;

/// A throttle of 100 reads and 50 writes a second with empty buckets, at second 0.
fn empty() -> Throttle<u8> {
    let mut throttle = Throttle::new(Limit::constant(rates(100)));
    assert!(throttle.take(Read, units(10), START));
    assert!(throttle.take(Write, units(5), START));
    throttle
}

fn turn(throttle: &mut Throttle<u8>, place: Place, at: u64) -> Turn {
    throttle.turn(Read, place, millis(at)).0
}

fn waits_until(at: u64) -> Turn {
    Turn::Wait(Some(millis(at)))
}

#[test]
fn a_full_bucket_holds_a_tenth_of_a_second() {
    let mut throttle = empty();
    let least = Units::from_millionths(1);
    assert!(!throttle.take(Read, least, START));
    assert!(!throttle.take(Write, least, START));
    assert!(throttle.take(Read, units(10), millis(5_000)));
    assert!(!throttle.take(Read, least, millis(5_000)));
    assert!(throttle.take(Write, units(5), millis(5_000)));
    assert!(!throttle.take(Write, least, millis(5_000)));
}

#[test]
fn callers_pass_in_order() {
    let mut throttle = empty();
    let [large, small, last] = [(8, 1), (1, 2), (1, 3)].map(|(cost, waker)| {
        assert!(!throttle.take(Read, units(cost), START));
        throttle.enter(Read, units(cost), waker)
    });
    assert_eq!(turn(&mut throttle, large, 0), waits_until(80));
    assert_eq!(turn(&mut throttle, small, 0), Turn::Wait(None));
    // The bucket covers the small call, but the large one is first.
    assert_eq!(throttle.turn(Read, small, millis(79)), (Turn::Wait(None), vec![]));
    // Whoever asks lets the first one pass. Both it and the next one are woken up.
    assert_eq!(throttle.turn(Read, last, millis(80)), (Turn::Wait(None), vec![1, 2]));
    assert_eq!(turn(&mut throttle, large, 80), Turn::Passed);
    assert_eq!(turn(&mut throttle, small, 80), waits_until(90));
    assert!(!throttle.take(Read, units(1), millis(90)), "others wait");
    assert_eq!(throttle.turn(Read, small, millis(100)), (Turn::Passed, vec![2, 3]));
    assert_eq!(turn(&mut throttle, last, 100), Turn::Passed);
}

#[test]
fn a_caller_that_leaves_passes_its_turn_on() {
    let mut throttle = empty();
    let [first, second] = [(10, 1), (2, 2)].map(|(cost, waker)| throttle.enter(Read, units(cost), waker));
    assert_eq!(throttle.leave(Read, first, units(10), millis(10)), [2]);
    assert_eq!(turn(&mut throttle, second, 10), waits_until(20));
    // It has passed, and leaves before it uses anything.
    let third = throttle.enter(Read, units(2), 3);
    assert_eq!(throttle.turn(Read, third, millis(20)).1, [2, 3]);
    assert_eq!(throttle.leave(Read, second, units(2), millis(20)), [3]);
    assert_eq!(turn(&mut throttle, third, 20), Turn::Passed);
    assert_eq!(throttle.usage(Read), Usage { consumed: units(0), delayed: 3, waiting: 0 });
}

#[test]
fn a_debt_is_paid_before_the_next_call() {
    let mut throttle = empty();
    assert_eq!(throttle.settle(Read, units(10), units(60), START), []);
    let next = throttle.enter(Read, units(1), 1);
    assert_eq!(turn(&mut throttle, next, 0), waits_until(510));
    // A call that cost less than its estimate lets the next one pass earlier.
    assert_eq!(throttle.settle(Read, units(50), units(1), millis(20)), [1]);
    assert_eq!(turn(&mut throttle, next, 20), Turn::Passed);
    assert_eq!(throttle.usage(Read).consumed, units(61));
    // What a call gives back does not fill the bucket above its size.
    assert_eq!(throttle.settle(Read, units(500), units(0), millis(30)), []);
    assert!(throttle.take(Read, units(10), millis(40)));
    assert!(!throttle.take(Read, units(1), millis(40)));
}

#[test]
fn a_call_larger_than_the_bucket_waits_for_a_full_one() {
    let mut throttle = empty();
    let huge = throttle.enter(Read, units(1_000), 1);
    assert_eq!(turn(&mut throttle, huge, 0), waits_until(100));
    assert_eq!(turn(&mut throttle, huge, 99), waits_until(100));
    assert_eq!(turn(&mut throttle, huge, 100), Turn::Passed);
    let next = throttle.enter(Read, units(1), 2);
    assert_eq!(turn(&mut throttle, next, 100), waits_until(10_010));
}

#[test]
fn nothing_passes_at_rate_zero() {
    let mut throttle = Throttle::new(Limit::constant(Rates::default()));
    assert!(!throttle.take(Read, units(0), START));
    let place = throttle.enter(Read, units(0), 1);
    assert_eq!(turn(&mut throttle, place, 1_000_000), Turn::Wait(None));
    // What the bucket still holds is lost when the rate falls to 0.
    let mut throttle = Throttle::<u8>::new(Limit::constant(rates(100)));
    assert_eq!(throttle.set_steps(RateSteps::constant(Rates::default()), millis(10)), []);
    assert!(!throttle.take(Read, units(1), millis(10)));
    assert!(!throttle.take(Read, units(1), millis(20)));
    assert_eq!(throttle.set_steps(RateSteps::constant(rates(100)), millis(30)), []);
    assert!(!throttle.take(Read, units(1), millis(39)));
    assert!(throttle.take(Read, units(1), millis(40)));
}

#[test]
fn new_steps_apply_to_callers_that_wait() {
    let mut throttle = Throttle::new(Limit { maximum: rates(1_000), ..Limit::constant(rates(100)) });
    assert!(throttle.take(Read, units(10), START));
    let place = throttle.enter(Read, units(20), 1);
    assert_eq!(turn(&mut throttle, place, 0), waits_until(100));
    // Until then, 5 units have accrued.
    assert_eq!(throttle.set_steps(RateSteps::constant(rates(1_000)), millis(50)), [1]);
    assert_eq!(turn(&mut throttle, place, 50), waits_until(65));
    assert_eq!(throttle.set_steps(RateSteps::constant(rates(10)), millis(60)), [1]);
    assert_eq!(turn(&mut throttle, place, 60), Turn::Passed, "the bucket of 10 a second is full");
    // Steps above the maximum do not count.
    assert_eq!(throttle.set_steps(RateSteps::constant(rates(9_000)), millis(60)), []);
    assert_eq!(throttle.limit().at(millis(60)), rates(1_000));
}

#[test]
fn new_steps_wake_readers_and_writers() {
    let mut throttle = empty();
    throttle.enter(Read, units(1), 1);
    throttle.enter(Write, units(1), 2);
    throttle.enter(Write, units(1), 3);
    assert_eq!(throttle.set_steps(RateSteps::constant(rates(50)), START), [1, 2]);
    assert_eq!((throttle.usage(Read).waiting, throttle.usage(Write).waiting), (1, 2));
}

#[test]
fn the_limit_falls_in_time_by_itself() {
    let mut throttle = empty();
    let steps = RateSteps::constant(rates(100)).then(millis(1_000), rates(10)).then(millis(2_000), rates(100));
    assert_eq!(throttle.set_steps(steps, START), []);
    assert_eq!(throttle.settle(Read, units(0), units(150), START), []);
    let place = throttle.enter(Read, units(1), 1);
    // 100 units accrue in the first second, 10 in the second one, and 41 in the third.
    assert_eq!(turn(&mut throttle, place, 0), waits_until(1_000));
    assert_eq!(turn(&mut throttle, place, 1_000), waits_until(2_000));
    assert_eq!(turn(&mut throttle, place, 2_000), waits_until(2_410));
    assert_eq!(turn(&mut throttle, place, 2_410), Turn::Passed);
}

/// Whoever comes first after some changes accounts for all of them.
#[test]
fn each_step_accrues_for_its_time() {
    let mut throttle = empty();
    let steps = RateSteps::constant(rates(100)).then(millis(1_000), rates(10)).then(millis(2_000), rates(100));
    assert_eq!(throttle.set_steps(steps, START), []);
    assert_eq!(throttle.settle(Read, units(0), units(150), START), []);
    assert!(!throttle.clone().take(Read, units(1), millis(2_409)));
    assert!(throttle.take(Read, units(1), millis(2_410)));
}

#[test]
fn a_slow_start_rises_each_second() {
    let slow_start = SlowStart { from: rates(20), over: millis(4_000) };
    let mut limit = Limit { slow_start, ..Limit::constant(rates(100)) };
    let expect = [(0, 20), (999, 20), (1_000, 40), (3_999, 80), (4_000, 100), (9_000, 100)];
    for (at, expect) in expect {
        assert_eq!(limit.at(millis(at)), rates(expect), "{at}");
    }
    assert_eq!(limit.next_change(millis(3_500)), Some(millis(4_000)));
    assert_eq!(limit.next_change(millis(4_000)), None);
    limit.slow_start.over = millis(3_500);
    assert_eq!(limit.next_change(millis(3_900)), Some(millis(4_000)));
    limit.steps = RateSteps::constant(rates(30)).then(millis(500), rates(100));
    assert_eq!(limit.at(START), rates(20));
    assert_eq!(limit.next_change(START), Some(millis(500)));
    assert_eq!(limit.next_change(millis(500)), Some(millis(1_000)));
}

#[test]
fn later_calls_of_a_kind_cost_their_average() {
    let first = estimate::updated(None, units(100), 25);
    assert_eq!(first, units(4));
    assert_eq!(estimate::updated(Some(first), units(12), 1), units(5));
    assert_eq!(estimate::updated(Some(units(20)), units(4), 1), units(18));
    assert_eq!(estimate::updated(None, units(0), 0), Units::from_millionths(Units::ONE / 2));
    assert_eq!(estimate::cost(units(4), 3), units(12));
    assert_eq!(estimate::cost(units(4), 0), units(4));
}

#[test]
fn amounts_are_checked() {
    assert_eq!(Units::new(0.5), Some(Units::from_millionths(500_000)));
    assert_eq!(Units::new(1e7), Some(units(10_000_000)));
    for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e7 + 1.0] {
        assert_eq!(Units::new(wrong), None, "{wrong}");
    }
    assert!((units(7).get() - 7.0).abs() < f64::EPSILON);
    assert_eq!([Read.other(), Write.other()], [Write, Read]);
}
