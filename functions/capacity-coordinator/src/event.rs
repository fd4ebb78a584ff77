//! What the function is invoked with: requests of applications and operators, and the schedule's call.

use std::time::Duration;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tidegate_aws::table;
use tidegate_domain::{
    capacity::{
        Capacity, Target,
        announcement::{MOST_UNITS, Request, is_caller, is_id},
    },
    throttle::CapacityKind,
};

/// The function's event, checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub enum Event {
    /// `{"action": "announce", ...}`
    Announce(Announce),
    /// `{"action": "release", "id": ...}`
    Release(Release),
    /// `{"action": "restore"}`, from a schedule.
    Restore,
    /// `{"action": "list"}`
    List,
    /// `{"action": "status", ...}`
    Status(Target),
}

/// A request to announce work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announce {
    pub request: Request,
    /// Whether the warm throughput of an on-demand table may be raised.
    pub warm: bool,
}

/// A request to release an announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub id: String,
    /// The run that must not announce it again.
    pub run: Option<String>,
}

/// An event that is not a valid request.
#[derive(Debug, thiserror::Error)]
pub enum MalformedRequest {
    #[error("the event is {0}: expected an object")]
    Shape(Value),
    #[error("action is {0}: expected \"announce\", \"release\", \"restore\", \"list\" or \"status\"")]
    Action(Value),
    /// A key is missing, unknown, or of another type.
    #[error("{0}")]
    Key(String),
    #[error("{name} is {value}: expected {expected}")]
    Value { name: &'static str, value: Value, expected: &'static str },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnnounceFields {
    id: String,
    #[serde(default)]
    caller: String,
    table: String,
    #[serde(default)]
    index: Option<String>,
    #[serde(default)]
    with_table: bool,
    dimension: String,
    units: u64,
    for_seconds: u64,
    #[serde(default)]
    warm: bool,
    #[serde(default)]
    run: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseFields {
    id: String,
    #[serde(default)]
    run: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFields {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusFields {
    table: String,
    #[serde(default)]
    index: Option<String>,
    dimension: String,
}

impl Event {
    /// What the request asks for.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Announce(_) => "announce",
            Self::Release(_) => "release",
            Self::Restore => "restore",
            Self::List => "list",
            Self::Status(_) => "status",
        }
    }
}

impl TryFrom<Value> for Event {
    type Error = MalformedRequest;

    fn try_from(event: Value) -> Result<Self, MalformedRequest> {
        let Value::Object(mut event) = event else { return Err(MalformedRequest::Shape(event)) };
        let action = event.remove("action").unwrap_or_default();
        match action.as_str() {
            Some("announce") => fields::<AnnounceFields>(event)?.checked().map(Self::Announce),
            Some("release") => {
                let ReleaseFields { id, run } = fields(event)?;
                Ok(Self::Release(Release { id: checked("id", id, ID, is_id)?, run: checked_run(run)? }))
            }
            Some("restore") => fields::<NoFields>(event).map(|NoFields {}| Self::Restore),
            Some("list") => fields::<NoFields>(event).map(|NoFields {}| Self::List),
            Some("status") => {
                let StatusFields { table, index, dimension } = fields(event)?;
                target(&table, index, dimension).map(Self::Status)
            }
            _ => Err(MalformedRequest::Action(action)),
        }
    }
}

const ID: &str = "1 to 128 characters of A-Z, a-z, 0-9 and _-.:/#@";

impl AnnounceFields {
    fn checked(self) -> Result<Announce, MalformedRequest> {
        let units = MalformedRequest::Value {
            name: "units",
            value: self.units.into(),
            expected: "capacity units a second from 1 to 2000000000",
        };
        let units = Some(Capacity::new(self.units))
            .filter(|units| (Capacity::new(1)..=MOST_UNITS).contains(units))
            .ok_or(units)?;
        if self.for_seconds == 0 {
            let expected = "a number of seconds above 0";
            return Err(MalformedRequest::Value { name: "for_seconds", value: 0.into(), expected });
        }
        let target = target(&self.table, self.index, self.dimension)?;
        let table = Target { index: None, ..target.clone() };
        let targets = match (&target.index, self.with_table) {
            (None, true) => {
                let expected = "false, because no index is named";
                return Err(MalformedRequest::Value { name: "with_table", value: true.into(), expected });
            }
            (Some(_), true) => vec![target, table],
            (_, false) => vec![target],
        };
        let request = Request {
            id: checked("id", self.id, ID, is_id)?,
            caller: checked("caller", self.caller, "at most 128 characters without control characters", is_caller)?,
            targets,
            units,
            duration: Duration::from_secs(self.for_seconds),
            run: checked_run(self.run)?,
        };
        Ok(Announce { request, warm: self.warm })
    }
}

fn target(table: &str, index: Option<String>, dimension: String) -> Result<Target, MalformedRequest> {
    let kind = match dimension.as_str() {
        "read" => CapacityKind::Read,
        "write" => CapacityKind::Write,
        _ => {
            let expected = "\"read\" or \"write\"";
            return Err(MalformedRequest::Value { name: "dimension", value: dimension.into(), expected });
        }
    };
    let name = |text: &str| table::is_name(text) && !text.starts_with("arn:");
    let index = index.map(|index| checked("index", index, "the name of a global secondary index", name)).transpose()?;
    Ok(Target { table: checked("table", table.to_owned(), "a table's name", name)?, index, kind })
}

fn checked_run(run: Option<String>) -> Result<Option<String>, MalformedRequest> {
    run.map(|run| checked("run", run, ID, is_id)).transpose()
}

fn checked(
    name: &'static str,
    value: String,
    expected: &'static str,
    is_valid: impl Fn(&str) -> bool,
) -> Result<String, MalformedRequest> {
    if is_valid(&value) { Ok(value) } else { Err(MalformedRequest::Value { name, value: value.into(), expected }) }
}

fn fields<T: DeserializeOwned>(event: Map<String, Value>) -> Result<T, MalformedRequest> {
    serde_path_to_error::deserialize(Value::Object(event)).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { format!("{path}: ") };
        MalformedRequest::Key(format!("{path}{}", error.into_inner()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn announce() -> Value {
        json!({
            "action": "announce", "id": "load-42", "table": "orders", "index": null, "dimension": "write",
            "units": 4_000, "for_seconds": 600,
        })
    }

    fn with(changes: &Value) -> Value {
        let mut event = announce();
        for (key, value) in changes.as_object().unwrap() {
            event[key] = value.clone();
        }
        event
    }

    fn target(index: Option<&str>) -> Target {
        Target { table: "orders".to_owned(), index: index.map(str::to_owned), kind: CapacityKind::Write }
    }

    fn targets(event: Value) -> Vec<Target> {
        match Event::try_from(event).unwrap() {
            Event::Announce(Announce { request, .. }) => request.targets,
            event => panic!("{event:?}"),
        }
    }

    #[track_caller]
    fn check_error(event: Value, expect: &str) {
        let message = Event::try_from(event).unwrap_err().to_string();
        assert!(message.contains(expect), "{message:?} does not say {expect:?}");
    }

    #[test]
    fn an_announcement_is_read() {
        let request = Request {
            id: "load-42".to_owned(),
            caller: String::new(),
            targets: vec![target(None)],
            units: Capacity::new(4_000),
            duration: Duration::from_mins(10),
            run: None,
        };
        assert_eq!(Event::try_from(announce()).unwrap(), Event::Announce(Announce { request, warm: false }));
        let event = Event::try_from(with(&json!({"caller": "etl", "warm": true, "run": "r-1"}))).unwrap();
        let Event::Announce(Announce { request, warm }) = event else { panic!("{event:?}") };
        assert_eq!((&*request.caller, warm, request.run.as_deref()), ("etl", true, Some("r-1")));
    }

    #[test]
    fn an_index_is_announced_alone_or_with_its_table() {
        assert_eq!(targets(with(&json!({"index": "by-date"}))), [target(Some("by-date"))]);
        let both = [target(Some("by-date")), target(None)];
        assert_eq!(targets(with(&json!({"index": "by-date", "with_table": true}))), both);
        check_error(
            with(&json!({"with_table": true})),
            "with_table is true: expected false, because no index is named",
        );
    }

    #[test]
    fn other_requests_are_read() {
        let check = |event, expect| assert_eq!(Event::try_from(event).unwrap(), expect);
        let release = |run: Option<&str>| Release { id: "load-42".to_owned(), run: run.map(str::to_owned) };
        check(json!({"action": "release", "id": "load-42"}), Event::Release(release(None)));
        check(json!({"action": "release", "id": "load-42", "run": "r-1"}), Event::Release(release(Some("r-1"))));
        check(json!({"action": "restore"}), Event::Restore);
        check(json!({"action": "list"}), Event::List);
        check(json!({"action": "status", "table": "orders", "dimension": "write"}), Event::Status(target(None)));
    }

    #[test]
    fn errors_name_the_field_and_quote_the_value() {
        check_error(json!(7), "the event is 7: expected an object");
        check_error(json!({}), "action is null: expected \"announce\"");
        check_error(json!({"action": "anounce"}), "action is \"anounce\"");
        check_error(with(&json!({"unit": 1})), "unknown field `unit`");
        check_error(json!({"action": "restore", "id": "a"}), "unknown field `id`");
        check_error(json!({"action": "release"}), "missing field `id`");
        check_error(with(&json!({"units": "4k"})), "units: invalid type: string \"4k\"");
        check_error(with(&json!({"units": 0})), "units is 0: expected");
        check_error(with(&json!({"units": 2_000_000_001_u64})), "units is 2000000001");
        check_error(with(&json!({"units": -1})), "units: invalid value: integer `-1`");
        check_error(with(&json!({"for_seconds": 0})), "for_seconds is 0");
        check_error(with(&json!({"id": "a b"})), "id is \"a b\"");
        check_error(json!({"action": "release", "id": ""}), "id is \"\"");
        check_error(json!({"action": "release", "id": "a", "run": ""}), "run is \"\"");
        check_error(with(&json!({"run": "a b"})), "run is \"a b\"");
        check_error(with(&json!({"caller": "a\n"})), "caller is \"a\\n\"");
        check_error(with(&json!({"dimension": "writes"})), "dimension is \"writes\": expected \"read\" or \"write\"");
        check_error(with(&json!({"table": "a"})), "table is \"a\"");
        check_error(with(&json!({"index": ""})), "index is \"\"");
        let arn = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders";
        check_error(with(&json!({"table": arn})), "table/orders\": expected a table's name");
    }
}
