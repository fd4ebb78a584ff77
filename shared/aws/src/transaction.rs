//! Transactions: of a split, in which the donor gives and the new shard is put, and of a counting that leaves
//! evidence. All of it is written, or nothing.

use aws_sdk_dynamodb::{
    error::BuildError,
    types::{ConditionCheck, Put, TransactWriteItem, Update, error::TransactionCanceledException},
};

use crate::{
    buckets::Item,
    error::StoreError,
    expression::{Expression, Parts},
    schema::PK,
};

/// The two items of the transaction: the donor's, changed by `expression` or only checked by it, and the
/// new shard's, which must not be there.
pub(crate) fn split(
    table: &str,
    donor: Item,
    expression: Expression,
    clone: Item,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let give = give(table, donor, expression).map_err(refused)?;
    let create = Put::builder()
        .table_name(table)
        .set_item(Some(clone))
        .condition_expression(format!("attribute_not_exists({PK})"))
        .build()
        .map_err(refused)?;
    Ok(vec![give, TransactWriteItem::builder().put(create).build()])
}

/// A snapshot changed by `expression`, and items that are to be there then, each only if it `must_be_new`.
pub(crate) fn count(
    table: &str,
    snapshot: Item,
    expression: Expression,
    evidence: Vec<Item>,
    must_be_new: bool,
) -> Result<Vec<TransactWriteItem>, StoreError> {
    let mut items = vec![give(table, snapshot, expression).map_err(refused)?];
    for item in evidence {
        let condition = must_be_new.then(|| format!("attribute_not_exists({PK})"));
        let put = Put::builder().table_name(table).set_item(Some(item)).set_condition_expression(condition);
        items.push(TransactWriteItem::builder().put(put.build().map_err(refused)?).build());
    }
    Ok(items)
}

fn give(table: &str, donor: Item, expression: Expression) -> Result<TransactWriteItem, BuildError> {
    let Parts { update, condition, names, values } = expression.into_parts();
    let item = TransactWriteItem::builder();
    // Shard 0 knows its number of shards already, and may have nothing to give.
    if let Some(update) = update {
        let update = Update::builder()
            .table_name(table)
            .set_key(Some(donor))
            .update_expression(update)
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        return Ok(item.update(update.build()?).build());
    }
    let check = ConditionCheck::builder()
        .table_name(table)
        .set_key(Some(donor))
        .set_condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values);
    Ok(item.condition_check(check.build()?).build())
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
