//! Transactions: all of their writes happen, or none.

use aws_sdk_dynamodb::{
    Client,
    error::BuildError,
    operation::transact_write_items::TransactWriteItemsError,
    types::{Delete, Put, TransactWriteItem, Update, error::TransactionCanceledException},
};

use crate::{
    dynamodb::{Backoff, Item, WriteOutcome},
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

    /// Puts an item, if the condition of `expression` holds for the present one.
    pub(crate) fn put(&mut self, item: Item, expression: Expression) -> Result<(), StoreError> {
        let Parts { condition, names, values, .. } = expression.into_parts();
        let put = Put::builder()
            .table_name(self.table)
            .set_item(Some(item))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .build()
            .map_err(refused)?;
        self.items.push(TransactWriteItem::builder().put(put).build());
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

    /// Deletes an item that must exist.
    pub(crate) fn delete_existing(&mut self, key: Item) -> Result<(), StoreError> {
        let delete = Delete::builder()
            .table_name(self.table)
            .set_key(Some(key))
            .condition_expression(format!("attribute_exists({PK})"))
            .build()
            .map_err(refused)?;
        self.items.push(TransactWriteItem::builder().delete(delete).build());
        Ok(())
    }

    /// Sends the transaction, and again with jittered backoff while it conflicts with another one or is throttled: the
    /// SDK retries neither. The caller ends this when it takes too long.
    pub(crate) async fn send(self, client: &Client) -> Result<WriteOutcome, StoreError> {
        let mut backoff = Backoff::default();
        loop {
            let sent = client.transact_write_items().set_transact_items(Some(self.items.clone())).send().await;
            let Err(error) = sent else { return Ok(WriteOutcome::Written) };
            let cancellation = match error.as_service_error() {
                Some(TransactWriteItemsError::TransactionCanceledException(canceled)) => Cancellation::of(canceled),
                _ => None,
            };
            match cancellation {
                Some(Cancellation::Lost) => return Ok(WriteOutcome::Lost),
                Some(Cancellation::Refused) => {
                    return Err(StoreError::Refused { operation: OPERATION, source: Box::new(error) });
                }
                Some(Cancellation::Busy) => backoff.wait().await,
                None => return Err(StoreError::from_sdk(OPERATION, error)),
            }
        }
    }
}

const OPERATION: &str = "TransactWriteItems";

/// Why a transaction was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cancellation {
    /// An item is not as it was seen.
    Lost,
    /// The table will never take it, for instance because an item would be too large.
    Refused,
    /// It conflicted with another transaction, or was throttled. The same transaction may succeed later.
    Busy,
}

impl Cancellation {
    /// The reason that counts: a refusal before a failed condition, and that before what may pass. `None` if none of
    /// them is known.
    ///
    /// AWS: [reasons](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_Errors).
    fn of(canceled: &TransactionCanceledException) -> Option<Self> {
        let has = |codes: &[&str]| {
            canceled.cancellation_reasons().iter().filter_map(|reason| reason.code()).any(|code| codes.contains(&code))
        };
        if has(&["ValidationError", "ItemCollectionSizeLimitExceeded"]) {
            Some(Self::Refused)
        } else if has(&["ConditionalCheckFailed"]) {
            Some(Self::Lost)
        } else if has(&["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]) {
            Some(Self::Busy)
        } else {
            None
        }
    }
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

fn refused(source: BuildError) -> StoreError {
    StoreError::Refused { operation: OPERATION, source: source.into() }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::CancellationReason;

    use super::*;

    #[test]
    fn the_reason_that_lasts_longest_counts() {
        let check = |codes: &[&str], expect| {
            let reasons = codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect();
            let canceled = TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons)).build();
            assert_eq!(Cancellation::of(&canceled), expect, "{codes:?}");
        };
        for code in ["ValidationError", "ItemCollectionSizeLimitExceeded"] {
            check(&["None", "TransactionConflict", "ConditionalCheckFailed", code], Some(Cancellation::Refused));
        }
        check(&["None", "ThrottlingError", "ConditionalCheckFailed"], Some(Cancellation::Lost));
        for code in ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"] {
            check(&["None", code], Some(Cancellation::Busy));
        }
        check(&["None", "SomethingNew"], None);
        check(&[], None);
    }
}
