//! Transactions: all of their writes happen, or none.

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{Put, TransactWriteItem, Update, error::TransactionCanceledException},
};

use crate::{
    buckets::{Item, Outcome},
    error::StoreError,
    expression::{Expression, Parts},
    schema::PK,
};

/// Writes that happen together.
pub(crate) struct Transaction<'t> {
    table: &'t str,
    items: Vec<TransactWriteItem>,
}

impl<'t> Transaction<'t> {
    pub(crate) fn new(table: &'t str) -> Self {
        Self { table, items: Vec::new() }
    }

    pub(crate) fn update(&mut self, key: Item, expression: Expression) -> Result<(), StoreError> {
        self.items.push(update(self.table, key, expression).map_err(refused)?);
        Ok(())
    }

    /// Puts an item that must not exist yet.
    pub(crate) fn put_new(&mut self, item: Item) -> Result<(), StoreError> {
        let put = Put::builder()
            .table_name(self.table)
            .set_item(Some(item))
            .condition_expression(format!("attribute_not_exists({PK})"))
            .build()
            .map_err(refused)?;
        self.items.push(TransactWriteItem::builder().put(put).build());
        Ok(())
    }

    pub(crate) async fn send(self, client: &Client) -> Result<Outcome, StoreError> {
        let sent = client.transact_write_items().set_transact_items(Some(self.items)).send().await;
        match sent {
            Ok(_) => Ok(Outcome::Written),
            Err(error) => match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled)) if is_lost(canceled) => {
                    Ok(Outcome::Lost)
                }
                _ => Err(StoreError::from_sdk("TransactWriteItems", error)),
            },
        }
    }
}

/// A snapshot changed by `expression`, and items that are to be there then, each only if it `must_be_new`.
pub(crate) fn count(
    table: &str,
    snapshot: Item,
    expression: Expression,
    evidence: Vec<Item>,
    must_be_new: bool,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let mut items = vec![update(table, snapshot, expression).map_err(refused)?];
    for item in evidence {
        let condition = must_be_new.then(|| format!("attribute_not_exists({PK})"));
        let put = Put::builder().table_name(table).set_item(Some(item)).set_condition_expression(condition);
        items.push(TransactWriteItem::builder().put(put.build().map_err(refused)?).build());
    }
    Ok(items)
}

fn update(table: &str, key: Item, expression: Expression) -> Result<TransactWriteItem, BuildError> {
    let Parts { update, condition, names, values } = expression.into_parts();
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(key))
        .set_update_expression(update)
        .set_condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values);
    Ok(TransactWriteItem::builder().update(update.build()?).build())
}

/// Whether a transaction was canceled because an item is not as it was seen, or is being written by
/// somebody else.
///
/// AWS: [TransactionCanceledException](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_Errors).
pub(crate) fn is_lost(canceled: &TransactionCanceledException) -> bool {
    canceled
        .cancellation_reasons()
        .iter()
        .any(|reason| matches!(reason.code(), Some("ConditionalCheckFailed" | "TransactionConflict")))
}

/// Whether a transaction was canceled because it would be so for ever, such as for an item that is too large.
///
/// AWS: as for [`is_lost`].
pub(crate) fn is_refused(canceled: &TransactionCanceledException) -> bool {
    canceled
        .cancellation_reasons()
        .iter()
        .any(|reason| matches!(reason.code(), Some("ValidationError" | "ItemCollectionSizeLimitExceeded")))
}

fn refused(source: BuildError) -> StoreError {
    StoreError::Refused { operation: "TransactWriteItems", source: source.into() }
}
