//! The alarms, the range and the quota of a table that auto scaling adjusts.

use proptest::prelude::*;

use crate::spikes::{
    scaling::{ALARM_DELAY, METRIC_DELAY, ScaledTable, TargetTracking, UPDATE_TIME},
    traffic::{DAY, MINUTE},
};

const TARGET: TargetTracking = TargetTracking { minimum: 1_000, maximum: 40_000, utilization: 70 };
/// From the end of the minute that sets an alarm off to the new capacity.
const REACTION: u32 = METRIC_DELAY + ALARM_DELAY + UPDATE_TIME;

/// A table with a capacity of 8,000, of which 4,000 write units a second are consumed from midnight on.
struct Run {
    table: ScaledTable,
    now: u32,
}

impl Run {
    fn new() -> Self {
        let mut run = Self { table: ScaledTable::new(TARGET, 5_600), now: 0 };
        assert_eq!(run.table.capacity(), 8_000);
        run.consume(4_000, 20 * MINUTE);
        run
    }

    /// Consumes so many write units a second, for so many seconds.
    fn consume(&mut self, rate: u64, seconds: u32) {
        for _ in 0..seconds {
            self.table.advance(self.now);
            assert_eq!(self.table.serve(rate, self.now), rate);
            self.now += 1;
        }
    }

    /// Consumes so many write units a second until the capacity changes, and returns after how many seconds it does.
    fn until_change(&mut self, rate: u64, most: u32) -> Option<u32> {
        let capacity = self.table.capacity();
        (1..=most).find(|_| {
            self.consume(rate, 1);
            self.table.capacity() != capacity
        })
    }
}

#[test]
fn two_minutes_above_the_target_raise_the_capacity() {
    let mut run = Run::new();
    assert_eq!(run.until_change(6_000, 2 * MINUTE + REACTION + 1), Some(2 * MINUTE + REACTION + 1));
    assert_eq!(run.table.capacity(), 8_572, "6,000 are 70 % of it");
}

#[test]
fn the_reaction_to_a_jump_takes_five_minutes() {
    assert_eq!(2 * MINUTE + REACTION, 300);
}

#[test]
fn the_target_itself_changes_nothing() {
    for rate in [4_000, 5_600] {
        assert_eq!(Run::new().until_change(rate, 60 * MINUTE), None, "{rate}");
    }
}

#[test]
fn a_single_minute_above_changes_nothing() {
    let mut run = Run::new();
    for _ in 0..10 {
        run.consume(9_000, MINUTE);
        run.consume(4_000, MINUTE);
    }
    assert_eq!(run.until_change(4_000, 30 * MINUTE), None);
    assert_eq!(run.table.capacity(), 8_000);
}

#[test]
fn fifteen_minutes_below_lower_the_capacity() {
    let mut run = Run::new();
    run.consume(3_999, 14 * MINUTE);
    run.consume(4_000, MINUTE);
    assert_eq!(run.until_change(3_999, 15 * MINUTE + REACTION + 1), Some(15 * MINUTE + REACTION + 1));
    assert_eq!(run.table.capacity(), 5_713, "3,999 are 70 % of it");
}

#[test]
fn a_new_minimum_moves_the_capacity_at_once() {
    let mut run = Run::new();
    run.table.set_minimum(25_715);
    assert_eq!(run.until_change(4_000, UPDATE_TIME + 1), Some(UPDATE_TIME + 1));
    assert_eq!(run.table.capacity(), 25_715);
    // The alarm for low consumption cannot go below the minimum.
    assert_eq!(run.until_change(4_000, 60 * MINUTE), None);
    // A lowered minimum lets the alarm act when it is evaluated next, with the next minute.
    run.table.set_minimum(6_000);
    assert_eq!(run.now % MINUTE, 1);
    assert_eq!(run.until_change(4_000, 10 * MINUTE), Some(MINUTE - 1 + UPDATE_TIME + 1));
    assert_eq!(run.table.capacity(), 6_000);
}

#[test]
fn a_lowered_minimum_changes_no_busy_table() {
    let mut run = Run::new();
    run.table.set_minimum(25_715);
    run.consume(18_000, 30 * MINUTE);
    run.table.set_minimum(1_000);
    assert_eq!(run.until_change(18_000, 60 * MINUTE), None);
    assert_eq!(run.table.capacity(), 25_715);
}

#[test]
fn a_minimum_never_exceeds_the_maximum() {
    let mut run = Run::new();
    run.table.set_minimum(50_000);
    run.consume(4_000, UPDATE_TIME + 1);
    assert_eq!(run.table.capacity(), 40_000);
}

#[test]
fn a_raise_ends_at_the_maximum() {
    let target = TargetTracking { maximum: 9_000, ..TARGET };
    let mut run = Run { table: ScaledTable::new(target, 5_600), now: 0 };
    run.consume(8_500, 10 * MINUTE);
    assert_eq!(run.table.capacity(), 9_000);
}

#[test]
fn consumption_is_that_of_the_last_shown_minute() {
    let mut run = Run { table: ScaledTable::new(TARGET, 5_600), now: 0 };
    let mut check = |rate, expect| {
        run.consume(rate, MINUTE);
        assert_eq!(run.table.consumption(run.now), expect);
    };
    check(4_000, None);
    check(5_000, Some(4_000));
    check(6_000, Some(5_000));
}

proptest! {
    #[test]
    fn the_capacity_stays_in_its_range_and_quota(
        minimum in 1..5_000_u64,
        more in 0..40_000_u64,
        utilization in 20..=90_u32,
        first in 0..40_000_u64,
        // Whole hours of quiet and of traffic, so that both alarms are set off often.
        spans in proptest::collection::vec((0..60_000_u64, 1..40_u32), 1..100),
    ) {
        let target = TargetTracking { minimum, maximum: minimum + more, utilization };
        let mut table = ScaledTable::new(target, first);
        let mut decreases = Vec::new();
        let mut now = 0;
        for (rate, minutes) in spans {
            for _ in 0..minutes * MINUTE {
                let before = table.capacity();
                table.advance(now);
                let capacity = table.capacity();
                prop_assert!((target.minimum..=target.maximum).contains(&capacity), "{capacity}");
                // An update counts on the day on which it begins.
                let day = (now.saturating_sub(UPDATE_TIME) / DAY) as usize;
                decreases.resize(day + 1, 0);
                decreases[day] += usize::from(capacity < before);
                prop_assert!(table.serve(rate, now) <= rate);
                now += 1;
            }
        }
        prop_assert!(decreases.iter().all(|count| *count <= 27), "{decreases:?}");
    }

    #[test]
    fn a_steady_consumption_never_throttles_in_the_end(rate in 0..28_000_u64, first in 1_400..28_000_u64, utilization in 20..=70_u32) {
        let target = TargetTracking { minimum: 1_000, maximum: 140_000, utilization };
        let mut table = ScaledTable::new(target, first);
        for now in 0..60 * MINUTE {
            table.advance(now);
            let served = table.serve(rate, now);
            // Each update takes five minutes, and raises a capacity that is used up by three sevenths at least.
            prop_assert!(served == rate || now < 45 * MINUTE, "{served} of {rate} are served");
        }
    }
}
