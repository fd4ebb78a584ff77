//! Single decisions.

use std::time::Duration;

use tidegate_domain::{
    fungible::{Denial, EpochNanos, Ours, Rate, Refill, Row, Step, Take, decide, refill},
    time::EpochMillis,
};

use crate::{Limit, START};

const TEN_A_MINUTE: Limit = Limit { tokens: 10, window: Duration::from_mins(1) };

fn time(millis: i64) -> EpochMillis {
    EpochMillis::new(START + millis).unwrap()
}

/// A row of our clients, refilled at [`START`].
fn row(tokens: i64) -> Row {
    let ours = Some(Ours { refilled: EpochNanos::from(time(0)), left: tokens });
    Row { tokens, last_refill: None, last_token: None, is_sealed: false, ours }
}

#[track_caller]
fn check(row: Option<&Row>, tokens: u64, millis: i64, expect: Step) {
    assert_eq!(decide(row, TEN_A_MINUTE.rate(), tokens, time(millis), false), expect, "{tokens} after {millis} ms");
}

fn refills(change: i128, left: i64, until: i64, tokens: u64) -> Step {
    Step::Refill(Refill { change, left, until: EpochNanos::from(time(until)), tokens })
}

fn takes(tokens: u64, at_most: i64) -> Step {
    Step::Take(Take { tokens, at_most, since: EpochNanos::from(time(0)) })
}

fn denies(available: i64, millis: u64) -> Step {
    Step::Deny(Denial { available, retry_after: Duration::from_millis(millis) })
}

#[test]
fn a_missing_row_starts_full() {
    check(None, 3, 0, refills(7, 7, 0, 3));
    check(None, 10, 0, refills(0, 0, 0, 10));
    check(None, 11, 0, Step::Never);
}

#[test]
fn stored_tokens_are_taken_while_the_bucket_is_not_full() {
    check(Some(&row(10)), 1, 0, takes(1, 10));
    check(Some(&row(5)), 5, 30_000, takes(5, 5));
    // A part of a token more would be forfeited.
    check(Some(&row(5)), 5, 30_001, refills(0, 5, 30_001, 5));
    check(Some(&row(10)), 1, 1, refills(-1, 9, 1, 1));
}

#[test]
fn what_has_accrued_is_taken_with_a_refill() {
    check(Some(&row(0)), 1, 5_999, denies(0, 1));
    check(Some(&row(0)), 1, 6_000, refills(0, 0, 6_000, 1));
    // The rest of the second token stays.
    check(Some(&row(0)), 1, 11_000, refills(0, 0, 6_000, 1));
    check(Some(&row(-2)), 1, 12_000, denies(0, 6_000));
    check(Some(&row(-2)), 1, 18_000, refills(2, 0, 18_000, 1));
}

#[test]
fn a_lowered_limit_takes_the_surplus_away() {
    check(Some(&row(50)), 1, 0, refills(-41, 9, 0, 1));
    // Ahead of the clock, so the moment stays.
    check(Some(&row(50)), 1, -5_000, refills(-41, 9, 0, 1));
}

#[test]
fn a_clock_that_is_behind_credits_nothing() {
    check(Some(&row(0)), 1, -60_000, denies(0, 66_000));
    check(Some(&row(2)), 1, -60_000, takes(1, 10));
}

#[test]
fn a_row_of_python_is_adopted() {
    let adopt = |tokens, last_refill, wanted, expect| {
        let row = Row { last_refill, ours: None, ..row(tokens) };
        check(Some(&row), wanted, 12_000, expect);
    };
    adopt(4, Some(START), 5, refills(-3, 1, 12_000, 5));
    adopt(4, None, 4, refills(-4, 0, 12_000, 4));
    adopt(4, Some(START + 90_000), 4, refills(-4, 0, 12_000, 4));
    adopt(4, None, 5, denies(4, 6_000));
    // Nothing accrues before a write adopts the row.
    let created = Row { last_refill: None, ours: None, ..row(-1) };
    check(Some(&created), 1, 12_000, denies(-1, 12_000));
    assert!(!created.is_managed(false));
    let adoption = refill(Some(&created), TEN_A_MINUTE.rate(), time(12_000), false).unwrap();
    assert_eq!((adoption.change, adoption.left, adoption.until), (0, -1, EpochNanos::from(time(12_000))));
    adopt(9, Some(0), 1, refills(0, 9, 12_000, 1));
}

/// A bucket that was full at the last take of rate-limiter-py does not get back what was taken from it.
#[test]
fn what_python_has_taken_accrues_from_its_last_take() {
    let taken = |left, tokens, last_token| {
        let ours = Some(Ours { refilled: EpochNanos::from(time(0)), left });
        Row { tokens, last_token: Some(START + last_token), ours, ..row(tokens) }
    };
    check(Some(&taken(10, 0, 600_000)), 1, 600_000, denies(0, 6_000));
    check(Some(&taken(10, 0, 600_000)), 1, 606_000, refills(0, 0, 606_000, 1));
    check(Some(&taken(4, 1, 600_000)), 7, 600_000, refills(-1, 0, 600_000, 7));
    check(Some(&taken(4, 1, 600_000)), 8, 600_000, denies(7, 6_000));
    // It was not full, so nothing is forfeited.
    check(Some(&taken(4, 1, 12_000)), 3, 12_000, refills(-1, 0, 12_000, 3));
    // The time of its take is not known.
    check(Some(&Row { last_token: None, ..taken(4, 1, 0) }), 8, 600_000, denies(7, 6_000));
    // Its clock is behind the refill.
    check(Some(&taken(10, 0, -3_600_000)), 1, 600_000, denies(0, 6_000));
    // What it has set is what there is.
    check(Some(&taken(4, 9, 12_000)), 9, 0, refills(-9, 0, 0, 9));
}

#[test]
fn a_row_is_sealed_before_stored_tokens_are_taken() {
    let (rate, now) = (TEN_A_MINUTE.rate(), time(0));
    let sealed = Row { is_sealed: true, ..row(5) };
    assert_eq!(decide(Some(&sealed), rate, 1, now, true), takes(1, 10));
    assert_eq!(decide(Some(&sealed), rate, 1, now, false), takes(1, 10));
    assert_eq!(decide(Some(&row(5)), rate, 1, now, true), refills(-1, 4, 0, 1));
    assert_eq!(refill(Some(&sealed), rate, now, true), None);
    assert!(refill(Some(&row(5)), rate, now, true).is_some());
}

#[test]
fn a_refill_writes_only_what_changes() {
    let refilled = |row: Option<&Row>, millis| refill(row, TEN_A_MINUTE.rate(), time(millis), false);
    let of = |change, left, until| Some(Refill { change, left, until: EpochNanos::from(time(until)), tokens: 0 });
    assert_eq!(refilled(None, 0), of(10, 10, 0));
    assert_eq!(refilled(Some(&row(5)), 5_999), None);
    assert_eq!(refilled(Some(&row(5)), 7_000), of(1, 6, 6_000));
    assert_eq!(refilled(Some(&row(-5)), 7_000), of(1, -4, 6_000));
    assert_eq!(refilled(Some(&row(5)), 600_000), of(5, 10, 600_000));
    assert_eq!(refilled(Some(&row(10)), 600_000), None);
    assert_eq!(refilled(Some(&Row { ours: None, ..row(5) }), 0), of(0, 5, 0));
}

/// Three tokens a second: a third of a second is no whole number of nanoseconds.
#[test]
fn the_moment_of_a_refill_is_rounded_up() {
    let rate = Rate::new(3, Duration::from_secs(1)).unwrap();
    let until = EpochNanos::new(EpochNanos::from(time(0)).get() + 333_333_334);
    assert_eq!(refill(Some(&row(0)), rate, time(400), false), Some(Refill { change: 1, left: 1, until, tokens: 0 }));
}

#[test]
fn the_largest_numbers_fill_a_bucket() {
    let rate = Rate::new(u64::MAX, Duration::MAX).unwrap();
    let now = EpochMillis::new(253_370_764_799_999).unwrap();
    for tokens in [5, i64::MIN] {
        let ours = Some(Ours { refilled: EpochNanos::new(0), left: tokens });
        let row = Row { last_token: Some(0), ours, ..row(tokens) };
        let change = i128::from(i64::MAX) - 1 - i128::from(tokens);
        let full = Refill { change, left: i64::MAX - 1, until: EpochNanos::from(now), tokens: 1 };
        assert_eq!(decide(Some(&row), rate, 1, now, false), Step::Refill(full));
    }
    let ours = Some(Ours { refilled: EpochNanos::from(now), left: i64::MAX });
    let emptied = Row { ours, ..row(i64::MIN) };
    let Step::Deny(denial) = decide(Some(&emptied), rate, i64::MAX.unsigned_abs(), now, false) else { panic!() };
    assert_eq!((denial.available, denial.retry_after.as_secs() / 31_557_600), (i64::MIN, 584));
}

#[test]
fn a_rate_needs_a_limit_and_a_window() {
    assert_eq!(Rate::new(0, Duration::from_secs(1)), None);
    assert_eq!(Rate::new(1, Duration::ZERO), None);
    assert_eq!(
        Rate::new(u64::MAX, Duration::MAX),
        Rate::new(i64::MAX.unsigned_abs(), Duration::from_nanos(u64::MAX / 2))
    );
}
