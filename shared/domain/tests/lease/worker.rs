//! What a worker may use at a moment.

use std::time::Duration;

use tidegate_domain::{
    lease::{
        CONTACT, EQUAL_WEIGHT, LEASE, LeaseReport, LeaseTerms, ReportNumber, START,
        holder::{Basis, LeaseHolder},
    },
    rates::Rates,
};

use crate::{rate, reads, weight};

fn second(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// Terms that let every worker grow to `growth`, and divide a cap of 100.
fn terms(growth: u64, active: u32) -> LeaseTerms {
    LeaseTerms { cap: reads(100), active, level: reads(1_000), growth: reads(growth) }
}

fn report(holder: &mut LeaseHolder, at: Duration) -> LeaseReport {
    holder.begin_report(reads(500), EQUAL_WEIGHT, at)
}

fn check(holder: &LeaseHolder, at: Duration, expect: Rates, basis: Basis) {
    let allowance = holder.allowance(at);
    assert_eq!((allowance.rates, allowance.basis), (expect, basis), "{at:?}");
}

/// A worker that has reported at second 1, was granted `amount`, and has reported that at second 2.
fn leasing(amount: u64, active: u32) -> LeaseHolder {
    let mut holder = LeaseHolder::default();
    let first = report(&mut holder, second(1));
    assert!(holder.adopt(&terms(amount, active), first.number, second(2)));
    let reported = report(&mut holder, second(2));
    assert_eq!((reported.has, reported.follows), (reads(amount), Some(first.number)));
    // The aggregator has now seen what the worker holds.
    assert!(holder.adopt(&terms(0, active), reported.number, second(2)));
    holder
}

#[test]
fn grants_shrink_at_once_and_grow_by_growth() {
    let check = |wants, has, of, level, growth, expect| {
        let terms = LeaseTerms { cap: reads(100), active: 1, level: reads(level), growth: reads(growth) };
        let (number, wants, has) = (ReportNumber::new(1), reads(wants), reads(has));
        let report = LeaseReport { number, follows: None, wants, has, safe: reads(0), weight: weight(of) };
        assert_eq!(terms.grant(&report), reads(expect), "{report:?} {terms:?}");
    };
    check(50, 10, 1, 40, 0, 10);
    check(50, 10, 1, 40, 30, 30);
    check(50, 10, 1, 40, 40, 40);
    check(50, 45, 1, 40, 0, 40);
    check(20, 45, 1, 40, 40, 20);
    check(500, 10, 3, 40, 30, 90);
    check(500, 200, 3, 40, 30, 120);
}

#[test]
fn newcomers_use_one_unit() {
    let mut holder = LeaseHolder::default();
    check(&holder, second(0), START, Basis::Start);
    assert_eq!(START, Rates { read: rate(1_000_000), write: rate(1_000_000) });
    let first = report(&mut holder, second(0));
    assert_eq!((first.number, first.follows, first.has, first.safe), (ReportNumber::new(1), None, reads(0), reads(0)));
    assert_eq!(report(&mut holder, second(5)).number.get(), 2);
    check(&holder, second(100), START, Basis::Start);
    assert_eq!(holder.lease_end(), None);
    assert!(!holder.ends_soon(second(60)));
}

#[test]
fn leases_run_from_the_beginning_of_the_report() {
    let mut holder = LeaseHolder::default();
    let first = report(&mut holder, second(1));
    assert!(!holder.adopt(&terms(40, 2), ReportNumber::new(2), second(9)), "there is no such report");
    assert!(holder.adopt(&terms(40, 2), first.number, second(9)));
    assert_eq!(holder.lease_end(), Some(second(1) + LEASE));
    assert_eq!([0, 11, 12, 14, 15].map(|now| holder.ends_soon(second(1 + now))), [false, false, true, true, false]);
    check(&holder, Duration::from_millis(15_999), reads(40), Basis::Lease);
    check(&holder, second(16), reads(0), Basis::SafeShare);
    // The acknowledged report is stored, and so keeps the contact for its time.
    check(&holder, second(45), reads(0), Basis::SafeShare);
    check(&holder, second(46), START, Basis::Start);
    // A report that was begun too long ago has no lease.
    let mut late = LeaseHolder::default();
    let first = report(&mut late, second(1));
    assert!(!late.adopt(&terms(40, 2), first.number, second(16)));
    assert!(late.adopt(&terms(40, 2), first.number, Duration::from_millis(15_999)));
}

#[test]
fn a_lapsed_worker_falls_to_its_safe_share() {
    check(&leasing(80, 4), second(16), reads(80), Basis::Lease);
    check(&leasing(80, 4), second(17), reads(25), Basis::SafeShare);
    check(&leasing(80, 0), second(17), reads(80), Basis::SafeShare);
    check(&leasing(20, 4), second(17), reads(20), Basis::SafeShare);
    let mut holder = leasing(80, 4);
    let reported = report(&mut holder, second(3));
    assert_eq!((reported.has, reported.safe), (reads(80), reads(25)));
    assert_eq!(report(&mut holder, second(20)).has, reads(25));
}

/// The aggregator may know the acknowledged report only, or any later one.
#[test]
fn a_lapsed_worker_uses_what_all_its_reports_allow() {
    let mut holder = leasing(10, 1);
    let small = report(&mut holder, second(3));
    assert!(holder.adopt(&terms(60, 1), small.number, second(4)));
    check(&holder, second(4), reads(60), Basis::Lease);
    check(&holder, second(18), reads(10), Basis::SafeShare);
    assert_eq!(report(&mut holder, second(5)).safe, reads(10));

    // A report between the acknowledged one and the adoption counts too.
    let mut holder = leasing(80, 1);
    let large = report(&mut holder, second(3));
    assert!(holder.adopt(&terms(0, 1), large.number, second(3)));
    let acknowledged = report(&mut holder, second(10));
    check(&holder, second(18), reads(80), Basis::SafeShare);
    let lower = LeaseTerms { level: reads(30), ..terms(30, 1) };
    assert!(holder.adopt(&lower, acknowledged.number, second(11)));
    check(&holder, second(25), reads(30), Basis::SafeShare);
    let low = report(&mut holder, second(12));
    assert_eq!(low.has, reads(30));
    let high = LeaseTerms { level: reads(70), ..terms(70, 1) };
    assert!(holder.adopt(&high, low.number, second(13)));
    check(&holder, second(27), reads(30), Basis::SafeShare);
}

/// The aggregator may have seen a later report than the one that the summary acknowledges, and rely on it.
#[test]
fn a_lapsed_worker_uses_what_later_reports_allow() {
    let mut holder = leasing(80, 4);
    let before = report(&mut holder, second(10));
    let after = report(&mut holder, second(18));
    assert_eq!((before.has, after.has), (reads(80), reads(25)));
    assert!(holder.adopt(&terms(0, 1), before.number, second(19)));
    check(&holder, second(19), reads(80), Basis::Lease);
    check(&holder, second(25), reads(25), Basis::SafeShare);
}

#[test]
fn only_newer_acknowledgements_are_adopted() {
    let mut holder = LeaseHolder::default();
    let [first, second_report, third] = [1, 2, 3].map(|at| report(&mut holder, second(at)));
    assert!(holder.adopt(&terms(40, 1), second_report.number, second(4)));
    assert!(!holder.adopt(&terms(50, 1), second_report.number, second(4)));
    assert!(!holder.adopt(&terms(50, 1), first.number, second(4)));
    assert!(holder.adopt(&terms(50, 1), third.number, second(4)));
    check(&holder, second(4), reads(50), Basis::Lease);
}

#[test]
fn a_worker_without_contact_drops_its_lease() {
    let mut holder = leasing(40, 1);
    // The last report that is known to be stored was begun at second 2.
    let before = Duration::from_millis(46_999);
    check(&holder, before, reads(40), Basis::SafeShare);
    check(&holder, second(2) + CONTACT, START, Basis::Start);

    // Each confirmed report prolongs it, from its beginning on.
    let third = report(&mut holder, second(10));
    holder.confirm(third.number, second(24));
    holder.confirm(ReportNumber::new(1), second(24));
    holder.confirm(ReportNumber::new(99), second(24));
    check(&holder, second(54), reads(40), Basis::SafeShare);
    check(&holder, second(55), START, Basis::Start);
    assert_eq!(report(&mut holder.clone(), second(54)).has, reads(40));
    let lost = report(&mut holder.clone(), second(55));
    assert_eq!((lost.has, lost.safe, lost.follows), (reads(0), reads(0), None));
}

#[test]
fn a_confirmation_after_the_lease_changes_nothing() {
    let mut holder = leasing(40, 1);
    let old = report(&mut holder, second(10));
    let mut in_time = holder.clone();
    for (holder, at) in [(&mut in_time, second(24)), (&mut holder, second(25))] {
        assert_eq!(report(holder, at).has, reads(40));
        holder.confirm(old.number, at);
    }
    check(&in_time, second(50), reads(40), Basis::SafeShare);
    check(&holder, second(50), START, Basis::Start);
}

#[test]
fn a_late_confirmation_brings_no_lease_back() {
    let mut holder = leasing(40, 1);
    let late = report(&mut holder, second(46));
    let mut in_time = holder.clone();
    in_time.confirm(late.number, Duration::from_millis(46_999));
    check(&in_time, second(60), reads(40), Basis::SafeShare);
    let mut unconfirmed = holder.clone();
    assert!(!unconfirmed.adopt(&terms(30, 1), late.number, second(47)));
    holder.confirm(late.number, second(47));
    check(&holder, second(47), START, Basis::Start);
    // A summary may still acknowledge the late report, but the aggregator has given the lease away before.
    assert!(!holder.adopt(&terms(30, 1), late.number, second(48)));
    let next = report(&mut holder, second(48));
    assert_eq!((next.has, next.follows), (reads(0), None));
    assert!(holder.adopt(&terms(30, 1), next.number, second(49)));
    check(&holder, second(49), reads(30), Basis::Lease);
}
