//! Whole days: what is done, throttled, provisioned and paid.

use crate::spikes::{
    designs::{self, Design, MINIMUM, Mode},
    price,
    scaling::UPDATE_TIME,
    simulation::{DesignRun, Minute, run},
    table::INITIAL_WARM_THROUGHPUT,
    traffic::{DAY, JOB_RATE, JOB_SECONDS, MINUTE, SPIKE, users},
};

fn design(name: &str) -> Design {
    designs::ALL.into_iter().find(|design| design.name == name).unwrap()
}

fn day(name: &str) -> DesignRun {
    run(design(name), 1, &users(1), INITIAL_WARM_THROUGHPUT)
}

/// What a table provides on average in the minute so many minutes after the spike.
fn provided(run: &DesignRun, minutes: i32) -> u64 {
    let minute = i64::from(SPIKE / MINUTE) + i64::from(minutes);
    run.minutes[usize::try_from(minute).unwrap()].provided / u64::from(MINUTE)
}

#[test]
fn every_design_does_all_work() {
    for seed in 0..10 {
        let users = users(seed);
        let work = users.iter().sum::<u64>() + JOB_RATE * u64::from(JOB_SECONDS);
        for design in designs::ALL {
            let run = run(design, seed, &users, INITIAL_WARM_THROUGHPUT);
            let consumed: u64 = run.minutes.iter().map(|minute| minute.consumed).sum();
            assert_eq!(consumed, work, "{}, seed {seed}", design.name);
            assert!(run.delay.is_some(), "{}, seed {seed}", design.name);
        }
    }
}

#[test]
fn throttled_requests_are_counted_and_repeated() {
    // From the first second on, users want twice what a table at its maximum can serve, and then nothing.
    let mode = match design("auto scaling, 70 %").mode {
        Mode::Provisioned { utilization, preparation, .. } => {
            Mode::Provisioned { utilization, maximum: MINIMUM, preparation }
        }
        Mode::OnDemand => panic!("a provisioned table"),
    };
    let design = Design { mode, ..design("auto scaling, 70 %") };
    let mut users = vec![2 * MINIMUM; 600];
    users.resize(DAY as usize / 4, 0);
    let run = run(design, 1, &users, 0);
    let span = run.throttled.unwrap();
    // Burst capacity serves twice the capacity for 300 s, and another 300 s leave 300,000 writes to repeat.
    assert_eq!((span.first, span.last, span.capacity_after), (300, 300 + 300 + 299 - 1, MINIMUM));
    // By second: 1,000 more requests are refused until the users end, and then 1,000 fewer.
    let refused: u64 = (1..=300).chain(1..300).map(|backlog| backlog * MINIMUM).sum();
    assert_eq!(run.throttled_requests(), refused);
    assert_eq!(run.minutes_with_throttles(), 10);
    assert_eq!((run.highest, run.delay), (Some(MINIMUM), None));
}

#[test]
fn the_coordinator_delays_the_job_by_an_update() {
    let run = day("coordinator");
    assert_eq!(run.delay, Some(UPDATE_TIME));
    let needed = provided(&run, 1);
    // The users' last minute is about 4,000, and 18,000 are 70 % of 25,715.
    assert!((25_500..=26_000).contains(&needed), "{needed}");
    assert_eq!(run.minutes[(SPIKE / MINUTE) as usize].provided / u64::from(MINUTE), provided(&run, -1));
}

#[test]
fn prepared_capacity_goes_when_the_job_has_ended() {
    for name in ["schedule", "coordinator"] {
        let run = day(name);
        // Fifteen minutes below the target, and three until they have an effect.
        assert!((25_000..=27_000).contains(&provided(&run, 60 + 15)), "{name}");
        assert!((5_000..=6_500).contains(&provided(&run, 60 + 22)), "{name}");
    }
}

#[test]
fn a_schedule_is_ready_at_the_spike() {
    let run = day("schedule");
    assert_eq!((provided(&run, 0), run.delay), (25_715, Some(0)));
}

#[test]
fn a_cold_on_demand_table_throttles_for_30_minutes() {
    let run = day("on demand");
    assert!((30..=32).contains(&run.minutes_with_throttles()), "{}", run.minutes_with_throttles());
    assert_eq!(run.highest, None);
    // Twice the users' morning.
    assert!((11_000..=11_700).contains(&provided(&run, 0)), "{}", provided(&run, 0));
}

#[test]
fn a_warm_on_demand_table_costs_a_charge() {
    let design = design("on demand");
    let users = users(1);
    let (cold, warm) = (run(design, 1, &users, 4_000), run(design, 1, &users, 20_000));
    assert_eq!((warm.throttled, warm.delay), (None, Some(0)));
    assert_eq!(warm.cost - cold.cost, 16_000 * 650);
}

#[test]
fn prices_are_those_of_us_east_1() {
    // A thousand units for a day, and a million requests.
    assert_eq!(price::provisioned(1_000 * u64::from(DAY)), 15_600_000);
    assert_eq!(price::on_demand(1_000_000, INITIAL_WARM_THROUGHPUT), 625_000);
    for (millionths, expect) in [(0, "0.00 USD"), (4_999, "0.00 USD"), (5_000, "0.01 USD"), (12_345_678, "12.35 USD")] {
        assert_eq!(price::dollars(millionths), expect);
    }
}

#[test]
fn the_cost_is_that_of_what_is_provided() {
    let run = day("accepted throttles");
    let provided: u64 = run.minutes.iter().map(|Minute { provided, .. }| provided).sum();
    assert_eq!(run.cost, price::provisioned(provided));
    assert_eq!(run.highest, Some(16_000));
}
