//! Non-fungible tokens: found by their resource or page by page, and deleted on the condition that they
//! are still as they were seen.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, operation::delete_item::DeleteItemError, types::ReturnValuesOnConditionCheckFailure};
use tidegate_domain::{
    sweep::{Reason, Removal, Token, TokenKey, seconds},
    time::EpochMillis,
};

use crate::{
    dynamodb::Item,
    error::StoreError,
    expression::{Expression, number, text},
    schema::tokens::{EXPIRATION_TIME, RESERVATION_ID, RESOURCE_COORDINATE, RESOURCE_ID, slot_number},
};

/// The table of non-fungible tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    client: Client,
    table: String,
    index: String,
}

/// Some tokens, in no order.
#[derive(Debug)]
pub struct Page {
    pub tokens: Vec<Token>,
    /// Errors of items that are not valid tokens.
    pub corrupt: Vec<StoreError>,
    /// Where to read on, if there are more.
    pub next: Option<Cursor>,
}

/// Where a page ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(Item);

/// How many items of the whole table are read at a time. Those of one resource come in pages of a
/// megabyte.
///
/// AWS: [Query](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.Pagination.html).
const PAGE: i32 = 100;

/// The number of segments in which the whole table is read. All tokens of one coordinate are in the same one. It is a
/// prime number, so that the rotation over segments is not synchronised with the rotation over clusters.
///
/// AWS: [parallel scan](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html#Scan.ParallelScan).
pub const SEGMENTS: i32 = 13;

impl Tokens {
    /// The tokens in `table`, whose `index` finds them by their resource.
    pub fn new(client: Client, table: impl Into<String>, index: impl Into<String>) -> Self {
        Self { client, table: table.into(), index: index.into() }
    }

    /// The tokens of a resource behind `after`, or the first ones. The index is a little behind the table: a
    /// token may have been written, deleted or given another resource in between.
    pub async fn of_resource(&self, resource: &str, after: Option<Cursor>) -> Result<Page, StoreError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .index_name(&self.index)
            .key_condition_expression("#resource = :resource")
            .projection_expression("#coordinate, #reservation, #resource, #expires")
            .set_expression_attribute_names(Some(names()))
            .expression_attribute_values(":resource", text(resource))
            .set_exclusive_start_key(after.map(|Cursor(key)| key));
        let page = query.send().await.map_err(|error| StoreError::from_sdk("Query", error))?;
        Ok(read(page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// The tokens of one of the table's [`SEGMENTS`] behind `after`, or the first ones.
    pub async fn page(&self, segment: i32, after: Option<Cursor>) -> Result<Page, StoreError> {
        let scan = self
            .client
            .scan()
            .table_name(&self.table)
            .segment(segment)
            .total_segments(SEGMENTS)
            .projection_expression("#coordinate, #reservation, #resource, #expires")
            .set_expression_attribute_names(Some(names()))
            .set_exclusive_start_key(after.map(|Cursor(key)| key))
            .limit(PAGE);
        let page = scan.send().await.map_err(|error| StoreError::from_sdk("Scan", error))?;
        Ok(read(page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Deletes a token that was `seen`, if the reason for it holds still at the moment `now`.
    ///
    /// A call whose answer was lost is made again, and then finds the token gone.
    pub async fn delete(&self, seen: &Token, reason: Reason, now: EpochMillis) -> Result<Removal, StoreError> {
        let mut expression = Expression::default();
        match reason {
            Reason::Ended => expression.compare(RESOURCE_ID, "=", text(&seen.resource)),
            Reason::Expired => expression.compare(EXPIRATION_TIME, "<=", number(&seconds(now))),
        }
        let condition = expression.into_parts();
        let delete = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(item_key(&seen.key)))
            .set_condition_expression(condition.condition)
            .set_expression_attribute_names(condition.names)
            .set_expression_attribute_values(condition.values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match delete.send().await {
            Ok(_) => Ok(Removal::Deleted),
            Err(error) => match error.as_service_error() {
                Some(DeleteItemError::ConditionalCheckFailedException(failed)) => {
                    let is_there = failed.item().is_some_and(|item| !item.is_empty());
                    Ok(if is_there { Removal::Changed } else { Removal::AlreadyGone })
                }
                _ => Err(StoreError::from_sdk("DeleteItem", error)),
            },
        }
    }
}

fn names() -> HashMap<String, String> {
    [
        ("#coordinate", RESOURCE_COORDINATE),
        ("#reservation", RESERVATION_ID),
        ("#resource", RESOURCE_ID),
        ("#expires", EXPIRATION_TIME),
    ]
    .map(|(name, attribute)| (name.to_owned(), attribute.to_owned()))
    .into()
}

fn item_key(key: &TokenKey) -> Item {
    [(RESOURCE_COORDINATE.to_owned(), text(&key.coordinate)), (RESERVATION_ID.to_owned(), text(&key.reservation))]
        .into()
}

fn read(items: Vec<Item>, next: Option<Item>) -> Page {
    let mut page = Page { tokens: Vec::with_capacity(items.len()), corrupt: Vec::new(), next: next.map(Cursor) };
    for item in items {
        match token(&item) {
            Ok(token) => page.tokens.extend(token),
            Err(error) => page.corrupt.push(error),
        }
    }
    page
}

/// Reads only these four attributes: a token that was written after its reservation was deleted has no others.
/// An index that projects only keys has no expiry. Returns `None` for a slot that is not bound.
fn token(item: &Item) -> Result<Option<Token>, StoreError> {
    let string = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
    let (coordinate, reservation) = (string(RESOURCE_COORDINATE), string(RESERVATION_ID));
    let corrupt = |attribute: &str| StoreError::Corrupt {
        item: [&coordinate, &reservation].map(|part| part.as_deref().unwrap_or_default()).join(" "),
        attribute: attribute.to_owned(),
        value: item.get(attribute).map_or_else(|| "nothing".to_owned(), |value| format!("{value:?}")),
    };
    let expires = item.get(EXPIRATION_TIME).and_then(|value| value.as_n().ok()?.parse().ok());
    let resource = string(RESOURCE_ID);
    // A slot has a resource while it is bound. Otherwise it is a reservation or free, and TTL deletes it.
    if resource.is_none() && reservation.as_deref().is_some_and(|reservation| slot_number(reservation).is_some()) {
        return Ok(None);
    }
    Ok(Some(Token {
        key: TokenKey {
            coordinate: coordinate.clone().ok_or_else(|| corrupt(RESOURCE_COORDINATE))?,
            reservation: reservation.clone().ok_or_else(|| corrupt(RESERVATION_ID))?,
        },
        resource: resource.ok_or_else(|| corrupt(RESOURCE_ID))?,
        expires,
    }))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;

    use super::*;
    use crate::schema::tokens::slot_key;

    fn item(attributes: &[(&str, AttributeValue)]) -> Item {
        attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn whole() -> Item {
        item(&[
            (RESOURCE_COORDINATE, text("clusters:1")),
            (RESERVATION_ID, text("r-1")),
            (RESOURCE_ID, text("j-1")),
            (EXPIRATION_TIME, number(&1_767_225_600)),
        ])
    }

    #[test]
    fn a_token_needs_no_more_than_four_attributes() {
        let token = token(&whole()).unwrap().unwrap();
        assert_eq!((token.key.coordinate.as_str(), token.key.reservation.as_str()), ("clusters:1", "r-1"));
        assert_eq!((token.resource.as_str(), token.expires), ("j-1", Some(1_767_225_600)));
    }

    #[test]
    fn an_expiry_that_cannot_be_read_is_none() {
        let check = |value: Option<AttributeValue>| {
            let mut item = whole();
            item.remove(EXPIRATION_TIME);
            item.extend(value.map(|value| (EXPIRATION_TIME.to_owned(), value)));
            assert_eq!(token(&item).unwrap().unwrap().expires, None, "{item:?}");
        };
        check(None);
        check(Some(text("1767225600")));
        check(Some(number(&0.5)));
    }

    #[test]
    fn a_slot_is_a_token_while_it_is_bound() {
        let mut slot = whole();
        slot.insert(RESERVATION_ID.to_owned(), text(slot_key(3)));
        assert_eq!(token(&slot).unwrap().unwrap().resource, "j-1");
        slot.remove(RESOURCE_ID);
        assert_eq!(token(&slot).unwrap(), None);
    }

    #[test]
    fn an_invalid_token_is_named_by_key() {
        let check = |attribute: &str, expect: &str| {
            let mut item = whole();
            item.remove(attribute);
            let message = token(&item).unwrap_err().to_string();
            assert_eq!(message, format!("attribute {attribute} of {expect} has the invalid value nothing"));
        };
        check(RESOURCE_ID, "clusters:1 r-1");
        check(RESERVATION_ID, "clusters:1 ");
    }
}
