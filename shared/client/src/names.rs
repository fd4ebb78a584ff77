//! Names as all clients of a table accept them.

use tidegate_domain::bucket::{Entity, Limit, Resource};

use crate::error::InvalidRequest;

/// The longest id of an entity, in characters.
const LONGEST_ENTITY: usize = 256;
/// The longest name of a resource or a limit, in characters.
const LONGEST_NAME: usize = 64;

/// Checks the id of an entity: a letter or a digit, then letters, digits and `_ . - : @`.
pub(crate) fn entity(text: &str) -> Result<Entity<'static>, InvalidRequest> {
    identifier("entity", text)
}

/// Checks the name of who makes a change: like an entity's, or an ARN.
pub(crate) fn principal(text: &str) -> Result<(), InvalidRequest> {
    if text.starts_with("arn:") { Ok(()) } else { identifier("principal", text).map(drop) }
}

fn identifier(field: &'static str, text: &str) -> Result<Entity<'static>, InvalidRequest> {
    let is_valid = text.starts_with(|first: char| first.is_ascii_alphanumeric()) && consists_of(text, "_.-:@");
    let invalid = || invalid(field, text, LONGEST_ENTITY, "a letter or a digit, then letters, digits and _ . - : @");
    if !is_valid || text.len() > LONGEST_ENTITY {
        return Err(invalid());
    }
    Entity::new(text.to_owned()).map_err(|_| invalid())
}

/// Checks the name of a resource: a letter, then letters, digits and `_ . - / :`.
pub(crate) fn resource(text: &str) -> Result<Resource<'static>, InvalidRequest> {
    let is_valid = text.starts_with(|first: char| first.is_ascii_alphabetic()) && consists_of(text, "_.-/:");
    let invalid = || invalid("resource", text, LONGEST_NAME, "a letter, then letters, digits and _ . - / :");
    if !is_valid || text.len() > LONGEST_NAME {
        return Err(invalid());
    }
    Resource::new(text.to_owned()).map_err(|_| invalid())
}

/// Checks the name of a limit: a letter, then letters, digits and `_ . -`.
pub(crate) fn limit(text: &str) -> Result<Limit<'static>, InvalidRequest> {
    let is_valid = text.starts_with(|first: char| first.is_ascii_alphabetic()) && consists_of(text, "_.-");
    let invalid = || invalid("limit", text, LONGEST_NAME, "a letter, then letters, digits and _ . -");
    if !is_valid || text.len() > LONGEST_NAME {
        return Err(invalid());
    }
    if text == Limit::WRITE_UNITS {
        return Err(InvalidRequest::ReservedLimit);
    }
    Limit::new(text.to_owned()).map_err(|_| invalid())
}

fn consists_of(text: &str, others: &str) -> bool {
    text.chars().all(|character| character.is_ascii_alphanumeric() || others.contains(character))
}

fn invalid(field: &'static str, value: &str, longest: usize, expected: &'static str) -> InvalidRequest {
    InvalidRequest::Name { field, value: value.to_owned(), longest, expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_all_clients() {
        for text in ["user-1", "0", "team:a@example.com", "a_b.c"] {
            assert_eq!(entity(text).unwrap().as_str(), text);
        }
        for text in ["", "-a", "a#b", "a/b", "ü", "a b", &"a".repeat(257)] {
            let message = entity(text).unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")) && message.contains("entity"), "{message}");
        }
        for text in ["gpt-4", "bedrock/claude:v1", "a"] {
            assert_eq!(resource(text).unwrap().as_str(), text);
        }
        for text in ["", "4", "a#b", "a@b", &"a".repeat(65)] {
            assert!(resource(text).unwrap_err().to_string().contains(&format!("{text:?}")));
        }
        for text in ["rpm", "tokens.in", "a-b_c"] {
            assert_eq!(limit(text).unwrap().as_str(), text);
        }
        for text in ["", "1", "a/b", "a:b", &"a".repeat(65)] {
            assert!(limit(text).unwrap_err().to_string().contains(&format!("{text:?}")));
        }
        assert_eq!(limit("wcu").unwrap_err().to_string(), "the limit \"wcu\" is reserved for write units");
    }
}
