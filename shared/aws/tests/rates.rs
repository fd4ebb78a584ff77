//! Workers' reports and summaries as texts: what Python writes is read, and what is written is what Python writes.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{fs, path::Path, time::Duration};

use tidegate_aws::rates::text::{self, PythonFloat};
use tidegate_domain::{
    rates::{
        Cutoff, Field, Judgement, Rate, Rates, Reason, judge,
        reading::Content,
        summary::{Previous, Summary},
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
        let summary = Summary { began, tally, interval: Duration::from_secs(5), sequence: 7 };
        let ours = r#", "stale_workers": 2, "rejected_workers": 1, "interval_seconds": 5, "sequence": 7}"#;
        assert_eq!(text::summary(&summary), format!("{}{ours}", expect.strip_suffix('}').unwrap()));
    }
}

#[test]
fn an_interval_is_written_as_it_is_configured() {
    let check = |millis, expect: &str| {
        let interval = Duration::from_millis(millis);
        let summary = Summary { began: now(), tally: [].into_iter().collect(), interval, sequence: 1 };
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
