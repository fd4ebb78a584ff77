//! Which events say that a resource has ended, and which resource: declared as data.
//!
//! A processor is an object with these keys:
//!
//! | key | value |
//! |---|---|
//! | `name` | what logs and errors call it |
//! | `source` | the source of its events |
//! | `detail-type` | their detail-type, in any case and with or without spaces; without it, all of the source |
//! | `id-path` | where the resource's id is, like `detail.clusterId` |
//! | `id-before` | text before which the id ends, if it is in it |
//! | `pattern` | an event [`Pattern`] that they must match; without it, each of them is an end |
//!
//! An event goes to the processor of its source and detail-type, or else to that of its source alone. If the event does
//! not match the pattern, no other processor is tried.
//!
//! Those that are built in know the states in which EMR clusters and steps, EMR Serverless and EMR on EKS
//! jobs, Glue jobs and EC2 instances have ended. The retries of the Glue job run `jr_1` are `jr_1_attempt_1` and so on, and
//! the end of any of them ends `jr_1`. A failure ends nothing, because no event tells whether Glue retries the run.
//! A `CloudWatch` alarm is not a resource. Its processor takes the alarm's name for the id, and the state `ALARM` for the
//! end: such an alarm goes off when a resource is idle. To take another state, declare a processor of the same source and
//! detail-type.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    event::BusEvent,
    pattern::{Pattern, PatternError},
};

const BUILT_IN: &str = include_str!("processors.json");

/// In the id of a Glue job run, before the number of its retry.
const GLUE_ATTEMPT: &str = "_attempt_";

/// Declared processors, by source and detail-type.
#[derive(Clone, Debug, Default)]
pub struct Processors(BTreeMap<Kind, Processor>);

#[derive(Clone, Debug)]
struct Processor {
    name: String,
    id_path: Vec<String>,
    id_before: Option<String>,
    pattern: Option<Pattern>,
}

/// A source, and a detail-type without spaces in lower case.
type Kind = (String, Option<String>);

/// What an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    Ended {
        processor: &'a str,
        resource: &'a str,
    },
    /// Not an end: the event does not match the pattern.
    NotAnEnd {
        processor: &'a str,
    },
}

/// An event that no processor can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessable {
    /// There is no processor for it.
    #[error("there is no processor for the source {from:?} with the detail-type {detail_type:?}")]
    Unknown {
        from: String,
        /// Its detail-type; empty if it has none.
        detail_type: String,
    },
    /// It has no id where its processor looks for one.
    #[error("processor {processor:?} finds no id at {path}: {found}")]
    Id {
        processor: String,
        /// Where it looked.
        path: String,
        /// What is there, as JSON, or `nothing`.
        found: String,
    },
}

/// Why processors cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProcessors {
    #[error("not JSON")]
    Json(#[from] serde_json::Error),
    /// They are neither a list nor an object with one.
    #[error("expected a list of processors, or an object with `processors` and, if need be, `replace`")]
    Shape,
    /// A key has a value that it cannot have.
    #[error("processor {processor}, key {key}: {problem}")]
    Key {
        /// Its name, or its number if it has none.
        processor: String,
        key: String,
        problem: String,
    },
    #[error("processor {processor}, key pattern")]
    Pattern { processor: String, source: PatternError },
}

impl Processors {
    pub fn built_in() -> Result<Self, InvalidProcessors> {
        let mut processors = Self::default();
        processors.extend(&serde_json::from_str(BUILT_IN)?)?;
        Ok(processors)
    }

    /// The built-in processors for Glue jobs with this `MaxRetries`: the failure of the last attempt ends the run.
    pub fn with_glue_retries(retries: u32) -> Result<Self, InvalidProcessors> {
        let mut processors = Self::built_in()?;
        let last = match retries {
            0 => json!({"state": ["FAILED"]}),
            retries => json!({"state": ["FAILED"], "jobRunId": [{"suffix": format!("{GLUE_ATTEMPT}{retries}")}]}),
        };
        let ended = json!({"state": ["SUCCEEDED", "TIMEOUT", "STOPPED", "ERROR"]});
        processors.extend(&json!([{
            "name": "glue-job", "source": "aws.glue", "detail-type": "Glue Job State Change",
            "id-path": "detail.jobRunId", "id-before": GLUE_ATTEMPT, "pattern": {"detail": {"$or": [ended, last]}},
        }]))?;
        Ok(processors)
    }

    /// Those that are built in, and those of a text: a list of them, which win over built-in ones of the same source
    /// and detail-type, or `{"replace": true, "processors": [...]}`, which leaves none of those.
    pub fn parse(text: &str) -> Result<Self, InvalidProcessors> {
        Self::built_in()?.overridden_by(text)
    }

    /// These, and those of a text, as for [`Processors::parse`].
    pub fn overridden_by(self, text: &str) -> Result<Self, InvalidProcessors> {
        let declared = match serde_json::from_str(text)? {
            Value::Array(list) => Declared { replace: false, list: Value::Array(list) },
            Value::Object(object) => Declared::parse(object)?,
            _ => return Err(InvalidProcessors::Shape),
        };
        let mut processors = if declared.replace { Self::default() } else { self };
        processors.extend(&declared.list)?;
        Ok(processors)
    }

    /// What an event tells.
    pub fn read<'a>(&'a self, event: &'a BusEvent) -> Result<Reading<'a>, Unprocessable> {
        let source = event.source().to_owned();
        let typed = event.detail_type().map(|detail_type| (source.clone(), Some(normalised(detail_type))));
        let processor = typed.and_then(|kind| self.0.get(&kind)).or_else(|| self.0.get(&(source.clone(), None)));
        let processor = processor.ok_or_else(|| Unprocessable::Unknown {
            from: source,
            detail_type: event.detail_type().unwrap_or_default().to_owned(),
        })?;
        processor.read(event)
    }

    /// Adds a list of processors; no two of it for the same events.
    fn extend(&mut self, list: &Value) -> Result<(), InvalidProcessors> {
        let list = list.as_array().ok_or(InvalidProcessors::Shape)?;
        let mut added: BTreeMap<Kind, Processor> = BTreeMap::new();
        for (number, declared) in list.iter().enumerate() {
            let (kind, processor) = processor(number, declared)?;
            if let Some(other) = added.get(&kind) {
                let key = if kind.1.is_some() { "detail-type" } else { "source" };
                let problem = format!("processor {:?} is for the same events", other.name);
                return Err(InvalidProcessors::Key {
                    processor: format!("{:?}", processor.name),
                    key: key.to_owned(),
                    problem,
                });
            }
            added.insert(kind, processor);
        }
        self.0.append(&mut added);
        Ok(())
    }
}

impl Processor {
    fn read<'a>(&'a self, event: &'a BusEvent) -> Result<Reading<'a>, Unprocessable> {
        let processor = self.name.as_str();
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.matches(event.json())) {
            return Ok(Reading::NotAnEnd { processor });
        }
        let found = event.at(&self.id_path);
        match found.and_then(Value::as_str).map(|id| self.resource(id)) {
            Some(resource) if !resource.is_empty() => Ok(Reading::Ended { processor, resource }),
            _ => Err(Unprocessable::Id {
                processor: processor.to_owned(),
                path: self.id_path.join("."),
                found: found.map_or_else(|| "nothing".to_owned(), Value::to_string),
            }),
        }
    }

    fn resource<'a>(&self, id: &'a str) -> &'a str {
        let parts = self.id_before.as_deref().and_then(|end| id.split_once(end));
        parts.map_or(id, |(resource, _)| resource)
    }
}

struct Declared {
    replace: bool,
    list: Value,
}

impl Declared {
    fn parse(mut object: Map<String, Value>) -> Result<Self, InvalidProcessors> {
        let list = object.remove("processors").ok_or(InvalidProcessors::Shape)?;
        let replace = match object.remove("replace") {
            None => false,
            Some(Value::Bool(replace)) => replace,
            Some(_) => return Err(InvalidProcessors::Shape),
        };
        if object.is_empty() { Ok(Self { replace, list }) } else { Err(InvalidProcessors::Shape) }
    }
}

fn processor(number: usize, declared: &Value) -> Result<(Kind, Processor), InvalidProcessors> {
    let label = match &declared["name"] {
        Value::String(name) => format!("{name:?}"),
        _ => format!("number {}", number + 1),
    };
    let wrong =
        |key: &str, problem: String| InvalidProcessors::Key { processor: label.clone(), key: key.to_owned(), problem };
    let text = |key: &str| match &declared[key] {
        Value::Null => Ok(None),
        Value::String(text) if !text.is_empty() => Ok(Some(text.as_str())),
        other => Err(wrong(key, format!("{other} is invalid: expected a string with a character or more"))),
    };
    let required = |key: &str| text(key)?.ok_or_else(|| wrong(key, "it is required".to_owned()));

    if let Some(unknown) =
        declared.as_object().into_iter().flat_map(Map::keys).find(|key| !KEYS.contains(&key.as_str()))
    {
        return Err(wrong(unknown, format!("expected only {}", KEYS.join(", "))));
    }
    let name = required("name")?.to_owned();
    let kind = (required("source")?.to_owned(), text("detail-type")?.map(normalised));
    let id_path: Vec<_> = required("id-path")?.split('.').map(str::to_owned).collect();
    if id_path.iter().any(String::is_empty) {
        return Err(wrong(
            "id-path",
            format!("{} is invalid: expected keys with a dot between each", declared["id-path"]),
        ));
    }
    let id_before = text("id-before")?.map(str::to_owned);
    let pattern = declared.get("pattern").map(Pattern::parse).transpose();
    let pattern = pattern.map_err(|source| InvalidProcessors::Pattern { processor: label.clone(), source })?;
    Ok((kind, Processor { name, id_path, id_before, pattern }))
}

const KEYS: [&str; 6] = ["name", "source", "detail-type", "id-path", "id-before", "pattern"];

fn normalised(detail_type: &str) -> String {
    detail_type.replace(' ', "").to_lowercase()
}
