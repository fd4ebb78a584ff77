//! What the aggregator reserves and gives away.

use std::{collections::BTreeMap, num::NonZeroU32};

use tidegate_domain::{
    lease::{
        EQUAL_WEIGHT, LeaseReport, LeaseTerms, ReportNumber,
        ledger::{Ledger, Sighting, StoredSummary},
    },
    rates::Rates,
    time::EpochMillis,
};

use crate::{at, rate, reads, weight};

/// The lowest cap whose 98 % are 1,000 units or more.
const CAP: u64 = 1_021;

fn report(number: u64, follows: u64, wants: u64, has: u64) -> LeaseReport {
    let follows = (follows > 0).then(|| ReportNumber::new(follows));
    let (number, wants, has) = (ReportNumber::new(number), reads(wants), reads(has));
    LeaseReport { number, follows, wants, has, safe: has, weight: EQUAL_WEIGHT }
}

/// A fleet's files, as an aggregator sees them.
#[derive(Default)]
struct Files(BTreeMap<&'static str, (i64, Option<LeaseReport>)>);

impl Files {
    fn put(&mut self, worker: &'static str, written: i64, report: LeaseReport) -> &mut Self {
        self.0.insert(worker, (written, Some(report)));
        self
    }

    /// The file is there, but cannot be read.
    fn hide(&mut self, worker: &'static str, written: i64) -> &mut Self {
        self.0.insert(worker, (written, None));
        self
    }

    fn plan(&self, ledger: &mut Ledger, now: i64) -> LeaseTerms {
        self.plan_beside(ledger, Rates::default(), now)
    }

    fn plan_beside(&self, ledger: &mut Ledger, others: Rates, now: i64) -> LeaseTerms {
        let sightings = self.0.iter().map(|(worker, (written, report))| Sighting {
            worker,
            written: at(*written),
            report: *report,
        });
        ledger.plan(sightings, reads(CAP), others, at(now))
    }
}

/// The level and the growth.
fn heights(terms: &LeaseTerms) -> (u64, u64) {
    (terms.level.read.millionths(), terms.growth.read.millionths())
}

fn reserved(ledger: &Ledger, worker: &str, now: i64) -> Option<u64> {
    ledger.reserved(worker, at(now)).map(|rates| rates.read.millionths())
}

fn stored(written: i64, reports: &[(&str, u64)]) -> StoredSummary {
    let number = |(worker, number): &(&str, u64)| ((*worker).to_owned(), ReportNumber::new(*number));
    StoredSummary { written: Some(at(written)), reports: reports.iter().map(number).collect() }
}

fn first_ledger() -> Ledger {
    Ledger::new(None, EpochMillis::EPOCH)
}

#[test]
fn a_grant_is_reserved_until_a_report_follows_it() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 0));
    assert_eq!(heights(&files.plan(&mut ledger, 0)), (1_000, 1_000));
    assert_eq!(reserved(&ledger, "a", 0), Some(1_000));
    // Another worker gets nothing while the first may hold all.
    files.put("b", 1_000, report(1, 0, 2_000, 0));
    assert_eq!(heights(&files.plan(&mut ledger, 1_000)), (500, 0));
    files.put("a", 2_000, report(2, 0, 2_000, 0));
    assert_eq!(heights(&files.plan(&mut ledger, 2_000)), (500, 0));
    // The worker has adopted the grant to its second report, so the first grant does not matter.
    files.put("a", 3_000, report(3, 2, 2_000, 0));
    assert_eq!(reserved(&ledger, "a", 3_000), Some(1_000));
    assert_eq!(heights(&files.plan(&mut ledger, 3_000)), (500, 500));
    assert_eq!(reserved(&ledger, "a", 3_000), Some(500));
    assert_eq!(reserved(&ledger, "c", 3_000), None);
}

/// Of two summaries that acknowledge the same report, the worker adopts one.
#[test]
fn the_larger_grant_to_a_report_is_reserved() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 0));
    files.plan(&mut ledger, 0);
    files.put("b", 0, report(1, 0, 2_000, 0));
    files.plan(&mut ledger, 0);
    assert_eq!((reserved(&ledger, "a", 0), reserved(&ledger, "b", 0)), (Some(1_000), Some(0)));
    files.put("a", 0, report(2, 1, 2_000, 500));
    assert_eq!(heights(&files.plan(&mut ledger, 1_000)), (500, 500));
    assert_eq!((reserved(&ledger, "a", 1_000), reserved(&ledger, "b", 1_000)), (Some(500), Some(500)));
}

#[test]
fn an_older_report_changes_nothing() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(2, 0, 2_000, 700));
    files.plan(&mut ledger, 0);
    files.put("a", 5_000, report(1, 0, 10, 10));
    assert_eq!(heights(&files.plan(&mut ledger, 5_000)), (1_000, 1_000));
    assert_eq!(reserved(&ledger, "a", 5_000), Some(1_000));
    let numbers: Vec<_> = ledger.reports().map(|(worker, number)| (worker.to_owned(), number.get())).collect();
    assert_eq!(numbers, [("a".to_owned(), 2)]);
    // Its lease ends when that of the second report does, even if the same file arrives again.
    files.put("a", 10_000, report(2, 0, 2_000, 700));
    files.plan(&mut ledger, 10_000);
    assert_eq!(reserved(&ledger, "a", 15_374), Some(1_000));
    assert_eq!(reserved(&ledger, "a", 15_375), Some(700));
}

/// Both clocks may be off by 1 %, in opposite directions.
#[test]
fn a_lease_ends_a_fortieth_late() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, LeaseReport { safe: reads(200), ..report(1, 0, 2_000, 700) });
    files.put("b", 0, report(1, 0, 10, 0));
    // A safe share of the summary is 510.
    assert_eq!(files.plan(&mut ledger, 0).active, 2);
    assert_eq!(reserved(&ledger, "a", 15_374), Some(990));
    assert_eq!(reserved(&ledger, "a", 15_375), Some(510));
    // A worker whose lease has ended keeps what it may use, and takes no part.
    files.put("b", 20_000, report(2, 1, 2_000, 10));
    let terms = files.plan(&mut ledger, 20_000);
    assert_eq!((heights(&terms), terms.active), ((490, 490), 1));
    // That summary grants it nothing, so its larger safe share does not matter.
    assert_eq!(reserved(&ledger, "a", 20_000), Some(510));
}

/// The worker may have read a summary with a large safe share before a later one, and hold that.
#[test]
fn the_largest_safe_share_since_the_last_report_counts() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    let lapsing = |number| LeaseReport { safe: reads(0), ..report(number, 0, 2_000, 900) };
    files.put("a", 0, lapsing(1));
    assert_eq!(files.plan(&mut ledger, 0).active, 1);
    for worker in ["b", "c"] {
        files.put(worker, 1_000, report(1, 0, 10, 0));
    }
    for (now, number) in [(1_000, 1), (14_000, 2), (16_000, 3)] {
        files.put("a", now, lapsing(number));
        files.put("b", now, report(number, 0, 10, 0));
        files.plan(&mut ledger, now);
    }
    assert_eq!(reserved(&ledger, "a", 60_000), Some(900));
    let follower = LeaseReport { follows: Some(ReportNumber::new(2)), ..lapsing(4) };
    files.put("a", 17_000, follower);
    files.plan(&mut ledger, 17_000);
    assert_eq!(reserved(&ledger, "a", 60_000), Some(CAP / 2));
}

#[test]
fn a_large_safe_share_in_between_counts() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    for (now, number, others) in [(0, 1, true), (1_000, 2, false), (17_000, 3, true)] {
        files.0.clear();
        files.put("a", now, LeaseReport { safe: reads(0), ..report(number, 0, 2_000, 900) });
        if others {
            files.put("b", now, report(number, 0, 10, 0)).put("c", now, report(number, 0, 10, 0));
        }
        files.plan(&mut ledger, now);
    }
    assert_eq!(reserved(&ledger, "a", 60_000), Some(900));
}

#[test]
fn grants_that_have_ended_are_not_reserved() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 0));
    files.plan(&mut ledger, 0);
    files.put("a", 10_000, report(2, 0, 100, 0));
    files.plan(&mut ledger, 10_000);
    assert_eq!((reserved(&ledger, "a", 15_374), reserved(&ledger, "a", 15_375)), (Some(1_000), Some(100)));
}

/// A worker may report for hours without reading a summary.
#[test]
fn a_ledger_stays_small() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    for number in 1..1_000 {
        let now = i64::try_from(number).unwrap() * 5_000;
        files.put("a", now, report(number, 0, 2_000, 0));
        files.plan(&mut ledger, now);
    }
    let grants = format!("{ledger:?}").matches("OutstandingGrant").count();
    assert!(grants <= 5, "{grants}");
}

#[test]
fn silent_workers_keep_their_room_for_a_minute() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("dead", 0, report(9, 8, 2_000, 400));
    files.plan(&mut ledger, 0);
    let mut check = |now: i64, expect, known| {
        files.put("a", now, report(u64::try_from(now).unwrap(), 0, 2_000, 0));
        let terms = files.plan(&mut ledger, now);
        assert_eq!((heights(&terms).0, ledger.reports().count()), (expect, known), "{now}");
    };
    check(15_374, 500, 2);
    check(15_375, 600, 2);
    check(60_000, 600, 2);
    check(60_001, 1_000, 1);
}

#[test]
fn a_deleted_file_frees_its_room() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 600)).put("b", 0, report(1, 0, 2_000, 0));
    assert_eq!(heights(&files.plan(&mut ledger, 0)), (500, 400));
    files.0.remove("a");
    assert_eq!(heights(&files.plan(&mut ledger, 1_000)), (1_000, 1_000));
    assert_eq!(ledger.reports().count(), 1);
}

#[test]
fn a_file_that_cannot_be_read_counts_as_before() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 600)).put("b", 0, report(1, 0, 2_000, 0));
    files.plan(&mut ledger, 0);
    files.hide("a", 55_000).put("b", 5_000, report(2, 1, 2_000, 400));
    assert_eq!(heights(&files.plan(&mut ledger, 5_000)), (500, 400));
    // The store has received a file, so the worker is not silent.
    files.put("b", 61_000, report(3, 1, 2_000, 400));
    assert_eq!(heights(&files.plan(&mut ledger, 61_000)), (400, 400));
    // What was never read is not known to hold anything.
    files.hide("c", 61_000);
    assert_eq!((heights(&files.plan(&mut ledger, 61_000)), ledger.reports().count()), ((400, 400), 2));
}

#[test]
fn others_get_a_fiftieth_more_than_they_use() {
    let (mut ledger, mut files) = (first_ledger(), Files::default());
    files.put("a", 0, report(1, 0, 2_000, 0));
    let mut check = |others, expect| {
        let terms = files.plan_beside(&mut ledger, reads(others), 0);
        assert_eq!(heights(&terms).0, expect, "{others}");
    };
    check(200, 796);
    check(980, 1);
    check(981, 0);
    check(5_000, 0);
}

#[test]
fn a_new_ledger_is_quiet_for_a_lease() {
    let check = |written: Option<i64>, started: i64, quiet_until: i64| {
        let stored = StoredSummary { written: written.map(at), ..stored(0, &[("a", 1)]) };
        for (now, expect) in [(quiet_until - 1, 0), (quiet_until, 1_000)] {
            let mut ledger = Ledger::new(Some(stored.clone()), at(started));
            let mut files = Files::default();
            files.put("a", now, report(2, 1, 2_000, 0));
            assert_eq!(heights(&files.plan(&mut ledger, now)), (1_000, expect), "{written:?} {started} {now}");
        }
    };
    check(Some(0), 0, 15_375);
    check(Some(0), 5_000, 20_375);
    // The clocks of the store and of the aggregator may differ by ten seconds, and times are in whole seconds.
    check(Some(0), 12_000, 27_375);
    check(Some(0), 50_000, 27_375);
    check(None, 50_000, 65_375);
}

#[test]
fn a_new_ledger_knows_what_was_acknowledged() {
    let mut ledger = Ledger::new(Some(stored(0, &[("a", 5), ("gone", 1), ("dead", 1)])), at(60_000));
    let mut files = Files::default();
    files.put("a", 60_000, report(4, 3, 2_000, 100)).put("b", 60_000, report(1, 0, 2_000, 0)).hide("dead", -1);
    // The file of `a` is older than the report that was acknowledged: the worker may use more than the file says.
    assert_eq!(heights(&files.plan(&mut ledger, 60_000)), (1_000, 0));
    assert_eq!(reserved(&ledger, "a", 60_000), None);
    let numbers: Vec<_> = ledger.reports().map(|(worker, number)| (worker.to_owned(), number.get())).collect();
    assert_eq!(numbers, [("a".to_owned(), 5), ("b".to_owned(), 1)]);
    files.put("a", 61_000, report(5, 3, 2_000, 300));
    assert_eq!(heights(&files.plan(&mut ledger, 61_000)), (500, 500));
    assert_eq!(reserved(&ledger, "a", 61_000), Some(500));
}

/// The worker may follow a summary of an earlier ledger, whose safe share is not known.
#[test]
fn a_new_ledger_reserves_what_reports_say() {
    let mut ledger = Ledger::new(Some(stored(0, &[("a", 2)])), at(0));
    let mut files = Files::default();
    let mut check = |number, follows, expect| {
        files.put("a", 0, LeaseReport { safe: reads(100), ..report(number, follows, 2_000, 900) });
        files.put("b", 0, report(number, 0, 10, 0));
        files.plan(&mut ledger, 0);
        assert_eq!(reserved(&ledger, "a", 60_000), Some(expect), "{number} {follows}");
    };
    check(2, 1, 900);
    check(3, 1, 900);
    // It follows the acknowledged report, so later grants are those of this ledger, with half of the cap as safe share.
    check(4, 2, CAP / 2);
}

/// A report that an earlier ledger has acknowledged too may be granted more now, and for longer.
#[test]
fn a_new_ledger_remembers_its_own_grants() {
    let mut ledger = Ledger::new(Some(stored(0, &[("a", 1)])), at(12_000));
    let mut files = Files::default();
    files.put("a", 20_000, report(1, 0, 2_000, 0));
    files.plan(&mut ledger, 20_000);
    assert_eq!(heights(&files.plan(&mut ledger, 30_000)), (1_000, 1_000));
    assert_eq!((reserved(&ledger, "a", 35_374), reserved(&ledger, "a", 35_375)), (Some(1_000), Some(0)));
}

#[test]
fn reads_and_writes_are_shared_separately() {
    let mut ledger = first_ledger();
    let both = |read, write| Rates { read: rate(read), write: rate(write) };
    let of = |number, wants, has, of: NonZeroU32| LeaseReport {
        number: ReportNumber::new(number),
        follows: None,
        wants,
        has,
        safe: has,
        weight: of,
    };
    let reports = [of(1, both(2_000, 10), both(0, 100), weight(1)), of(1, both(2_000, 90), both(400, 0), weight(3))];
    let sightings = ["a", "b"].into_iter().zip(reports).map(|(worker, report)| Sighting {
        worker,
        written: at(0),
        report: Some(report),
    });
    let terms = ledger.plan(sightings, both(CAP, 103), both(0, 10), at(0));
    assert_eq!((terms.level, terms.growth), (both(250, 26), both(250, 0)));
    assert_eq!((terms.cap, terms.active), (both(CAP, 103), 2));
    assert_eq!(terms.safe_share(), both(510, 51));
}

#[test]
fn workers_are_due_what_they_want_and_at_most_their_share_by_weight() {
    let mut files = Files::default();
    files.put("small", 0, report(1, 0, 100, 0));
    files.put("heavy", 0, LeaseReport { weight: weight(3), ..report(1, 0, 5_000, 0) });
    let mut ledger = Ledger::new(None, at(0));
    files.plan(&mut ledger, 0);
    let due = |cap, others, now| ledger.due(reads(cap), others, at(now)).read.millionths();
    // They want 5,100 together. Of 10,204, 9,999 are given away, of 1,021, 1,000.
    assert_eq!([due(10_204, 0, 0), due(CAP, 0, 0)], [5_100, 1_000]);
    // They have four of eight shares.
    assert_eq!([due(10_204, 4, 0), due(CAP, 4, 0)], [4_999, 500]);
    // Their leases have ended.
    assert_eq!(due(CAP, 4, 15_375), 0);
}
