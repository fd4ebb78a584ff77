//! Workers' reports and summaries as texts: what Python writes is read, and what is written is what Python writes.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{fs, num::NonZeroU32, path::Path, time::Duration};

use tidegate_aws::{
    rates::text::{self, PythonFloat},
    schema::rates::worker_of,
};
use tidegate_domain::{
    lease::{LeaseKeys, LeaseReport, LeaseTerms, ReportNumber, fleet::LeaseSummary},
    rates::{
        Cutoff, Field, Judgement, Rate, Rates, Reason, judge,
        reading::Content,
        summary::{Previous, Summary},
        tally::Tally,
    },
    time::EpochMillis,
};

fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/rates").join(name)).unwrap()
}

/// Half a minute into 2026.
fn now() -> EpochMillis {
    EpochMillis::new(1_767_225_630_000).unwrap()
}

fn judged(content: &Content) -> Judgement {
    content.map_or_else(Judgement::Rejected, |report| judge(&report, now(), Cutoff::DEFAULT))
}

/// What a text is worth: whether it counts, and with which rates, or why not.
fn check(text: &str, expect: Result<(f64, f64), Reason>) {
    let expect = match expect {
        Ok((read, write)) => Ok(Rates { read: Rate::new(read).unwrap(), write: Rate::new(write).unwrap() }),
        Err(reason) => Err(reason),
    };
    match (judged(&text::report(text.as_bytes())), expect) {
        (Judgement::Fresh { rates, .. }, Ok(expect)) => assert_eq!(rates, expect, "{text}"),
        (Judgement::Rejected(reason), Err(expect)) => assert_eq!(reason, expect, "{text}"),
        (judgement, expect) => panic!("{text}: {judgement:?}, not {expect:?}"),
    }
}

#[test]
fn good_files_count() {
    check(r#"{"worker_id": "w", "timestamp": 1767225630.0, "read_rate": 12.5, "write_rate": 3.0}"#, Ok((12.5, 3.0)));
    check(r#"{"worker_id": "w", "timestamp": 1767225630, "read_rate": 12, "write_rate": 0}"#, Ok((12.0, 0.0)));
    check(r#"{"timestamp": 1767225630.5, "read_rate": 1e-07, "write_rate": 1E+2}"#, Ok((1e-7, 100.0)));
    check(r#" {"timestamp":1.76722563e9,"extra":{"deep":[1,null]}}"#, Ok((0.0, 0.0)));
    check(r#"{"timestamp": 1767225630, "write_rate": -0.0}"#, Ok((0.0, 0.0)));
    check("{\"time\\u0073tamp\": 1767225630, \"worker_id\": \"\\u00fc\"}", Ok((0.0, 0.0)));
}

#[test]
fn bad_files_are_rejected_for_a_reason() {
    for text in [
        "",
        "{",
        "null",
        "7",
        "[1767225630, 1, 1]",
        r#""timestamp""#,
        r#"{"timestamp": 1767225630, "read_rate": 1.0"#,
        r#"{"timestamp": 1767225630, "timestamp": 1767225630}"#,
        r#"{"timestamp": 1767225630} {}"#,
        r#"{"timestamp": 1767225630, "read_rate": nan}"#,
        r#"{"timestamp": 1767225630, "read_rate": 1NaN}"#,
        r#"{"timestamp": 1767225630, "worker_id": "NaN}"#,
        r#"{"timestamp": 1767225630, "read_rate": 01}"#,
        "{'timestamp': 1767225630}",
    ] {
        check(text, Err(Reason::NotJson));
    }
    check("{}", Err(Reason::NoTimestamp));
    check(r#"{"read_rate": 1.0}"#, Err(Reason::NoTimestamp));
    check(r#"{"timestamp": null}"#, Err(Reason::NoTimestamp));
    check(r#"{"timestamp": "1767225630"}"#, Err(Reason::NotNumeric));
    check(r#"{"timestamp": true}"#, Err(Reason::NotNumeric));
    check(r#"{"timestamp": 1767225630, "read_rate": true}"#, Err(Reason::NotNumeric));
    check(r#"{"timestamp": 1767225630, "write_rate": "3"}"#, Err(Reason::NotNumeric));
    check(r#"{"timestamp": 1767225630, "write_rate": [3]}"#, Err(Reason::NotNumeric));
    check(r#"{"timestamp": 1767225630, "write_rate": 1e400}"#, Err(Reason::Infinite));
    check(r#"{"timestamp": 1767225630, "write_rate": -1e-9}"#, Err(Reason::Negative));
    check(r#"{"timestamp": 1767225630, "read_rate": 10000001}"#, Err(Reason::Absurd));
    check(r#"{"timestamp": 1767225646, "read_rate": 1}"#, Err(Reason::Future));
}

#[test]
fn what_python_takes_for_false_is_not_there() {
    for nothing in ["null", "false", "\"\"", "0", "-0.0"] {
        let text = format!(r#"{{"timestamp": 1767225630, "read_rate": {nothing}, "write_rate": 3.0}}"#);
        check(&text, Ok((0.0, 3.0)));
    }
}

#[test]
fn nan_and_infinity_are_recognised() {
    check(r#"{"timestamp": 1767225630, "read_rate": NaN}"#, Err(Reason::NotANumber));
    check(r#"{"timestamp": NaN, "read_rate": 1.0}"#, Err(Reason::NotANumber));
    check(r#"{"timestamp": Infinity, "read_rate": 1.0}"#, Err(Reason::Infinite));
    check(r#"{"timestamp": 1767225630, "read_rate": -Infinity}"#, Err(Reason::Infinite));
    // In a text, they are none of these.
    check(r#"{"worker_id": "NaN Infinity", "timestamp": 1767225630, "read_rate": 1.0}"#, Ok((1.0, 0.0)));
    check(r#"{"worker_id": "\"\\\" NaN\\", "timestamp": 1767225630, "read_rate": 1.0}"#, Ok((1.0, 0.0)));
    check(r#"{"worker_id": "\\", "timestamp": 1767225630, "read_rate": NaN}"#, Err(Reason::NotANumber));
    // One that is not looked at does no harm.
    check(r#"{"timestamp": 1767225630, "read_rate": 1.0, "extra": [NaN, -Infinity]}"#, Ok((1.0, 0.0)));
}

#[test]
fn invalid_utf8_is_not_json() {
    assert_eq!(text::report(b"{\"timestamp\": 1767225630, \"worker_id\": \"\xff\"}"), Err(Reason::NotJson));
}

#[test]
fn a_file_as_python_writes_it_is_read() {
    let report = text::report(fixture("worker-glue-7.json").as_bytes()).unwrap();
    assert_eq!(report.timestamp, Field::Number(1_767_268_804.123_456));
    assert_eq!((report.read_rate, report.write_rate), (Field::Number(12.5), Field::Number(3.0)));
}

/// Each line has a float's bits and what Python's `json.dumps` makes of it.
#[test]
fn floats_are_written_as_python_writes_them() {
    let floats = fixture("floats.tsv");
    assert!(floats.lines().count() > 100);
    for line in floats.lines() {
        let (bits, expect) = line.split_once('\t').unwrap();
        let float = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        assert_eq!(PythonFloat(float).to_string(), expect);
    }
}

/// Each line has the beginning, the rates and what Python's `json.dumps` makes of the five keys.
#[test]
fn summaries_are_written_as_python_writes_them() {
    let summaries = fixture("summaries.tsv");
    for line in summaries.lines() {
        let [began, reads, writes, active, expect] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let began = EpochMillis::new(began.parse().unwrap()).unwrap();
        let rates = |text| serde_json::from_str::<Vec<f64>>(text).unwrap();
        let (reads, writes) = (rates(reads), rates(writes));
        let worker = |number: usize| {
            let rate = |rates: &[f64]| rates.get(number).map_or_else(Rate::default, |rate| Rate::new(*rate).unwrap());
            Judgement::Fresh { rates: Rates { read: rate(&reads), write: rate(&writes) }, at: began }
        };
        let others = [Judgement::Stale, Judgement::Stale, Judgement::Rejected(Reason::NotJson)];
        let tally = (0..active.parse().unwrap()).map(worker).chain(others).collect();
        let summary = Summary { sequence: 7, ..Summary::new(began, tally, Duration::from_secs(5)) };
        let ours = r#", "stale_workers": 2, "rejected_workers": 1, "interval_seconds": 5, "sequence": 7}"#;
        assert_eq!(text::summary(&summary), format!("{}{ours}", expect.strip_suffix('}').unwrap()));
    }
}

#[test]
fn an_interval_is_written_as_it_is_configured() {
    let check = |millis, expect: &str| {
        let interval = Duration::from_millis(millis);
        let summary = Summary::new(now(), Tally::default(), interval);
        assert!(text::summary(&summary).contains(expect), "{}", text::summary(&summary));
    };
    check(5_000, r#""interval_seconds": 5,"#);
    check(250, r#""interval_seconds": 0.25,"#);
}

#[test]
fn only_valid_fields_of_a_summary_count() {
    let check = |text: &str, timestamp, sequence| {
        assert_eq!(text::previous(text.as_bytes()), Previous { timestamp, sequence }, "{text}");
    };
    let at = Field::Number(1_767_225_630.0);
    check(r#"{"timestamp": 1767225630.0, "sequence": 7}"#, at, Some(7));
    check(r#"{"timestamp": 1767225630.0, "aggregated_read_rate": 1.0}"#, at, None);
    check(r#"{"timestamp": 1767225630.0, "sequence": -1}"#, at, None);
    check(r#"{"timestamp": 1767225630.0, "sequence": "7"}"#, at, None);
    check(r#"{"timestamp": 1767225630.0, "sequence": 18446744073709551616}"#, at, None);
    check(r#"{"timestamp": "1"}"#, Field::Other, None);
    check(r#"{"timestamp": null}"#, Field::Missing, None);
    check("[]", Field::Missing, None);
    check("garbage", Field::Missing, None);
}

/// A leasing worker's report, with this in the place of its lease.
fn leasing(lease: &str) -> String {
    format!(r#"{{"worker_id": "w", "timestamp": 1767225630.0, "read_rate": 12.5, "write_rate": 3.0, {lease}}}"#)
}

fn units(read: f64, write: f64) -> Rates {
    Rates { read: Rate::new(read).unwrap(), write: Rate::new(write).unwrap() }
}

#[test]
fn a_leasing_report_is_read_as_it_was_written() {
    let report = LeaseReport {
        number: ReportNumber::new(8),
        follows: Some(ReportNumber::new(7)),
        wants: units(9_999_999.999_999, 0.000_001),
        has: units(0.1, 0.3),
        safe: units(0.0, 0.2),
        weight: NonZeroU32::MIN.saturating_add(2),
    };
    let keys = LeaseKeys { report, cap: Some(units(20_000.0, 500.5)) };
    let text = text::leasing_report("w", now(), units(12.5, 3.0), &keys);
    let expect = leasing(concat!(
        r#""report": 8, "follows": 7, "weight": 3, "#,
        r#""read": {"wants": 9999999.999999, "has": 0.1, "safe": 0.0, "cap": 20000.0}, "#,
        r#""write": {"wants": 1e-06, "has": 0.3, "safe": 0.2, "cap": 500.5}"#,
    ));
    assert_eq!(text, expect);
    for keys in [keys, LeaseKeys { cap: None, report: LeaseReport { follows: None, ..report } }] {
        let read = text::report(text::leasing_report("w", now(), units(12.5, 3.0), &keys).as_bytes()).unwrap();
        assert_eq!((read.lease, read.timestamp), (Some(keys), Field::Number(1_767_225_630.0)));
        assert_eq!((read.read_rate, read.write_rate), (Field::Number(12.5), Field::Number(3.0)));
    }
    let quoted = text::leasing_report("a\"b", now(), units(0.0, 0.0), &keys);
    assert!(text::report(quoted.as_bytes()).is_ok(), "{quoted}");
}

#[test]
fn leases_with_invalid_keys_are_rejected() {
    const READ: &str = r#""read": {"wants": 1, "has": 1, "safe": 1}"#;
    const WRITE: &str = r#""write": {"wants": 1, "has": 1, "safe": 1}"#;
    check(&leasing(&format!(r#""report": 1, "weight": 1, {READ}, {WRITE}"#)), Ok((12.5, 3.0)));
    check(&leasing(&format!(r#""report": null, "weight": "x", {READ}"#)), Ok((12.5, 3.0)));
    for lease in [
        &format!(r#""report": 1.5, "weight": 1, {READ}, {WRITE}"#),
        &format!(r#""report": "1", "weight": 1, {READ}, {WRITE}"#),
        &format!(r#""report": 1, "weight": 0, {READ}, {WRITE}"#),
        &format!(r#""report": 1, {READ}, {WRITE}"#),
        &format!(r#""report": 1, "weight": 1, {READ}"#),
        &format!(r#""report": 1, "weight": 1, {READ}, "write": {{"wants": -1, "has": 1, "safe": 1}}"#),
        &format!(r#""report": 1, "weight": 1, {READ}, "write": {{"wants": 1e9, "has": 1, "safe": 1}}"#),
        &format!(r#""report": 1, "weight": 1, {READ}, "write": {{"wants": NaN, "has": 1, "safe": 1}}"#),
        &format!(r#""report": 1, "weight": 1, {READ}, "write": {{"wants": 1, "has": 1}}"#),
        // A cap of writes only.
        &format!(r#""report": 1, "weight": 1, {READ}, "write": {{"wants": 1, "has": 1, "safe": 1, "cap": 1}}"#),
    ] {
        check(&leasing(lease), Err(Reason::Lease));
    }
}

#[test]
fn the_leases_of_a_summary_are_read_as_they_were_written() {
    let terms =
        LeaseTerms { cap: units(20_000.0, 500.5), active: 2, level: units(0.1, 0.0), growth: units(0.000_001, 0.0) };
    let reports = [("a\"b".to_owned(), ReportNumber::new(7)), ("w".to_owned(), ReportNumber::new(u64::MAX))].into();
    let lease = LeaseSummary { terms, reports };
    let plain = Summary::new(now(), Tally::default(), Duration::from_secs(5));
    let text = text::summary(&Summary { lease: Some(lease.clone()), ..plain.clone() });
    let ours = concat!(
        r#", "lease_seconds": 15, "active": 2, "read": {"cap": 20000.0, "level": 0.1, "growth": 1e-06}, "#,
        r#""write": {"cap": 500.5, "level": 0.0, "growth": 0.0}, "reports": {"a\"b": 7, "w": 18446744073709551615}}"#,
    );
    assert_eq!(text, format!("{}{ours}", text::summary(&plain).strip_suffix('}').unwrap()));
    let read = |text: &str| text::lease::summary(text.as_bytes());
    assert_eq!(read(&text), Some(lease));
    assert_eq!(read(&text.replace(r#""lease_seconds": 15"#, r#""lease_seconds": 16"#)), None);
    assert_eq!(read(&text.replace("0.1", "-0.1")), None);
    assert_eq!((read(&text::summary(&plain)), read("")), (None, None));
}

#[test]
fn only_workers_keys_name_a_worker() {
    let check = |key, expect| assert_eq!(worker_of("fleet/", key), expect, "{key}");
    check("fleet/worker-glue-7.json", Some("glue-7"));
    check("fleet/worker-.json", Some(""));
    check("fleet/summary.json", None);
    check("fleet/worker-7", None);
    check("other/worker-7.json", None);
}
