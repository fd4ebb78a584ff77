//! Reports and summaries as texts: JSON, in the very shape in which Python writes it.

pub mod lease;

use std::{borrow::Cow, fmt, time::Duration};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidegate_domain::{
    lease::LeaseKeys,
    rates::{
        Field, Rates, Reason, Report,
        reading::Content,
        summary::{Previous, Summary},
    },
    time::EpochMillis,
};

use crate::schema::rates::{
    ACTIVE_WORKERS, AGGREGATED_READ_RATE, AGGREGATED_WRITE_RATE, AGGREGATION_TIME_UTC, INTERVAL_SECONDS, READ_RATE,
    REJECTED_WORKERS, SEQUENCE, STALE_WORKERS, TIMESTAMP, WORKER_ID, WRITE_RATE,
};

/// What a report says. Python also writes `NaN` and `Infinity`, which are not JSON; and it treats
/// falsy values such as null as missing.
///
/// Python: [`json.dumps`](https://docs.python.org/3/library/json.html#infinite-and-nan-number-values) and NaN.
pub fn report(text: &[u8]) -> Content {
    #[derive(Deserialize)]
    struct Fields<'a> {
        // As `schema::rates` names them.
        #[serde(borrow, default, deserialize_with = "raw")]
        timestamp: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "raw")]
        read_rate: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "raw")]
        write_rate: Option<&'a RawValue>,
        report: Option<&'a RawValue>,
    }
    let text = readable(text).ok_or(Reason::NotJson)?;
    let Fields { timestamp, read_rate, write_rate, report } = object(&text).ok_or(Reason::NotJson)?;
    let lease = match report {
        Some(_) => Some(lease::keys(&text).ok_or(Reason::Lease)?),
        None => None,
    };
    Ok(Report {
        timestamp: field(timestamp),
        read_rate: field(read_rate),
        write_rate: field(write_rate),
        lease,
        is_first: false,
    })
}

/// A leasing worker's report. Python's aggregator reads the first four keys.
pub fn leasing_report(worker: &str, at: EpochMillis, used: Rates, keys: &LeaseKeys) -> String {
    let number = |value: f64| PythonFloat(value).to_string();
    let fields = [
        (WORKER_ID, serde_json::Value::from(worker).to_string()),
        (TIMESTAMP, number(at.seconds())),
        (READ_RATE, number(used.read.units())),
        (WRITE_RATE, number(used.write.units())),
    ];
    written(fields.into_iter().chain(lease::report_fields(keys)))
}

/// Reads what is known of a stored summary. Nothing is known if the text is not a summary.
pub fn previous(text: &[u8]) -> Previous {
    #[derive(Default, Deserialize)]
    struct Fields<'a> {
        #[serde(borrow, default, deserialize_with = "raw")]
        timestamp: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "raw")]
        sequence: Option<&'a RawValue>,
    }
    let text = readable(text);
    let Fields { timestamp, sequence } = text.as_deref().and_then(object).unwrap_or_default();
    Previous { timestamp: field(timestamp), sequence: sequence.and_then(|sequence| sequence.get().parse().ok()) }
}

/// A summary as Python's `json.dumps` would write it, with our keys behind those of the Python aggregator.
pub fn summary(summary: &Summary) -> String {
    let Summary { tally, read, write, sequence, lease, .. } = summary;
    let number = |value: f64| PythonFloat(value).to_string();
    let fields = [
        (TIMESTAMP, number(summary.timestamp())),
        (AGGREGATED_READ_RATE, number(read.units())),
        (AGGREGATED_WRITE_RATE, number(write.units())),
        (ACTIVE_WORKERS, tally.active.to_string()),
        (AGGREGATION_TIME_UTC, format!("\"{}\"", summary.time_utc())),
        (STALE_WORKERS, tally.stale.to_string()),
        (REJECTED_WORKERS, tally.rejected().to_string()),
        (INTERVAL_SECONDS, seconds(summary.interval)),
        (SEQUENCE, sequence.to_string()),
    ];
    written(fields.into_iter().chain(lease.iter().flat_map(lease::summary_fields)))
}

/// A JSON object of these names and values, as Python writes it.
fn written<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fields = fields.into_iter().map(|(name, value)| format!("\"{name}\": {value}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

/// An integer where it is one, as in the configuration.
fn seconds(interval: Duration) -> String {
    if interval.subsec_nanos() == 0 {
        interval.as_secs().to_string()
    } else {
        PythonFloat(interval.as_secs_f64()).to_string()
    }
}

/// A finite float as Python's `repr` writes it: the fewest digits that tell it from all others, with a point or an
/// exponent of two digits or more.
///
/// Python: [`json.dumps`](https://docs.python.org/3/library/json.html#json.dumps) writes floats by `float.__repr__`.
#[derive(Clone, Copy, Debug)]
pub struct PythonFloat(pub f64);

impl fmt::Display for PythonFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = *self;
        if value == 0.0 || (1e-4..1e16).contains(&value.abs()) {
            // Rust, too, writes the fewest digits, and `.0` behind a whole number.
            return write!(f, "{value:?}");
        }
        let text = format!("{value:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return f.write_str(&text) };
        match exponent.strip_prefix('-') {
            Some(exponent) => write!(f, "{digits}e-{exponent:0>2}"),
            None => write!(f, "{digits}e+{exponent:0>2}"),
        }
    }
}

/// Python's literals that are not JSON, and their JSON replacements.
const LITERALS: [(&str, &str); 2] = [("NaN", NAN), ("Infinity", "1e999")];
const NAN: &str = "\"NaN\"";

/// A text with JSON in the place of Python's literals.
fn readable(text: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(text).ok()?;
    if !LITERALS.iter().any(|(literal, _)| text.contains(literal)) {
        return Some(Cow::Borrowed(text));
    }
    // The parts between quotes are, by turns, outside of strings and within. A quote behind an odd number of
    // backslashes ends no string.
    let (mut readable, mut is_string) = (String::with_capacity(text.len()), false);
    for part in text.split_inclusive('"') {
        if is_string {
            readable.push_str(part);
            let rest = part.strip_suffix('"').unwrap_or(part);
            is_string = (rest.len() - rest.trim_end_matches('\\').len()) % 2 == 1;
        } else {
            let part = LITERALS.iter().fold(part.to_owned(), |part, (literal, json)| part.replace(literal, json));
            readable.push_str(&part);
            is_string = true;
        }
    }
    Some(Cow::Owned(readable))
}

fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    // A list would pass for an object without names.
    let is_object = text.trim_ascii_start().starts_with('{');
    if is_object { serde_json::from_str(text).ok() } else { None }
}

/// A field that is there, be it null.
fn raw<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn field(value: Option<&RawValue>) -> Field {
    let value = match value.map(RawValue::get) {
        None | Some("null" | "false" | "\"\"") => return Field::Missing,
        Some(NAN) => return Field::Number(f64::NAN),
        Some(value) => value,
    };
    let is_number = value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    // What is beyond all floats is infinite, as in Python.
    if is_number { value.parse().map_or(Field::Other, Field::Number) } else { Field::Other }
}
