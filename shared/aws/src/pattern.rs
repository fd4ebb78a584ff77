//! Event patterns of Amazon EventBridge: which events a rule takes.
//!
//! AWS: [event patterns](https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-event-patterns.html),
//! [their operators](https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-create-pattern-operators.html).
//!
//! Why not a crate? `quamina` 0.7 has neither `$or` nor the nested forms of `anything-but`, which rate-limiter-py's
//! predicates need, and is built for thousands of patterns held against millions of events; here are a dozen.

mod parse;
mod text;
mod values;

use serde_json::{Map, Number, Value};

use self::{
    text::{Part, Wildcard},
    values::{Bound, Cidr},
};

/// An event pattern, parsed once to be held against any number of events.
///
/// Of the fields it names, each must match; of the values it lists for a field, one must.
///
/// A list in an event, with the lists in it, stands for any of its elements:
/// - Where the pattern lists values, one of the scalars must match. If there is none, the field is absent.
/// - Where the pattern has an object, one of the objects must match all of it. If there is none, each
///   field in it is absent.
///
/// AWS's own matcher, Event Ruler, differs in two cases. In a list of objects, a field that must be absent must be absent
/// in all objects, unless a field before it in the alphabet has selected one. And a field that is both next to `$or` and
/// in it need not match both. Here, the rules above hold in these cases too. As for Event Ruler, numbers are equal however
/// they are written: `300` matches `300.0`.
#[derive(Clone, Debug)]
pub struct Pattern(Fields);

impl Pattern {
    /// Reads a pattern.
    pub fn parse(pattern: &Value) -> Result<Self, PatternError> {
        parse::pattern(pattern).map(Self)
    }

    /// Whether a rule with this pattern takes the event, which it does only of an object.
    pub fn matches(&self, event: &Value) -> bool {
        event.as_object().is_some_and(|event| self.0.match_object(Some(event)))
    }
}

/// Why a pattern cannot be used: which part of it, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PatternError {
    path: String,
    problem: String,
}

impl PatternError {
    /// The part that is wrong, like `detail.name[0].anything-but`; `pattern` if it is the whole.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// An object of a pattern.
#[derive(Clone, Debug, Default)]
struct Fields {
    fields: Vec<(String, Field)>,
    /// What `$or` lists; empty without it.
    alternatives: Vec<Fields>,
}

#[derive(Clone, Debug)]
enum Field {
    Object(Fields),
    OneOf(Vec<Test>),
}

/// What a pattern may list for a field.
#[derive(Clone, Debug)]
enum Test {
    Null,
    Bool(bool),
    Number(Number),
    Text(Part),
    Wildcard(Wildcard),
    /// Where each bound holds.
    Numeric(Vec<Bound>),
    Cidr(Cidr),
    Present,
    Absent,
    AnythingBut(Vec<Test>),
}

impl Fields {
    /// `None` stands for what the event does not have.
    fn match_value(&self, value: Option<&Value>) -> bool {
        let mut present = false;
        let matched = any_within(value, &mut |value| {
            value.as_object().is_some_and(|object| {
                present = true;
                self.match_object(Some(object))
            })
        });
        // Without an object, each field is absent, and the pattern may require that.
        matched || !present && self.match_object(None)
    }

    fn match_object(&self, object: Option<&Map<String, Value>>) -> bool {
        let each = self.fields.iter().all(|(name, field)| {
            let value = object.and_then(|object| object.get(name));
            match field {
                Field::Object(fields) => fields.match_value(value),
                Field::OneOf(tests) => match_one(tests, value),
            }
        });
        each && (self.alternatives.is_empty() || self.alternatives.iter().any(|fields| fields.match_object(object)))
    }
}

fn match_one(tests: &[Test], value: Option<&Value>) -> bool {
    let mut present = false;
    let matched = any_within(value, &mut |value| {
        !value.is_object() && {
            present = true;
            tests.iter().any(|test| test.matches(value))
        }
    });
    matched || !present && tests.iter().any(|test| matches!(test, Test::Absent))
}

/// Returns whether a value passes the test, or any value in its list does, at any depth.
fn any_within(value: Option<&Value>, ask: &mut impl FnMut(&Value) -> bool) -> bool {
    match value {
        None => false,
        Some(Value::Array(elements)) => elements.iter().any(|element| any_within(Some(element), ask)),
        Some(value) => ask(value),
    }
}

impl Test {
    fn matches(&self, scalar: &Value) -> bool {
        match (self, scalar) {
            (Self::Present, _) | (Self::Null, Value::Null) => true,
            (Self::AnythingBut(tests), _) => !tests.iter().any(|test| test.matches(scalar)),
            (Self::Bool(expected), Value::Bool(actual)) => expected == actual,
            (Self::Number(expected), Value::Number(actual)) => values::are_equal(expected, actual),
            (Self::Numeric(bounds), Value::Number(actual)) => bounds.iter().all(|bound| bound.holds(actual)),
            (Self::Text(part), Value::String(actual)) => part.matches(actual),
            (Self::Wildcard(wildcard), Value::String(actual)) => wildcard.matches(actual),
            (Self::Cidr(cidr), Value::String(actual)) => cidr.contains(actual),
            _ => false,
        }
    }
}
