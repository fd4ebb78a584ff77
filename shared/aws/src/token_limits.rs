//! The limits of the token tables: how many tokens an account may hold of a resource, or take in a window.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    operation::{delete_item::DeleteItemError, update_item::UpdateItemError},
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_domain::token_limits::{LimitKey, LimitRow};

pub use crate::dynamodb::WriteOutcome;
use crate::{
    dynamodb::{Item, batch_get, query_all, through_conflicts},
    error::StoreError,
    expression::{Expression, number, text},
    schema::tokens::{ACCOUNT_ID, LIMIT, RESOURCE_NAME, SERVICE_NAME, WINDOW_SEC},
};

/// The most rows of one read.
///
/// AWS: [BatchGetItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
const BATCH: usize = 100;

/// The table of limits.
#[derive(Clone, Debug)]
pub struct TokenLimits {
    client: Client,
    table: String,
}

/// The rows that were read. Each write is conditional on the values in them.
#[derive(Debug)]
pub struct SeenRows(BTreeMap<LimitKey, Item>);

impl SeenRows {
    pub fn limits(&self) -> BTreeMap<LimitKey, LimitRow> {
        self.0.iter().map(|(key, item)| (key.clone(), limit_row(item))).collect()
    }
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

    /// Reads an account's limit with an eventually consistent read, as all clients do. `None` if the account has no row.
    pub async fn find(&self, resource: &str, account: &str) -> Result<Option<TokenLimit>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(limit_key(resource, account)));
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(|item| token_limit(&item)).transpose()
    }

    /// Reads the keys of all rows of a service, page by page, from the `index` by service. The index is a little behind
    /// the table.
    pub async fn keys_of_service(&self, index: &str, service: &str) -> Result<BTreeSet<LimitKey>, StoreError> {
        let query = self.client.query().table_name(&self.table).index_name(index);
        let query = query.key_condition_expression("#service = :service").projection_expression("#resource, #account");
        let names = [("#service", SERVICE_NAME), ("#resource", RESOURCE_NAME), ("#account", ACCOUNT_ID)];
        let names = names.map(|(name, attribute)| (name.to_owned(), attribute.to_owned()));
        let query = query.set_expression_attribute_names(Some(names.into()));
        let items = query_all(query.expression_attribute_values(":service", text(service))).await?;
        items.iter().map(key_of).collect()
    }

    /// Reads the rows with these keys, consistently. Missing rows are left out.
    pub async fn rows(&self, keys: &BTreeSet<LimitKey>) -> Result<SeenRows, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| limit_key(&key.resource, &key.account)).collect();
        let mut rows = BTreeMap::new();
        for keys in keys.chunks(BATCH) {
            for item in batch_get(&self.client, &self.table, keys.to_vec(), true).await? {
                rows.insert(key_of(&item)?, item);
            }
        }
        Ok(SeenRows(rows))
    }

    /// Writes these values on the condition that the row has not changed since it was read. A row that already has them
    /// counts as written, because the SDK repeats a call whose response was lost. Other attributes stay.
    pub async fn set(&self, key: &LimitKey, seen: &SeenRows, row: &LimitRow) -> Result<WriteOutcome, StoreError> {
        let mut expression = unchanged(seen.0.get(key));
        let values = [
            (LIMIT, row.limit.as_ref().map(number)),
            (WINDOW_SEC, row.window_seconds.as_ref().map(number)),
            (SERVICE_NAME, row.service.as_deref().map(text)),
        ];
        for (attribute, value) in values {
            if let Some(value) = value {
                expression.set(attribute, value);
            }
        }
        let update = self.client.update_item().table_name(&self.table);
        let update = update.set_key(Some(limit_key(&key.resource, &key.account)));
        let update = expression.applied_to(update);
        let update = update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match through_conflicts(|| update.clone().send()).await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                    Ok(outcome(failed.item().is_some_and(|item| limit_row(item) == *row)))
                }
                _ => Err(StoreError::from_sdk("UpdateItem", error)),
            },
        }
    }

    /// Deletes the row on the condition that it has not changed since it was read. A row that is already gone counts as
    /// deleted.
    pub async fn delete(&self, key: &LimitKey, seen: &SeenRows) -> Result<WriteOutcome, StoreError> {
        let condition = unchanged(seen.0.get(key)).into_parts();
        let delete = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(limit_key(&key.resource, &key.account)))
            .set_condition_expression(condition.condition)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match through_conflicts(|| delete.clone().send()).await {
            Ok(_) => Ok(WriteOutcome::Written),
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(failed)) => {
                    Ok(outcome(failed.item().is_none_or(Item::is_empty)))
                }
                _ => Err(StoreError::from_sdk("DeleteItem", error)),
            },
        }
    }
}

/// The outcome of a write whose condition failed.
fn outcome(is_done: bool) -> WriteOutcome {
    if is_done { WriteOutcome::Written } else { WriteOutcome::Lost }
}

/// The condition that a row still has the values that were seen, or still does not exist.
fn unchanged(seen: Option<&Item>) -> Expression {
    let mut expression = Expression::default();
    let key = expression.name(RESOURCE_NAME);
    let Some(seen) = seen else {
        expression.require(&format!("attribute_not_exists({key})"));
        return expression;
    };
    expression.require(&format!("attribute_exists({key})"));
    for attribute in [LIMIT, WINDOW_SEC, SERVICE_NAME] {
        if let Some(value) = seen.get(attribute) {
            expression.compare(attribute, "=", value.clone());
        } else {
            let name = expression.name(attribute);
            expression.require(&format!("attribute_not_exists({name})"));
        }
    }
    expression
}

fn key_of(item: &Item) -> Result<LimitKey, StoreError> {
    let part = |attribute: &str| {
        let value = item.get(attribute).and_then(|value| value.as_s().ok()).cloned();
        value.ok_or_else(|| corrupt(item, attribute, &format!("{:?}", item.get(attribute))))
    };
    Ok(LimitKey { resource: part(RESOURCE_NAME)?, account: part(ACCOUNT_ID)? })
}

fn limit_row(item: &Item) -> LimitRow {
    let integer = |attribute: &str| item.get(attribute).and_then(|value| value.as_n().ok()?.parse().ok());
    LimitRow {
        limit: integer(LIMIT),
        window_seconds: integer(WINDOW_SEC),
        service: item.get(SERVICE_NAME).and_then(|value| value.as_s().ok()).cloned(),
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

/// The error for an attribute of an item that is keyed by resource and account.
pub(crate) fn corrupt(item: &Item, attribute: &str, value: &str) -> StoreError {
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
