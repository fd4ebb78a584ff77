//! Burst capacity of a provisioned table, and warm throughput of an on-demand table.

use proptest::prelude::*;

use crate::spikes::{
    table::{BURST_SECONDS, INITIAL_WARM_THROUGHPUT, OnDemandTable, ProvisionedTable},
    traffic::MINUTE,
};

#[test]
fn unused_capacity_of_300_seconds_is_kept() {
    let mut table = ProvisionedTable::new(10);
    assert_eq!((table.serve(5_000), table.burst()), (3_010, 0));
    assert_eq!((table.serve(11), table.burst()), (10, 0));
    assert_eq!((table.serve(4), table.burst()), (4, 6));
    assert_eq!((table.serve(12), table.burst()), (12, 4));
    for _ in 0..1_000 {
        assert_eq!(table.serve(0), 0);
    }
    assert_eq!(table.burst(), 3_000);
}

/// The arithmetic of the article: 4,000 write units a second at 70 % and at 60 %, and a jump to 18,000.
#[test]
fn full_burst_capacity_lasts_four_or_five_minutes() {
    for (capacity, expect) in [(8_000, 240), (9_333, 323)] {
        let mut table = ProvisionedTable::new(capacity);
        let seconds = (0..1_000).find(|_| table.serve(18_000) < 18_000);
        assert_eq!(seconds, Some(expect), "{capacity}");
    }
}

#[test]
fn a_lower_capacity_keeps_less_burst_capacity() {
    let mut table = ProvisionedTable::new(10);
    table.set_capacity(20);
    assert_eq!((table.capacity(), table.burst()), (20, 3_000));
    table.set_capacity(2);
    assert_eq!((table.capacity(), table.burst()), (2, 600));
}

proptest! {
    #[test]
    fn served_requests_fit_capacity_and_burst_capacity(
        first in 0..1_000_u64,
        seconds in proptest::collection::vec((0..5_000_u64, proptest::option::weighted(0.05, 0..1_000_u64)), 0..2_000),
    ) {
        let mut table = ProvisionedTable::new(first);
        let (mut provided, mut served) = (BURST_SECONDS * first, 0);
        for (demanded, capacity) in seconds {
            if let Some(capacity) = capacity {
                table.set_capacity(capacity);
            }
            let before = table.burst();
            let now = table.serve(demanded);
            prop_assert_eq!(now, demanded.min(table.capacity() + before));
            prop_assert!(table.burst() <= BURST_SECONDS * table.capacity());
            provided += table.capacity();
            served += now;
            prop_assert!(served + table.burst() <= provided, "{} of {} are served", served, provided);
        }
    }

    #[test]
    fn warm_throughput_never_falls_nor_exceeds_twice_the_peak(minutes in proptest::collection::vec(0..30_000_u64, 0..120)) {
        let mut table = OnDemandTable::new(INITIAL_WARM_THROUGHPUT);
        let mut peak = 0;
        for (minute, demanded) in (0..).zip(minutes) {
            for second in 0..MINUTE {
                let warm = table.warm();
                let served = table.serve(demanded, minute * MINUTE + second);
                prop_assert_eq!(served, demanded.min(warm));
                peak = peak.max(served);
                prop_assert!(table.warm() >= warm);
                prop_assert!(table.warm() <= INITIAL_WARM_THROUGHPUT.max(2 * peak));
            }
        }
    }
}

#[test]
fn traffic_doubles_warm_throughput_after_30_minutes() {
    let mut table = OnDemandTable::new(4_000);
    let mut minute = |minute: u32, demanded: u64| {
        let served: u64 = (0..MINUTE).map(|second| table.serve(demanded, minute * MINUTE + second)).sum();
        served / u64::from(MINUTE)
    };
    assert_eq!(minute(0, 3_000), 3_000);
    // It is the rate that a table serves that doubles, not the rate that it is asked for.
    for at in 1..=30 {
        assert_eq!(minute(at, 9_000), 4_000, "{at}");
    }
    assert_eq!(minute(31, 9_000), 6_000);
    assert_eq!(minute(32, 9_000), 8_000);
    for at in 33..=61 {
        assert_eq!(minute(at, 9_000), 8_000, "{at}");
    }
    assert_eq!(minute(62, 9_000), 9_000);
}
