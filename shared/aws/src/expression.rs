//! Expressions of conditional writes: what to change, on which condition, with which names and values.

use std::{collections::HashMap, fmt::Write as _};

use aws_sdk_dynamodb::{operation::update_item::builders::UpdateItemFluentBuilder, types::AttributeValue};

/// An update expression and its condition, as they grow.
#[derive(Default)]
pub(crate) struct Expression {
    sets: String,
    adds: String,
    deletes: String,
    removes: String,
    condition: String,
    names: HashMap<String, String>,
    values: HashMap<String, AttributeValue>,
}

/// What an [`Expression`] grew to, for the builder of any write: each part is `None` if it is empty,
/// since DynamoDB refuses empty ones.
pub(crate) struct Parts {
    pub(crate) update: Option<String>,
    pub(crate) condition: Option<String>,
    pub(crate) names: Option<HashMap<String, String>>,
    pub(crate) values: Option<HashMap<String, AttributeValue>>,
}

impl Expression {
    /// Sets an attribute unless the item already has it.
    pub(crate) fn set_once(&mut self, attribute: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        let _ = write!(self.sets, "{}{name} = if_not_exists({name}, {value})", separator(&self.sets, ", "));
    }

    /// Sets an attribute. Returns the placeholders of the name and the value, for use in a condition.
    pub(crate) fn set(&mut self, attribute: impl Into<String>, value: AttributeValue) -> (String, String) {
        let (name, value) = (self.name(attribute), self.value(value));
        let _ = write!(self.sets, "{}{name} = {value}", separator(&self.sets, ", "));
        (name, value)
    }

    /// Adds to a number.
    pub(crate) fn add(&mut self, attribute: impl Into<String>, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        let _ = write!(self.adds, "{}{name} {value}", separator(&self.adds, ", "));
    }

    /// Removes elements of a set.
    pub(crate) fn delete(&mut self, attribute: impl Into<String>, elements: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(elements));
        let _ = write!(self.deletes, "{}{name} {value}", separator(&self.deletes, ", "));
    }

    /// Removes an attribute. Returns the placeholder of its name, for use in a condition.
    pub(crate) fn remove(&mut self, attribute: impl Into<String>) -> String {
        let name = self.name(attribute);
        let _ = write!(self.removes, "{}{name}", separator(&self.removes, ", "));
        name
    }

    /// Makes the write depend on one condition more.
    pub(crate) fn require(&mut self, condition: &str) {
        let _ = write!(self.condition, "{}{condition}", separator(&self.condition, " AND "));
    }

    /// Makes the write depend on how an attribute compares with a value.
    pub(crate) fn compare(&mut self, attribute: impl Into<String>, operator: &str, value: AttributeValue) {
        let (name, value) = (self.name(attribute), self.value(value));
        self.require(&format!("{name} {operator} {value}"));
    }

    /// What stands for an attribute in a condition.
    pub(crate) fn name(&mut self, attribute: impl Into<String>) -> String {
        let name = format!("#{}", self.names.len());
        self.names.insert(name.clone(), attribute.into());
        name
    }

    /// What stands for a value in a condition.
    pub(crate) fn value(&mut self, value: AttributeValue) -> String {
        let name = format!(":{}", self.values.len());
        self.values.insert(name.clone(), value);
        name
    }

    pub(crate) fn into_parts(self) -> Parts {
        let mut update = String::new();
        let clauses = [("SET", &self.sets), ("ADD", &self.adds), ("DELETE", &self.deletes), ("REMOVE", &self.removes)];
        for (clause, list) in clauses {
            if !list.is_empty() {
                let _ = write!(update, "{}{clause} {list}", separator(&update, " "));
            }
        }
        Parts {
            update: Some(update).filter(|update| !update.is_empty()),
            condition: Some(self.condition).filter(|condition| !condition.is_empty()),
            names: Some(self.names).filter(|names| !names.is_empty()),
            values: Some(self.values).filter(|values| !values.is_empty()),
        }
    }

    pub(crate) fn applied_to(self, update: UpdateItemFluentBuilder) -> UpdateItemFluentBuilder {
        let parts = self.into_parts();
        update
            .set_update_expression(parts.update)
            .set_condition_expression(parts.condition)
            .set_expression_attribute_names(parts.names)
            .set_expression_attribute_values(parts.values)
    }
}

fn separator<'a>(written: &str, separator: &'a str) -> &'a str {
    if written.is_empty() { "" } else { separator }
}

/// A string attribute.
pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: &impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The update expression and the condition must be these.
    fn check(grow: impl FnOnce(&mut Expression), expect: (Option<&str>, Option<&str>)) {
        let mut expression = Expression::default();
        grow(&mut expression);
        let parts = expression.into_parts();
        assert_eq!((parts.update.as_deref(), parts.condition.as_deref()), expect);
    }

    #[test]
    fn only_what_is_not_empty_is_written() {
        check(|_| {}, (None, None));
        check(|expression| expression.add("a", number(&1)), (Some("ADD #0 :0"), None));
        check(|expression| drop(expression.remove("a")), (Some("REMOVE #0"), None));
        check(
            |expression| {
                let (name, value) = expression.set("a", text("x"));
                expression.require(&format!("{name} < {value}"));
                expression.set_once("b", text("y"));
                expression.add("c", number(&1));
                expression.remove("d");
                expression.remove("e");
                expression.require("attribute_exists(#1)");
            },
            (
                Some("SET #0 = :0, #1 = if_not_exists(#1, :1) ADD #2 :2 REMOVE #3, #4"),
                Some("#0 < :0 AND attribute_exists(#1)"),
            ),
        );
    }

    #[test]
    fn empty_maps_are_left_out() {
        let mut expression = Expression::default();
        let name = expression.name("a");
        expression.require(&format!("attribute_exists({name})"));
        let parts = expression.into_parts();
        assert!(parts.update.is_none() && parts.values.is_none());
        assert_eq!(parts.names.map(|names| names.len()), Some(1));
    }
}
