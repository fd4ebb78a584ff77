//! From JSON to a [`Pattern`](super::Pattern).

use std::fmt;

use serde_json::{Map, Value};

use super::{
    Field, Fields, PatternError, Test,
    text::{Part, Place, Wildcard},
    values::{self, Bound, Cidr, Comparison},
};

type Result<T> = std::result::Result<T, PatternError>;

pub(super) fn pattern(value: &Value) -> Result<Fields> {
    fields(value, Path::Root)
}

fn fields(value: &Value, at: Path<'_>) -> Result<Fields> {
    let Some(object) = value.as_object().filter(|object| !object.is_empty()) else {
        return at.refuse(value, "expected an object with a field or more");
    };
    let mut parsed = Fields::default();
    for (name, value) in object {
        let at = Path::Key(&at, name);
        if name == "$or" {
            parsed.alternatives = alternatives(value, at)?;
        } else {
            parsed.fields.push((name.clone(), field(value, at)?));
        }
    }
    Ok(parsed)
}

fn alternatives(value: &Value, at: Path<'_>) -> Result<Vec<Fields>> {
    match value {
        Value::Array(objects) if objects.len() >= 2 => each(objects, at, fields),
        _ => at.refuse(value, "expected a list of two objects or more"),
    }
}

fn field(value: &Value, at: Path<'_>) -> Result<Field> {
    match value {
        Value::Object(_) => fields(value, at).map(Field::Object),
        Value::Array(tests) if !tests.is_empty() => each(tests, at, test).map(Field::OneOf),
        _ => at.refuse(value, "expected an object, or a list with a value or more"),
    }
}

fn test(value: &Value, at: Path<'_>) -> Result<Test> {
    Ok(match value {
        Value::Null => Test::Null,
        Value::Bool(expected) => Test::Bool(*expected),
        Value::Number(expected) => Test::Number(expected.clone()),
        Value::String(expected) => Test::Text(Part::exact(Place::Whole, expected)),
        Value::Object(object) => operator(object, value, at)?,
        Value::Array(_) => return at.refuse(value, "expected no list within a list"),
    })
}

fn operator(object: &Map<String, Value>, value: &Value, at: Path<'_>) -> Result<Test> {
    let Some((name, operand)) = only_entry(object) else { return at.refuse(value, "expected one operator") };
    let inner = Path::Key(&at, name);
    match name.as_str() {
        "prefix" => affix(Place::Start, operand, inner),
        "suffix" => affix(Place::End, operand, inner),
        "equals-ignore-case" => equals_ignore_case(operand, inner),
        "wildcard" => wildcard(operand, inner),
        "anything-but" => anything_but(operand, inner).map(Test::AnythingBut),
        "numeric" => numeric(operand, inner).map(Test::Numeric),
        "cidr" => match Cidr::parse(text(operand, inner)?) {
            Some(range) => Ok(Test::Cidr(range)),
            None => inner.refuse(operand, "expected a range like 10.0.0.0/8 or 2001:db8::/32"),
        },
        "exists" => match operand {
            Value::Bool(true) => Ok(Test::Present),
            Value::Bool(false) => Ok(Test::Absent),
            _ => inner.refuse(operand, "expected true or false"),
        },
        _ => at.refuse(
            value,
            "expected prefix, suffix, equals-ignore-case, wildcard, anything-but, numeric, cidr or exists",
        ),
    }
}

/// The start or the end of a string: a text, or an object that says to ignore its case.
fn affix(place: Place, operand: &Value, at: Path<'_>) -> Result<Test> {
    let entry = operand.as_object().and_then(only_entry);
    Ok(Test::Text(match (operand, entry) {
        (Value::String(expected), _) => Part::exact(place, expected),
        (_, Some((name, operand))) if name == "equals-ignore-case" => {
            Part::ignoring_case(place, text(operand, Path::Key(&at, name))?)
        }
        _ => return at.refuse(operand, "expected a string, or an object with equals-ignore-case only"),
    }))
}

fn equals_ignore_case(operand: &Value, at: Path<'_>) -> Result<Test> {
    Ok(Test::Text(Part::ignoring_case(Place::Whole, text(operand, at)?)))
}

fn wildcard(operand: &Value, at: Path<'_>) -> Result<Test> {
    match Wildcard::parse(text(operand, at)?) {
        Ok(wildcard) => Ok(Test::Wildcard(wildcard)),
        Err(reason) => at.refuse(operand, reason),
    }
}

/// What a value must not be: each of the tests must fail.
fn anything_but(operand: &Value, at: Path<'_>) -> Result<Vec<Test>> {
    match operand {
        Value::String(_) | Value::Number(_) => Ok(vec![test(operand, at)?]),
        Value::Array(values) if !values.is_empty() && are_alike(values) => each(values, at, test),
        Value::Object(object) => {
            let Some((name, operands)) = only_entry(object) else { return at.refuse(operand, "expected one operator") };
            let inner = Path::Key(&at, name);
            match name.as_str() {
                "prefix" => one_or_each(operands, inner, |operand, at| excluded_affix(Place::Start, operand, at)),
                "suffix" => one_or_each(operands, inner, |operand, at| excluded_affix(Place::End, operand, at)),
                "equals-ignore-case" => one_or_each(operands, inner, equals_ignore_case),
                "wildcard" => one_or_each(operands, inner, wildcard),
                _ => at.refuse(operand, "expected prefix, suffix, equals-ignore-case or wildcard"),
            }
        }
        _ => at.refuse(operand, "expected a string, a number, a list of only strings or only numbers, or an operator"),
    }
}

fn are_alike(values: &[Value]) -> bool {
    values.iter().all(Value::is_string) || values.iter().all(Value::is_number)
}

/// An empty one would exclude every string.
fn excluded_affix(place: Place, operand: &Value, at: Path<'_>) -> Result<Test> {
    match text(operand, at)? {
        "" => at.refuse(operand, "expected a character or more"),
        excluded => Ok(Test::Text(Part::exact(place, excluded))),
    }
}

fn numeric(operand: &Value, at: Path<'_>) -> Result<Vec<Bound>> {
    match operand.as_array().map(Vec::as_slice) {
        Some([comparison, number]) => Ok(vec![bound([comparison, number], 0, at)?]),
        Some([from, lowest, to, highest]) => {
            let lower = bound([from, lowest], 0, at)?;
            let upper = bound([to, highest], 2, at)?;
            if !lower.comparison.is_lower() || !upper.comparison.is_upper() {
                return at.refuse(operand, "expected > or >= first, then < or <=");
            }
            if !values::is_less(&lower.number, &upper.number) {
                return at.refuse(operand, "expected the first number to be less than the second");
            }
            Ok(vec![lower, upper])
        }
        _ => at.refuse(operand, "expected a list of one comparison and its number, or of two"),
    }
}

/// Reads a comparison and its number. `index` is the place of the comparison.
fn bound([comparison, number]: [&Value; 2], index: usize, at: Path<'_>) -> Result<Bound> {
    let Some(parsed) = comparison.as_str().and_then(Comparison::parse) else {
        return Path::Index(&at, index).refuse(comparison, "expected =, <, <=, > or >=");
    };
    match number {
        Value::Number(number) => Ok(Bound { comparison: parsed, number: number.clone() }),
        _ => Path::Index(&at, index + 1).refuse(number, "expected a number"),
    }
}

fn text<'v>(operand: &'v Value, at: Path<'_>) -> Result<&'v str> {
    match operand {
        Value::String(text) => Ok(text),
        _ => at.refuse(operand, "expected a string"),
    }
}

fn only_entry(object: &Map<String, Value>) -> Option<(&String, &Value)> {
    let mut entries = object.iter();
    entries.next().filter(|_| entries.next().is_none())
}

fn one_or_each(operand: &Value, at: Path<'_>, parse: impl Fn(&Value, Path<'_>) -> Result<Test>) -> Result<Vec<Test>> {
    match operand {
        Value::String(_) => Ok(vec![parse(operand, at)?]),
        Value::Array(operands) if !operands.is_empty() => each(operands, at, parse),
        _ => at.refuse(operand, "expected a string, or a list with a string or more"),
    }
}

fn each<T>(values: &[Value], at: Path<'_>, parse: impl Fn(&Value, Path<'_>) -> Result<T>) -> Result<Vec<T>> {
    values.iter().enumerate().map(|(index, value)| parse(value, Path::Index(&at, index))).collect()
}

/// Where in a pattern something stands.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The error that the value there is not what is expected.
    fn refuse<T>(self, value: &Value, expected: &str) -> Result<T> {
        let path = if let Self::Root = self { "pattern".to_owned() } else { self.to_string() };
        Err(PatternError { path, problem: format!("{} is invalid: {expected}", shortened(value)) })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, name) => f.write_str(name),
            Self::Key(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value as JSON, or its beginning.
fn shortened(value: &Value) -> String {
    const LENGTH: usize = 100;
    let mut json = value.to_string();
    if let Some((end, _)) = json.char_indices().nth(LENGTH) {
        json.truncate(end);
        json.push_str("...");
    }
    json
}
