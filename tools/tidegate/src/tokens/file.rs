//! A file of limits, as rate-limiter-py's `LimitLoader` reads it, or the same as TOML.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value};
use tidegate_domain::token_limits::{FileLimit, LimitKey};

const SERVICE: &str = "service";
const LIMITS: &str = "limits";
const ACCOUNT: &str = "accountId";
const RESOURCE: &str = "resourceName";
const LIMIT: &str = "limit";
const WINDOW: &str = "windowSec";

/// The longest partition key and the longest sort key of a table, in bytes.
///
/// AWS: [partition keys and sort keys](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys).
const LONGEST_PARTITION_KEY: usize = 2048;
const LONGEST_SORT_KEY: usize = 1024;

/// The most characters of a value that an error quotes.
const LONGEST_QUOTE: usize = 100;

/// The content of a limits file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LimitsFile {
    pub service: Option<String>,
    pub limits: BTreeMap<LimitKey, FileLimit>,
    /// Warnings for the operator. They do not stop the command.
    pub warnings: Vec<String>,
}

impl LimitsFile {
    /// Reads a file: TOML if its name ends in `.toml`, else JSON.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
        let read = || {
            let text = fs::read_to_string(path)?;
            Self::of(&if is_toml { toml::from_str(&text)? } else { serde_json::from_str(&text)? })
        };
        read().with_context(|| path.display().to_string())
    }

    fn of(value: &Value) -> anyhow::Result<Self> {
        let top = value.as_object().with_context(|| format!("expected an object, got {}", quoted(Some(value))))?;
        let mut file = Self::default();
        file.warn_of_ignored("", top, &[SERVICE, LIMITS]);
        if top.contains_key(SERVICE) {
            file.service = Some(name("", top, SERVICE, LONGEST_PARTITION_KEY)?);
        }
        let limits = top.get(LIMITS);
        let entries = limits.and_then(Value::as_array);
        let entries = entries.with_context(|| format!("{LIMITS}: expected an array, got {}", quoted(limits)))?;
        let mut places: BTreeMap<LimitKey, usize> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let place = format!("{LIMITS}[{at}]");
            let fields = entry.as_object();
            let fields = fields.with_context(|| format!("{place}: expected an object, got {}", quoted(Some(entry))))?;
            let place = format!("{place}.");
            file.warn_of_ignored(&place, fields, &[ACCOUNT, RESOURCE, LIMIT, WINDOW]);
            let key = LimitKey {
                resource: name(&place, fields, RESOURCE, LONGEST_PARTITION_KEY)?,
                account: name(&place, fields, ACCOUNT, LONGEST_SORT_KEY)?,
            };
            let window_seconds = if fields.contains_key(WINDOW) { number(&place, fields, WINDOW)? } else { 0 };
            let limit = FileLimit { limit: number(&place, fields, LIMIT)?, window_seconds };
            if let Some(first) = places.insert(key.clone(), at) {
                let LimitKey { resource, account } = key;
                bail!("{LIMITS}[{first}] and {LIMITS}[{at}] are both for account {account:?} on resource {resource:?}");
            }
            file.limits.insert(key, limit);
        }
        file.warn_of_colons();
        Ok(file)
    }

    fn warn_of_ignored(&mut self, place: &str, fields: &Map<String, Value>, known: &[&str]) {
        let unknown = fields.keys().filter(|field| !known.contains(&field.as_str()));
        let known = known.join(", ");
        self.warnings.extend(unknown.map(|field| format!("{place}{field} is ignored: the known keys are {known}")));
    }

    fn warn_of_colons(&mut self) {
        let resources: BTreeSet<_> = self.limits.keys().map(|key| &key.resource).collect();
        self.warnings.extend(resources.into_iter().filter(|resource| resource.contains(':')).map(|resource| {
            format!(
                "{RESOURCE} {resource:?} has a colon: rate-limiter-py may count its reservations for another resource and \
                 account, and the crate tidegate refuses reservations of it"
            )
        }));
    }
}

/// Reads a name of at most so many bytes.
fn name(place: &str, fields: &Map<String, Value>, field: &str, longest: usize) -> anyhow::Result<String> {
    let value = fields.get(field);
    if let Some(Value::Number(number)) = value {
        bail!("{place}{field}: expected a string, got the number {number}: put it in quotes");
    }
    let text = value.and_then(Value::as_str).filter(|text| !text.is_empty());
    let text =
        text.with_context(|| format!("{place}{field}: expected a string that is not empty, got {}", quoted(value)))?;
    let length = text.len();
    ensure!(length <= longest, "{place}{field}: expected at most {longest} bytes, got {length}: {}", quoted(value));
    Ok(text.to_owned())
}

fn number(place: &str, fields: &Map<String, Value>, field: &str) -> anyhow::Result<i64> {
    let value = fields.get(field);
    let number = value.and_then(Value::as_i64).filter(|number| *number >= 0);
    number.with_context(|| {
        let most = if value.is_some_and(Value::is_u64) { format!(" to {}", i64::MAX) } else { String::new() };
        format!("{place}{field}: expected a whole number from 0{most}, got {}", quoted(value))
    })
}

/// A value as JSON, cut if it is long.
fn quoted(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    let cut: String = text.chars().take(LONGEST_QUOTE).collect();
    if cut.len() < text.len() { format!("{cut}...") } else { text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(account: &str, resource: &str) -> Value {
        json!({"accountId": account, "resourceName": resource, "limit": 10})
    }

    /// An entry in which one field has another value.
    fn entry_with(field: &str, value: &Value) -> Value {
        let mut entry = entry("1", "emr");
        entry[field] = value.clone();
        json!({"limits": [self::entry("2", "emr"), entry]})
    }

    fn refused(value: &Value, expect: &str) {
        let message = format!("{:#}", LimitsFile::of(value).unwrap_err());
        assert_eq!(message, expect, "{value}");
    }

    #[test]
    fn a_missing_window_is_zero() {
        let mut with_window = entry("1", "emr");
        with_window["windowSec"] = json!(60);
        let file = LimitsFile::of(&json!({"service": "s", "limits": [with_window, entry("2", "emr")]})).unwrap();
        let windows: Vec<_> = file.limits.values().map(|limit| (limit.limit, limit.window_seconds)).collect();
        assert_eq!((file.service.as_deref(), windows), (Some("s"), vec![(10, 60), (10, 0)]));
        assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    }

    #[test]
    fn numbers_must_be_whole() {
        let values = [json!("10"), json!(-1), json!(1.5), json!(10.0), json!(true), json!(null), json!([1])];
        for (field, value) in
            [LIMIT, WINDOW].into_iter().flat_map(|field| values.iter().map(move |value| (field, value)))
        {
            refused(
                &entry_with(field, value),
                &format!("limits[1].{field}: expected a whole number from 0, got {value}"),
            );
        }
        let most = "expected a whole number from 0 to 9223372036854775807, got 9223372036854775808";
        refused(&entry_with(LIMIT, &json!(1_u64 << 63)), &format!("limits[1].limit: {most}"));
        let missing = json!({"limits": [{"accountId": "1", "resourceName": "emr"}]});
        refused(&missing, "limits[0].limit: expected a whole number from 0, got nothing");
        assert!(LimitsFile::of(&entry_with(LIMIT, &json!(i64::MAX))).is_ok());
    }

    #[test]
    fn names_must_fit_a_key() {
        for (field, value) in
            [(ACCOUNT, json!("")), (ACCOUNT, json!([])), (RESOURCE, json!("")), (RESOURCE, json!(null))]
        {
            let expect = format!("limits[1].{field}: expected a string that is not empty, got {value}");
            refused(&entry_with(field, &value), &expect);
        }
        let number = "limits[1].accountId: expected a string, got the number 123: put it in quotes";
        refused(&entry_with(ACCOUNT, &json!(123)), number);
        for (field, longest) in [(ACCOUNT, 1024), (RESOURCE, 2048)] {
            assert!(LimitsFile::of(&entry_with(field, &json!("x".repeat(longest)))).is_ok());
            let (text, start) = ("x".repeat(longest + 1), "x".repeat(99));
            let expect =
                format!("limits[1].{field}: expected at most {longest} bytes, got {}: \"{start}...", text.len());
            refused(&entry_with(field, &json!(text)), &expect);
        }
        refused(&json!({"service": 1, "limits": []}), "service: expected a string, got the number 1: put it in quotes");
    }

    #[test]
    fn limits_must_be_an_array_of_objects() {
        refused(&json!([]), "expected an object, got []");
        refused(&json!({}), "limits: expected an array, got nothing");
        refused(&json!({"limits": {"a": 1}}), "limits: expected an array, got {\"a\":1}");
        refused(&json!({"limits": [entry("1", "emr"), "x"]}), "limits[1]: expected an object, got \"x\"");
    }

    #[test]
    fn a_key_may_occur_once() {
        let limits = [("1", "emr"), ("ab", "c"), ("a", "bc")].map(|(account, resource)| entry(account, resource));
        assert_eq!(LimitsFile::of(&json!({"limits": limits})).unwrap().limits.len(), 3);
        let limits = [("1", "emr"), ("2", "emr"), ("1", "emr")].map(|(account, resource)| entry(account, resource));
        refused(&json!({"limits": limits}), "limits[0] and limits[2] are both for account \"1\" on resource \"emr\"");
    }

    #[test]
    fn ignored_keys_and_colons_are_warned_of() {
        let mut value = entry_with("windowsec", &json!(60));
        value["version"] = json!(1);
        value["limits"].as_array_mut().unwrap().extend([entry("1", "a:b"), entry("2", "a:b")]);
        let warnings = LimitsFile::of(&value).unwrap().warnings;
        let [version, window, colon] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(version.starts_with("version is ignored: the known keys are service, limits"), "{version}");
        assert!(window.starts_with("limits[1].windowsec is ignored") && window.contains("windowSec"), "{window}");
        assert!(colon.starts_with("resourceName \"a:b\" has a colon"), "{colon}");
    }
}
