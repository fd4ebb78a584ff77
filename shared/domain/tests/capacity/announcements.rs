//! Which announcements are accepted.

use std::{slice::from_ref, time::Duration};

use tidegate_domain::capacity::{
    Capacity,
    announcement::{self, Announcement, Demand, Limits, Measured, Minute, Refusal, Request, accept, demand},
};

use crate::{announcement, at, index, request, table, units};

const LIMITS: Limits =
    Limits { units: None, units_per_caller: None, duration: Duration::from_hours(24), announcements: 1_000 };

/// The consumption in the minute before the moment 600.
fn measured(consumption: u64) -> Measured {
    let minute = Minute { from: at(540), consumption: units(consumption) };
    Measured { minutes: vec![minute], maximum: Some(units(40_000)), may_scale_in: true }
}

/// Decides at the moment 600.
fn decide(request: Request, consumption: u64, stored: &[Announcement]) -> Result<Announcement, Refusal> {
    accept(request, &[measured(consumption)], stored, &LIMITS, at(600), at(600))
}

#[track_caller]
fn check_refused(decided: Result<Announcement, Refusal>, expect: &str) {
    let message = decided.unwrap_err().to_string();
    assert!(message.contains(expect), "{message:?} does not say {expect:?}");
}

#[test]
fn a_first_announcement_is_made_with_the_consumption() {
    let accepted = decide(request("load-42", 14_000, 600), 4_000, &[]).unwrap();
    assert_eq!(accepted, announcement("load-42", 14_000, [600, 1_200], None));
    let expect = Demand { other: units(4_000), announced: units(14_000) };
    assert_eq!(demand([&accepted], &table(), at(1_199)), Some(expect));
    assert_eq!(demand([&accepted], &table(), at(1_200)), None);
    assert_eq!(demand([&accepted], &index(), at(600)), None);
}

#[test]
fn announcements_add_up() {
    let stored = [announcement("a", 1_000, [600, 601], None), announcement("b", 2_000, [0, 540], None)];
    let third = decide(request("c", 500, 60), 4_500, &stored).unwrap();
    let all = [&stored[0], &stored[1], &third];
    let expect = Demand { other: units(4_500), announced: units(1_500) };
    assert_eq!(demand(all, &table(), at(600)), Some(expect));
    assert_eq!(expect.total(), units(6_000));
}

/// The consumption of 18,500 holds 14,000 units of announced work, if that ran in the minute from 540 to 600.
#[test]
fn announced_work_counts_once() {
    let check = |consumption, time: [u64; 2], expect: u64| {
        let stored = [announcement("a", 14_000, time, None)];
        let accepted = decide(request("b", 1_000, 60), consumption, &stored).unwrap();
        assert_eq!(accepted.needs[0].other, units(expect), "{consumption} {time:?}");
    };
    check(18_500, [0, 900], 4_500);
    check(18_500, [599, 900], 4_500);
    check(18_500, [600, 900], 18_500);
    // It has ended since.
    check(18_500, [0, 541], 4_500);
    check(18_500, [0, 540], 18_500);
    // Less other traffic than when it was announced is not assumed, nor more than all that was measured.
    check(10_000, [0, 900], 4_000);
    check(500, [0, 900], 500);
}

/// The job before had the same id.
#[test]
fn the_work_of_the_last_run_counts_once() {
    let stored = [announcement("a", 14_000, [0, 590], None)];
    let again = decide(request("a", 14_000, 60), 18_000, &stored).unwrap();
    assert_eq!(again.needs[0].other, units(4_000));
}

/// In the first minute, no announced work ran.
#[test]
fn each_minute_counts_for_itself() {
    let stored = [announcement("a", 14_000, [540, 900], None)];
    let minutes = [(480, 15_000), (540, 18_000)];
    let minutes = minutes.map(|(from, consumption)| Minute { from: at(from), consumption: units(consumption) });
    let measured = Measured { minutes: minutes.to_vec(), maximum: None, may_scale_in: true };
    let accepted = accept(request("b", 1, 60), &[measured], &stored, &LIMITS, at(600), at(600)).unwrap();
    assert_eq!(accepted.needs[0].other, units(15_000));
}

#[test]
fn the_latest_announcement_knows_the_other_traffic() {
    let early = announcement("a", 1_000, [0, 900], None);
    let late = decide(request("b", 500, 60), 1_200, from_ref(&early)).unwrap();
    let expect = Demand { other: units(1_200), announced: units(1_500) };
    assert_eq!(demand([&late, &early], &table(), at(600)), Some(expect));
    assert_eq!(demand([&early, &late], &table(), at(600)), Some(expect));
    assert_eq!(demand([&early, &late], &table(), at(660)).map(|demand| demand.other), Some(units(4_000)));
}

#[test]
fn the_same_id_is_one_announcement() {
    let stored = [announcement("a", 1_000, [0, 900], Some(100))];
    let check = |units, seconds, expect_until, expect_ready: Option<u64>| {
        // Its own work may run, so the consumption is not looked at.
        let again = decide(request("a", units, seconds), 30_000, &stored).unwrap();
        assert_eq!(again, announcement("a", units, [0, expect_until], expect_ready));
    };
    check(1_000, 600, 1_200, Some(100));
    // A late repetition ends nothing earlier.
    check(1_000, 60, 900, Some(100));
    check(900, 600, 1_200, Some(100));
    // More units are not ready yet.
    check(1_001, 600, 1_200, None);
}

#[test]
fn an_id_in_force_is_not_given_to_another() {
    let stored = [announcement("a", 1_000, [0, 601], None)];
    let expect = "id \"a\" is in force for table/orders#write from caller \"etl\" until 2026-01-01T00:10:01Z";
    check_refused(decide(Request { caller: String::new(), ..request("a", 1, 60) }, 0, &stored), expect);
    check_refused(decide(Request { targets: vec![index()], ..request("a", 1, 60) }, 0, &stored), expect);
    let ended = [announcement("a", 1_000, [0, 600], None)];
    assert!(decide(Request { caller: String::new(), ..request("a", 1, 60) }, 0, &ended).is_ok());
}

/// The clock of the process that released it is ahead.
#[test]
fn a_released_announcement_never_counts() {
    let released = Announcement { released: Some(at(605)), ..announcement("a", 1_000, [0, 605], None) };
    assert_eq!(demand([&released], &table(), at(600)), None);
}

#[test]
fn a_request_from_before_the_release_is_refused() {
    let released = Announcement { released: Some(at(590)), ..announcement("a", 1_000, [0, 590], None) };
    let decide = |begun| accept(request("a", 1, 60), &[measured(0)], from_ref(&released), &LIMITS, at(begun), at(600));
    check_refused(decide(590), "id \"a\" was released after this request had begun");
    assert!(decide(591).is_ok());
}

#[test]
fn a_run_does_not_announce_what_it_has_released() {
    let of_run = |run: &str| Request { run: Some(run.to_owned()), ..request("a", 1, 60) };
    let decide = |request, stored: &Announcement, now| {
        accept(request, &[measured(0)], from_ref(stored), &LIMITS, at(now), at(now))
    };
    let first = announcement("a", 1_000, [0, 900], None).release(Some("x"), at(590));
    assert_eq!((first.until, first.released, first.was_released_by(Some("x"))), (at(590), Some(at(590)), true));
    let refused = "id \"a\" was released after this request had begun, or by the same run";
    check_refused(decide(of_run("x"), &first, 600), refused);
    assert!(decide(request("a", 1, 60), &first, 600).is_ok());
    // Neither another run nor its release lets the first one in again.
    let second = decide(of_run("y"), &first, 600).unwrap();
    check_refused(decide(of_run("x"), &second, 601), refused);
    let released = second.release(Some("y"), at(602)).release(None, at(602));
    for run in ["x", "y"] {
        check_refused(decide(of_run(run), &released, 700), refused);
    }
    // It is forgotten when no request can be on its way.
    let third = decide(of_run("z"), &released, 590 + 600).unwrap();
    assert_eq!(third.released_runs.keys().collect::<Vec<_>>(), ["y"]);
    assert!(decide(of_run("x"), &third, 590 + 601).is_ok());
}

/// A process whose clock is slow releases it again.
#[test]
fn a_release_is_never_moved_back() {
    let released = announcement("a", 1_000, [0, 900], None).release(None, at(590)).release(None, at(580));
    assert_eq!((released.until, released.released), (at(580), Some(at(590).after(Duration::from_millis(1)))));
}

/// The work went on when it could not be announced again in time.
#[test]
fn a_lapsed_announcement_goes_on() {
    let lapsed = [announcement("a", 14_000, [0, 500], Some(60))];
    let again = decide(request("a", 14_000, 60), 18_000, &lapsed).unwrap();
    assert_eq!(again, announcement("a", 14_000, [0, 660], None));
    // It is not in force, so others may have announced what is left.
    let others = [lapsed[0].clone(), announcement("b", 30_000, [550, 900], None)];
    check_refused(decide(request("a", 14_000, 60), 18_000, &others), "the maximum of table/orders#write is 40000");
    // After a release, it is a new one.
    let released = [lapsed[0].clone().release(None, at(490))];
    assert_eq!(decide(request("a", 14_000, 60), 18_000, &released).unwrap().since, at(600));
    // Another caller's work is measured.
    let other = Request { caller: String::new(), ..request("a", 14_000, 60) };
    assert_eq!(decide(other, 18_000, &lapsed).unwrap().needs[0].other, units(18_000));
}

/// The other traffic may have grown since.
#[test]
fn what_is_in_force_stays_accepted() {
    let stored = [announcement("a", 16_000, [0, 900], None), announcement("b", 24_000, [500, 900], None)];
    assert!(decide(request("a", 16_000, 60), 0, &stored).is_ok());
    check_refused(decide(request("a", 16_001, 60), 0, &stored), "the maximum of table/orders#write is 40000");
}

#[test]
fn capacity_that_would_stay_raised_is_refused_unless_it_is_in_force() {
    let raises_only = Measured { may_scale_in: false, ..measured(0) };
    let decide = |stored: &[Announcement]| {
        accept(request("a", 1, 60), from_ref(&raises_only), stored, &LIMITS, at(600), at(600))
    };
    check_refused(decide(&[]), "auto scaling may not scale in table/orders#write");
    check_refused(decide(&[announcement("a", 1_000, [0, 600], None)]), "auto scaling may not scale in");
    assert!(decide(&[announcement("a", 1_000, [0, 601], None)]).is_ok());
}

/// Metrics may be late.
#[test]
fn without_a_measurement_the_known_traffic_counts() {
    let nothing = Measured { minutes: Vec::new(), ..measured(0) };
    let decide = |stored: &[Announcement]| {
        accept(request("b", 100, 60), from_ref(&nothing), stored, &LIMITS, at(600), at(600)).unwrap().needs[0].other
    };
    assert_eq!(decide(&[announcement("a", 1_000, [0, 900], None)]), units(4_000));
    assert_eq!(decide(&[announcement("a", 1_000, [0, 600], None)]), units(0));
}

#[test]
fn the_maximum_must_serve_all() {
    let stored = [announcement("a", 20_000, [600, 900], None)];
    assert!(decide(request("b", 16_000, 60), 4_000, &stored).is_ok());
    check_refused(
        decide(request("b", 16_001, 60), 4_000, &stored),
        "the maximum of table/orders#write is 40000, too low by 1 for a consumption of 4000 and 36001 announced units",
    );
    let on_demand = Measured { maximum: None, ..measured(4_000) };
    assert!(accept(request("b", 16_001, 60), &[on_demand], &stored, &LIMITS, at(600), at(600)).is_ok());
}

#[test]
fn each_target_is_checked() {
    let both = Request { targets: vec![index(), table()], ..request("a", 1_000, 60) };
    let low = Measured { maximum: Some(units(4_999)), ..measured(4_000) };
    let accepted = accept(both.clone(), &[measured(3_000), measured(4_000)], &[], &LIMITS, at(600), at(600)).unwrap();
    let needs: Vec<_> = accepted.needs.iter().map(|need| (need.target.clone(), need.other)).collect();
    assert_eq!(needs, [(index(), units(3_000)), (table(), units(4_000))]);
    check_refused(
        accept(both, &[measured(0), low], &[], &LIMITS, at(600), at(600)),
        "the maximum of table/orders#write is 4999",
    );
}

#[test]
fn limits_are_kept() {
    let stored = [announcement("a", 1_000, [600, 900], None)];
    let decide = |limits: Limits, caller: &str, units| {
        let request = Request { caller: caller.to_owned(), ..request("b", units, 60) };
        accept(request, &[measured(0)], &stored, &limits, at(600), at(600))
    };
    let total = Limits { units: Some(units(3_000)), ..LIMITS };
    assert!(decide(total, "", 2_000).is_ok());
    check_refused(decide(total, "", 2_001), "3001 units would be announced for table/orders#write: the limit is 3000");
    let per_caller = Limits { units_per_caller: Some(units(3_000)), ..LIMITS };
    assert!(decide(per_caller, "", 2_001).is_ok());
    check_refused(decide(per_caller, "etl", 2_001), "table/orders#write by caller \"etl\": the limit is 3000");
    check_refused(
        decide(Limits { duration: Duration::from_secs(59), ..LIMITS }, "", 1),
        "for_seconds is 60: the limit",
    );
    check_refused(decide(Limits { announcements: 1, ..LIMITS }, "", 1), "1 announcements are in force");
    // The same id is no further announcement, and its units are replaced.
    let again = |limits| accept(request("a", 3_000, 60), &[measured(0)], &stored, &limits, at(600), at(600));
    assert!(again(Limits { announcements: 1, ..per_caller }).is_ok());
}

#[test]
fn names_are_checked() {
    for (id, expect) in [("load-42", true), ("a/b:c.d_e#f@g", true), ("", false), ("a b", false), ("ä", false)] {
        assert_eq!(announcement::is_id(id), expect, "{id:?}");
    }
    assert_eq!([128, 129].map(|length| announcement::is_id(&"a".repeat(length))), [true, false]);
    assert_eq!([128, 129].map(|length| announcement::is_caller(&"ä".repeat(length))), [true, false]);
    assert_eq!(["", "an ETL job", "a\n"].map(announcement::is_caller), [true, true, false]);
    assert_eq!(announcement::MOST_UNITS, Capacity::new(2_000_000_000));
}
