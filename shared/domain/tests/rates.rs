//! Proof of the rate aggregator's rules: which reports count, and that their sum does not depend on their order.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate_domain::{
    rates::{
        Cutoff, Field, Judgement, Rate, Rates, Reason, Report, judge,
        reading::{Listed, MAX_SIZE, Memory, Step, judge_content},
        rest::LastWrites,
        summary::{Previous, Replacement, decide_replacement},
        tally::Tally,
    },
    time::EpochMillis,
};

/// 2026-01-01T00:00:00Z, in seconds.
const NOW: f64 = 1_767_225_600.0;

fn now() -> EpochMillis {
    EpochMillis::new(1_767_225_600_000).unwrap()
}

fn number(value: f64) -> Field {
    Field::Number(value)
}

fn check(timestamp: Field, read_rate: Field, write_rate: Field, expect: Judgement) {
    let report = Report { timestamp, read_rate, write_rate, lease: None, is_first: false };
    assert_eq!(judge(&report, now(), Cutoff::DEFAULT), expect, "{report:?}");
}

/// A fresh judgement of a report with these rates and this age in milliseconds.
fn fresh(read: f64, write: f64, age: i64) -> Judgement {
    let rates = Rates { read: Rate::new(read).unwrap(), write: Rate::new(write).unwrap() };
    Judgement::Fresh { rates, at: EpochMillis::new(1_767_225_600_000 - age).unwrap() }
}

#[test]
fn good_reports_count() {
    let one = number(1.0);
    check(number(NOW), number(12.5), number(3.0), fresh(12.5, 3.0, 0));
    check(number(NOW - 5.123), number(0.0), number(-0.0), fresh(0.0, 0.0, 5_123));
    check(number(NOW - 15.0), one, one, fresh(1.0, 1.0, 15_000));
    check(number(NOW + 15.0), one, one, fresh(1.0, 1.0, -15_000));
    check(number(NOW), Field::Missing, one, fresh(0.0, 1.0, 0));
    check(number(NOW), Field::Missing, Field::Missing, fresh(0.0, 0.0, 0));
    check(number(NOW), number(10_000_000.0), number(1e-6), fresh(10_000_000.0, 1e-6, 0));
    check(number(NOW), number(1e-300), one, fresh(0.0, 1.0, 0));
}

#[test]
fn old_reports_are_stale_whatever_else_they_say() {
    let one = number(1.0);
    check(number(NOW - 15.001), one, one, Judgement::Stale);
    check(number(0.0), one, one, Judgement::Stale);
    check(number(NOW - 20.0), Field::Other, number(-1.0), Judgement::Stale);
}

#[test]
fn bad_reports_are_rejected_for_a_reason() {
    let (one, rejected) = (number(1.0), Judgement::Rejected);
    check(Field::Missing, one, one, rejected(Reason::NoTimestamp));
    check(Field::Other, one, one, rejected(Reason::NotNumeric));
    check(number(f64::NAN), one, one, rejected(Reason::NotANumber));
    check(number(f64::INFINITY), one, one, rejected(Reason::Infinite));
    check(number(f64::NEG_INFINITY), one, one, rejected(Reason::Infinite));
    check(number(-1.0), one, one, rejected(Reason::Negative));
    check(number(NOW + 15.001), one, one, rejected(Reason::Future));
    // In milliseconds, by mistake.
    check(number(NOW * 1000.0), one, one, rejected(Reason::Future));
    check(number(1e300), one, one, rejected(Reason::Future));
    for (rate, reason) in [
        (Field::Other, Reason::NotNumeric),
        (number(f64::NAN), Reason::NotANumber),
        (number(f64::INFINITY), Reason::Infinite),
        (number(f64::NEG_INFINITY), Reason::Infinite),
        (number(-0.001), Reason::Negative),
        (number(10_000_000.1), Reason::Absurd),
        (number(1e300), Reason::Absurd),
    ] {
        check(number(NOW), rate, one, rejected(reason));
        check(number(NOW), one, rate, rejected(reason));
    }
}

fn listed(key: &str, tag: &str, size: u64, age: i64) -> Listed {
    let modified = EpochMillis::new(1_767_225_600_000 - age).ok();
    Listed { key: key.to_owned(), tag: Some(tag.to_owned()), size, modified }
}

#[test]
fn only_unknown_fresh_reports_are_fetched() {
    let mut memory = Memory::default();
    let content = Ok(Report {
        timestamp: number(NOW),
        read_rate: number(1.0),
        write_rate: number(1.0),
        lease: None,
        is_first: false,
    });
    memory.remember("known".to_owned(), "t1".to_owned(), content);
    memory.end_listing(true);
    let check = |listed: Listed, expect| {
        assert_eq!(memory.step(&listed, now(), Cutoff::DEFAULT), expect, "{listed:?}");
    };
    check(listed("new", "t1", 150, 0), Step::Fetch);
    check(listed("known", "t1", 150, 0), Step::Known(content));
    check(listed("known", "t2", 150, 0), Step::Fetch);
    check(Listed { tag: None, ..listed("known", "t1", 150, 0) }, Step::Fetch);
    // S3 truncates times to seconds.
    check(listed("new", "t1", 150, 61_000), Step::Fetch);
    check(listed("known", "t1", 150, 61_000), Step::Known(content));
    check(listed("new", "t1", 150, 61_001), Step::Judged(Judgement::Stale));
    check(listed("known", "t1", 150, 61_001), Step::Judged(Judgement::Stale));
    check(Listed { modified: None, ..listed("new", "t1", 150, 0) }, Step::Fetch);
    check(listed("new", "t1", MAX_SIZE, 0), Step::Fetch);
    check(listed("new", "t1", MAX_SIZE + 1, 0), Step::Judged(Judgement::Rejected(Reason::TooLarge)));
}

#[test]
fn a_complete_listing_forgets_missing_reports() {
    let mut memory = Memory::default();
    for key in ["a", "b"] {
        memory.remember(key.to_owned(), "t".to_owned(), Err(Reason::NotJson));
    }
    memory.end_listing(true);
    assert_eq!((memory.len(), memory.keep("a"), memory.keep("c")), (1 + 1, Some(Err(Reason::NotJson)), None));
    // An incomplete listing says nothing about the other reports.
    memory.end_listing(false);
    assert_eq!(memory.len(), 2);
    memory.keep("a");
    memory.end_listing(true);
    assert_eq!((memory.len(), memory.is_empty()), (1, false));
    memory.end_listing(true);
    assert!(memory.is_empty());
}

/// A worker's report, by its expected judgement.
#[derive(Clone, Debug)]
enum Kind {
    /// Fresh, with rates in millionths.
    Fresh {
        read: u64,
        write: u64,
        age: i64,
    },
    Stale,
    Bad(Reason),
}

fn kind() -> impl Strategy<Value = Kind> {
    let rate = || prop_oneof![0..=Rate::MAX.millionths(), 0..20_000_000_u64];
    prop_oneof![
        4 => (rate(), rate(), -15_000..=15_000_i64).prop_map(|(read, write, age)| Kind::Fresh { read, write, age }),
        1 => Just(Kind::Stale),
        2 => prop::sample::select(Reason::ALL.to_vec()).prop_map(Kind::Bad),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "both are far below 2^53")]
fn judgement(kind: &Kind) -> Judgement {
    let content = |timestamp, read_rate| {
        Ok(Report { timestamp, read_rate, write_rate: Field::Missing, lease: None, is_first: false })
    };
    let content = match *kind {
        Kind::Fresh { read, write, age } => Ok(Report {
            timestamp: number((1_767_225_600_000 - age) as f64 / 1000.0),
            read_rate: number(read as f64 / 1e6),
            write_rate: number(write as f64 / 1e6),
            lease: None,
            is_first: false,
        }),
        Kind::Stale => content(number(NOW - 3_600.0), number(7.0)),
        Kind::Bad(reason) => match reason {
            Reason::TooLarge | Reason::NotJson | Reason::Lease => Err(reason),
            Reason::NoTimestamp => content(Field::Missing, number(7.0)),
            Reason::NotNumeric => content(number(NOW), Field::Other),
            Reason::NotANumber => content(number(NOW), number(f64::NAN)),
            Reason::Infinite => content(number(NOW), number(f64::INFINITY)),
            Reason::Negative => content(number(NOW), number(-7.0)),
            Reason::Absurd => content(number(NOW), number(1e9)),
            Reason::Future => content(number(NOW + 60.0), number(7.0)),
        },
    };
    judge_content(&content, now(), Cutoff::DEFAULT)
}

/// Sums up the reports in another order.
fn tally(kinds: &[Kind], order: &[prop::sample::Index]) -> Tally {
    let mut kinds = kinds.to_vec();
    for (place, index) in order.iter().enumerate().take(kinds.len()) {
        let other = index.index(kinds.len());
        kinds.swap(place, other);
    }
    kinds.iter().map(judgement).collect()
}

proptest! {
    /// The expected sums come from the kinds, not from the code under test.
    #[test]
    fn a_summary_sums_the_fresh_valid_files(
        kinds in prop::collection::vec(kind(), 0..60),
        order in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let tally = tally(&kinds, &order);
        let (mut reads, mut writes, mut active, mut stale, mut oldest) = (0, 0, 0, 0, None);
        for kind in &kinds {
            match kind {
                Kind::Fresh { read, write, age } => {
                    (reads, writes, active) = (reads + u128::from(*read), writes + u128::from(*write), active + 1);
                    oldest = oldest.max(Some(*age));
                }
                Kind::Stale => stale += 1,
                Kind::Bad(reason) => prop_assert!(tally.rejected_for(*reason) > 0),
            }
        }
        prop_assert_eq!((tally.read().millionths(), tally.write().millionths()), (reads, writes));
        prop_assert_eq!((tally.active, tally.stale), (active, stale));
        prop_assert_eq!(tally.rejected(), kinds.len() - active - stale);
        let oldest = oldest.map(|age| u128::from(u64::try_from(age).unwrap_or(0)));
        prop_assert_eq!(tally.oldest_age(now()).map(|age| age.as_millis()), oldest);
        prop_assert_eq!(tally, kinds.iter().map(judgement).collect());
    }

    /// A summary that began later, but not in the future, stays, for any duration of the other one and any cutoff.
    #[test]
    fn no_summary_replaces_a_newer_one(
        took in 0..900_000_i64,
        ahead in 0.0..=1.0_f64,
        seconds in 1..60_u32,
        sequence in any::<Option<u64>>(),
    ) {
        let moment = |millis: i64| EpochMillis::new(1_767_225_600_000 + millis).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "far below 2^53")]
        let ahead = (took as f64 * ahead) as i64;
        let timestamp = number(moment(ahead).seconds());
        let cutoff = Cutoff::from_seconds(seconds.try_into().unwrap());
        let replacement = decide_replacement(Some(Previous { timestamp, sequence }), moment(0), moment(took), cutoff);
        prop_assert_eq!(replacement, Replacement::Superseded);
    }

    /// A silent job is listed again within a tenth of its silence, or a minute. A job with a fresh report does not rest.
    #[test]
    fn rests_are_short_and_no_active_job_rests(
        report in prop::option::of(0..10_000_000_i64),
        summary in prop::option::of(0..10_000_000_i64),
        now in 0..10_000_000_i64,
    ) {
        let moment = |millis| EpochMillis::new(millis).unwrap();
        let writes = LastWrites { report: report.map(moment), summary: summary.map(moment) };
        let Some(rest) = writes.rest(moment(now), Cutoff::DEFAULT, Duration::from_secs(5)) else { return Ok(()) };
        prop_assert!(report.is_none_or(|report| now - report > 15_000));
        prop_assert!(!rest.covers(moment(now + 60_000)));
        if let Some(last) = report.or(summary) {
            prop_assert!(!rest.covers(moment(now + (now - last).max(0) / 10 + 1)));
        }
    }

    /// For any floats, the sum is within half a millionth a worker of the exact one.
    #[test]
    fn rounding_costs_half_a_millionth_a_worker(rates in prop::collection::vec(0.0..1e7_f64, 0..100)) {
        let mut tally = Tally::default();
        let mut exact = 0_i128;
        for rate in &rates {
            let rates = Rates { read: Rate::new(*rate).unwrap(), write: Rate::default() };
            tally.count(Judgement::Fresh { rates, at: now() });
            // To 2^-60, which is far below the tested precision.
            #[expect(clippy::cast_possible_truncation, reason = "2^84 at most")]
            { exact += (rate * 2_f64.powi(60)) as i128; }
        }
        let count = i128::try_from(rates.len()).unwrap();
        let error = (i128::try_from(tally.read().millionths()).unwrap() << 60) - exact * 1_000_000;
        prop_assert!(error.abs() <= (count << 59) + count * 1_000_000, "{error}");
        let units = tally.read().units();
        let millionths = (units * 1e6).round();
        prop_assert_eq!(millionths.to_string(), tally.read().millionths().to_string());
    }
}
