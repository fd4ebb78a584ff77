//! The limits of the token tables: how many tokens an account may hold of a resource, or take in a window.

use std::time::Duration;

use aws_sdk_dynamodb::{Client, types::AttributeValue};

use crate::{
    dynamodb::Item,
    error::StoreError,
    expression::text,
    schema::tokens::{ACCOUNT_ID, LIMIT, RESOURCE_NAME, WINDOW_SEC},
};

/// The table of limits.
#[derive(Clone, Debug)]
pub struct TokenLimits {
    client: Client,
    table: String,
}

/// A limit of an account on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLimit {
    /// The number of tokens. 0 blocks the account. A stored negative number is read as 0.
    pub tokens: u64,
    /// The window in which a fungible bucket accrues these tokens. `None` for non-fungible limits.
    pub window: Option<Duration>,
}

impl TokenLimits {
    /// The limits in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Reads the limit of an account, eventually consistently, as all clients do. `None` if it has none of its own.
    pub async fn find(&self, resource: &str, account: &str) -> Result<Option<TokenLimit>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(limit_key(resource, account)));
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(|item| token_limit(&item)).transpose()
    }
}

/// The key of an account's limit.
pub(crate) fn limit_key(resource: &str, account: &str) -> Item {
    [(RESOURCE_NAME.to_owned(), text(resource)), (ACCOUNT_ID.to_owned(), text(account))].into()
}

/// Reads a row of the table.
pub(crate) fn token_limit(item: &Item) -> Result<TokenLimit, StoreError> {
    let integer = |attribute: &str| match item.get(attribute) {
        None => Ok(None),
        Some(AttributeValue::N(digits)) if digits.parse::<i64>().is_ok() => Ok(digits.parse::<i64>().ok()),
        Some(other) => Err(corrupt(item, attribute, &format!("{other:?}"))),
    };
    let tokens = integer(LIMIT)?.ok_or_else(|| corrupt(item, LIMIT, "nothing"))?;
    let seconds = integer(WINDOW_SEC)?.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0);
    Ok(TokenLimit { tokens: u64::try_from(tokens).unwrap_or(0), window: seconds.map(Duration::from_secs) })
}

fn corrupt(item: &Item, attribute: &str, value: &str) -> StoreError {
    let part = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
    StoreError::Corrupt {
        item: format!("{} {}", part(RESOURCE_NAME), part(ACCOUNT_ID)),
        attribute: attribute.to_owned(),
        value: value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::number;

    fn check(attributes: &[(&str, AttributeValue)], expect: Result<(u64, Option<u64>), &str>) {
        let mut item = limit_key("emr", "1");
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let read = token_limit(&item).map(|limit| (limit.tokens, limit.window.map(|window| window.as_secs())));
        assert_eq!(read.map_err(|error| error.to_string()), expect.map_err(str::to_owned));
    }

    #[test]
    fn rows_are_read_as_clients_write_them() {
        check(&[(LIMIT, number(&10)), (WINDOW_SEC, number(&60))], Ok((10, Some(60))));
        check(&[(LIMIT, number(&10)), (WINDOW_SEC, number(&0))], Ok((10, None)));
        check(&[(LIMIT, number(&10))], Ok((10, None)));
        check(&[(LIMIT, number(&-1))], Ok((0, None)));
    }

    #[test]
    fn an_invalid_row_is_named_by_key() {
        check(&[], Err("attribute limit of emr 1 has the invalid value nothing"));
        check(&[(LIMIT, text("10"))], Err("attribute limit of emr 1 has the invalid value S(\"10\")"));
        check(
            &[(LIMIT, number(&10)), (WINDOW_SEC, number(&0.5))],
            Err("attribute windowSec of emr 1 has the invalid value N(\"0.5\")"),
        );
    }
}
