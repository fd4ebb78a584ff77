//! The requests of the function `capacity-coordinator`, in its JSON.

use serde::Serialize;
use tidegate_aws::table;
use tidegate_domain::{
    capacity::announcement::{MOST_UNITS, is_caller, is_id},
    throttle::CapacityKind,
};

use crate::error::InvalidRequest;

/// The most characters of an id and of a caller, for the error.
const LONGEST: usize = 128;
/// The most characters of the name of a table or an index, for the error.
const LONGEST_TABLE: usize = 255;

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub(super) enum Request<'a> {
    Announce {
        id: &'a str,
        run: &'a str,
        #[serde(flatten)]
        work: &'a Work,
    },
    Release {
        id: &'a str,
        /// The run that must not announce it again, however late its invocations arrive.
        #[serde(skip_serializing_if = "Option::is_none")]
        run: Option<&'a str>,
    },
    List,
    Status {
        table: &'a str,
        index: Option<&'a str>,
        #[serde(with = "super::answer::kind")]
        dimension: CapacityKind,
    },
}

/// What is announced.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Work {
    pub(super) table: String,
    pub(super) index: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) with_table: bool,
    #[serde(with = "super::answer::kind")]
    pub(super) dimension: CapacityKind,
    pub(super) units: u64,
    pub(super) for_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) warm: bool,
}

impl Work {
    /// Checks the values by the function's rules.
    pub(super) fn check(&self) -> Result<(), InvalidRequest> {
        if !(1..=MOST_UNITS.get()).contains(&self.units) {
            let expected = "1 to 2000000000 capacity units a second";
            return Err(InvalidRequest::Number { field: "units", value: self.units, expected });
        }
        if self.for_seconds == 0 {
            return Err(InvalidRequest::Number { field: "duration", value: 0, expected: "at least one second" });
        }
        named("table", &self.table, table::is_name, "a table's name or ARN", LONGEST_TABLE)?;
        if let Some(index) = &self.index {
            let is_index = |text: &str| table::is_name(text) && !text.starts_with("arn:");
            named("index", index, is_index, "an index's name", LONGEST_TABLE)?;
        }
        named("caller", self.caller.as_deref().unwrap_or_default(), is_caller, "no control characters", LONGEST)
    }
}

fn named(
    field: &'static str,
    value: &str,
    is_valid: impl Fn(&str) -> bool,
    expected: &'static str,
    longest: usize,
) -> Result<(), InvalidRequest> {
    if is_valid(value) {
        return Ok(());
    }
    Err(InvalidRequest::Name { field, value: value.to_owned(), longest, expected })
}

/// Checks an id by the function's rule.
pub(super) fn checked_id(id: String) -> Result<String, InvalidRequest> {
    named("announcement id", &id, is_id, "letters, digits and _ - . : / # @", LONGEST)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work() -> Work {
        Work {
            table: "orders".to_owned(),
            index: None,
            with_table: false,
            dimension: CapacityKind::Write,
            units: 4000,
            for_seconds: 600,
            caller: None,
            warm: false,
        }
    }

    #[test]
    fn requests_have_the_functions_keys() {
        let check = |request: Request<'_>, expect| assert_eq!(serde_json::to_value(request).unwrap(), expect);
        let plain = json!({
            "action": "announce", "id": "load-42", "run": "r-1", "table": "orders", "index": null, "dimension": "write",
            "units": 4000, "for_seconds": 600,
        });
        check(Request::Announce { id: "load-42", run: "r-1", work: &work() }, plain);
        let (index, caller) = (Some("by-date".to_owned()), Some("etl".to_owned()));
        let all = Work { index, with_table: true, dimension: CapacityKind::Read, caller, warm: true, ..work() };
        let expect = json!({
            "action": "announce", "id": "load-42", "run": "r-1", "table": "orders", "index": "by-date", "with_table": true,
            "dimension": "read", "units": 4000, "for_seconds": 600, "caller": "etl", "warm": true,
        });
        check(Request::Announce { id: "load-42", run: "r-1", work: &all }, expect);
        let (own, others) = (Request::Release { id: "a", run: Some("r-1") }, Request::Release { id: "a", run: None });
        check(own, json!({"action": "release", "id": "a", "run": "r-1"}));
        check(others, json!({"action": "release", "id": "a"}));
        check(Request::List, json!({"action": "list"}));
        let status = Request::Status { table: "orders", index: None, dimension: CapacityKind::Read };
        check(status, json!({"action": "status", "table": "orders", "index": null, "dimension": "read"}));
    }

    #[test]
    fn wrong_values_are_quoted() {
        let check = |work: Work, expect: Option<&str>| {
            assert_eq!(work.check().err().map(|error| error.to_string()).as_deref(), expect);
        };
        check(work(), None);
        check(Work { units: 2_000_000_000, for_seconds: 1, caller: Some(String::new()), ..work() }, None);
        let units = "expected 1 to 2000000000 capacity units a second";
        check(Work { units: 0, ..work() }, Some(&format!("invalid units 0: {units}")));
        check(Work { units: 2_000_000_001, ..work() }, Some(&format!("invalid units 2000000001: {units}")));
        check(Work { for_seconds: 0, ..work() }, Some("invalid duration 0: expected at least one second"));
        let caller = "invalid caller \"a\\n\": expected no control characters, at most 128 characters";
        check(Work { caller: Some("a\n".to_owned()), ..work() }, Some(caller));
        let index = "invalid index \"a\": expected an index's name, at most 255 characters";
        check(Work { index: Some("a".to_owned()), ..work() }, Some(index));
        let table = "invalid table \"a/b\": expected a table's name or ARN, at most 255 characters";
        check(Work { table: "a/b".to_owned(), ..work() }, Some(table));
        assert_eq!(checked_id("load/42#a".to_owned()).unwrap(), "load/42#a");
        let error = checked_id("load 42".to_owned()).unwrap_err().to_string();
        assert!(error.contains("announcement id \"load 42\"") && error.contains("letters, digits"), "{error}");
    }
}
