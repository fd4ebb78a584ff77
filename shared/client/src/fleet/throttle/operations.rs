//! What the operations of DynamoDB consume.
//!
//! AWS: [capacity unit consumption](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html).

use std::hash::{DefaultHasher, Hash, Hasher as _};

use aws_sdk_dynamodb::{
    operation::{
        batch_execute_statement::{BatchExecuteStatementInput, BatchExecuteStatementOutput},
        batch_get_item::{BatchGetItemInput, BatchGetItemOutput},
        batch_write_item::{BatchWriteItemInput, BatchWriteItemOutput},
        delete_item::{DeleteItemInput, DeleteItemOutput},
        execute_statement::{ExecuteStatementInput, ExecuteStatementOutput},
        execute_transaction::{ExecuteTransactionInput, ExecuteTransactionOutput},
        get_item::{GetItemInput, GetItemOutput},
        put_item::{PutItemInput, PutItemOutput},
        query::{QueryInput, QueryOutput},
        scan::{ScanInput, ScanOutput},
        transact_get_items::{TransactGetItemsInput, TransactGetItemsOutput},
        transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput},
        update_item::{UpdateItemInput, UpdateItemOutput},
    },
    types::{ConsumedCapacity, ReturnConsumedCapacity, TransactGetItem, TransactWriteItem},
};
use aws_smithy_runtime_api::client::interceptors::context::{Input, Output};
use tidegate_domain::throttle::{
    CapacityKind::{self, Read, Write},
    Units,
};

/// A call that consumes capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) kind: CapacityKind,
    /// Calls with the same key are expected to cost the same for each entry.
    pub(super) key: u64,
    /// The number of items or statements.
    pub(super) entries: u32,
    /// What an entry of the first call costs.
    pub(super) first: Units,
}

/// What an item costs that is not larger than a unit: 4 KB read with strong consistency, or 1 KB written.
const ITEM: u64 = 1;
/// What such an item costs in a transaction.
const TRANSACTED: u64 = 2;
/// What a page of 1 MB costs, read with eventual consistency. It costs twice as much with strong consistency.
const PAGE: u64 = 128;

impl Call {
    fn new(kind: CapacityKind, alike: impl Hash, entries: usize, first: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        alike.hash(&mut hasher);
        Self {
            kind,
            key: hasher.finish(),
            entries: u32::try_from(entries).unwrap_or(u32::MAX),
            first: Units::from_millionths(first * Units::ONE),
        }
    }

    fn page(alike: impl Hash, is_consistent: Option<bool>) -> Self {
        let is_consistent = is_consistent == Some(true);
        Self::new(Read, (alike, is_consistent), 1, if is_consistent { 2 * PAGE } else { PAGE })
    }

    /// All statements of a call either read or write.
    ///
    /// AWS: [batches](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.multiplestatements.batching.html),
    /// [transactions](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.multiplestatements.transactions.html).
    fn statements<'a>(operation: &str, statements: impl Iterator<Item = &'a str> + Clone, first: u64) -> Self {
        let kind = if statements.clone().all(is_read) { Read } else { Write };
        let entries = statements.clone().count();
        // The key ignores how often a statement occurs, so batches of any size share an average.
        Self::new(kind, (operation, statements.map(without_literals).min()), entries, first)
    }
}

/// A statement without the texts and numbers in it, so that statements that differ only in values share an average.
fn without_literals(statement: &str) -> String {
    let (mut kept, mut is_number) = (String::with_capacity(statement.len()), false);
    for char in statement.split('\'').step_by(2).flat_map(str::chars) {
        let is_in_name = kept.ends_with(|last: char| last.is_alphanumeric() || last == '_') && !is_number;
        is_number = char.is_ascii_digit() && !is_in_name;
        if !is_number {
            kept.push(char);
        }
    }
    kept
}

/// Whether a PartiQL statement reads. A check of a transaction, `EXISTS(SELECT ...)`, is part of either kind.
fn is_read(statement: &str) -> bool {
    let statement = statement.trim_start();
    let verb = statement.split(|next: char| !next.is_ascii_alphabetic()).next().unwrap_or_default();
    verb.eq_ignore_ascii_case("select") || verb.eq_ignore_ascii_case("exists")
}

/// Returns what an operation consumes, and lets it ask for the consumed capacity. `None` if it consumes none.
pub(super) fn call(input: &mut Input) -> Option<Call> {
    macro_rules! first_of {
        ($($type:ty: $call:expr;)*) => {
            $(if let Some(input) = input.downcast_mut::<$type>() {
                ask(&mut input.return_consumed_capacity);
                let call: fn(&$type) -> Call = $call;
                return Some(call(input));
            })*
        };
    }
    first_of! {
        GetItemInput: |get| Call::new(Read, ("GetItem", &get.table_name, get.consistent_read), 1, ITEM);
        QueryInput: |query| Call::page(("Query", &query.table_name, &query.index_name), query.consistent_read);
        ScanInput: |scan| Call::page(("Scan", &scan.table_name, &scan.index_name), scan.consistent_read);
        BatchGetItemInput: |batch| {
            let tables = batch.request_items.iter().flatten();
            let keys = tables.clone().map(|(_, keys)| keys.keys.len()).sum();
            Call::new(Read, ("BatchGetItem", tables.map(|(table, _)| table).min()), keys, ITEM)
        };
        TransactGetItemsInput: |transaction| {
            let table = |item: &TransactGetItem| Some(item.get.as_ref()?.table_name.clone());
            let items = transaction.transact_items.as_deref().unwrap_or_default();
            Call::new(Read, ("TransactGetItems", items.iter().filter_map(table).min()), items.len(), TRANSACTED)
        };
        PutItemInput: |put| Call::new(Write, ("PutItem", &put.table_name), 1, ITEM);
        UpdateItemInput: |update| Call::new(Write, ("UpdateItem", &update.table_name), 1, ITEM);
        DeleteItemInput: |delete| Call::new(Write, ("DeleteItem", &delete.table_name), 1, ITEM);
        BatchWriteItemInput: |batch| {
            let tables = batch.request_items.iter().flatten();
            let requests = tables.clone().map(|(_, requests)| requests.len()).sum();
            Call::new(Write, ("BatchWriteItem", tables.map(|(table, _)| table).min()), requests, ITEM)
        };
        TransactWriteItemsInput: |transaction| {
            let items = transaction.transact_items.as_deref().unwrap_or_default();
            Call::new(Write, ("TransactWriteItems", items.iter().filter_map(written).min()), items.len(), TRANSACTED)
        };
        ExecuteStatementInput: |execute| {
            let statement = execute.statement.as_deref().unwrap_or_default();
            if is_read(statement) {
                Call::page(("ExecuteStatement", without_literals(statement)), execute.consistent_read)
            } else {
                Call::new(Write, ("ExecuteStatement", without_literals(statement)), 1, ITEM)
            }
        };
        BatchExecuteStatementInput: |batch| {
            let statements = batch.statements.iter().flatten().map(|statement| statement.statement.as_str());
            Call::statements("BatchExecuteStatement", statements, ITEM)
        };
        ExecuteTransactionInput: |transaction| {
            let statements = transaction.transact_statements.iter().flatten();
            let statements = statements.map(|statement| statement.statement.as_str());
            Call::statements("ExecuteTransaction", statements, TRANSACTED)
        };
    }
    None
}

/// The throttle needs the consumed capacity to correct its charge. `INDEXES` includes the total.
fn ask(capacity: &mut Option<ReturnConsumedCapacity>) {
    if matches!(capacity, None | Some(ReturnConsumedCapacity::None)) {
        *capacity = Some(ReturnConsumedCapacity::Total);
    }
}

fn written(item: &TransactWriteItem) -> Option<&str> {
    let check = item.condition_check.as_ref().map(|check| &check.table_name);
    let put = item.put.as_ref().map(|put| &put.table_name);
    let update = item.update.as_ref().map(|update| &update.table_name);
    let delete = item.delete.as_ref().map(|delete| &delete.table_name);
    check.or(put).or(update).or(delete).map(String::as_str)
}

/// What a call has consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consumed {
    /// Of the kind of the operation.
    pub(super) own: Units,
    /// Of the other kind. A transaction that is repeated with the same client token has written already, and consumes reads.
    ///
    /// AWS: [idempotency](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_RequestSyntax).
    pub(super) other: Units,
}

/// Returns what an operation has consumed, if its response says so.
pub(super) fn consumed(output: &Output, kind: CapacityKind) -> Option<Consumed> {
    let tables = tables(output);
    if tables.is_empty() {
        return None;
    }
    let other = |table: &ConsumedCapacity| match kind {
        Read => table.write_capacity_units,
        Write => table.read_capacity_units,
    };
    let other = tables.iter().filter_map(other).sum::<f64>();
    if tables.iter().all(|table| table.capacity_units.is_none()) {
        return None;
    }
    let all = tables.iter().filter_map(|table| table.capacity_units).sum::<f64>();
    Some(Consumed { own: Units::new((all - other).max(0.0))?, other: Units::new(other)? })
}

fn tables(output: &Output) -> &[ConsumedCapacity] {
    macro_rules! first_of {
        ($($type:ty),*; $($list:ty),*) => {
            $(if let Some(output) = output.downcast_ref::<$type>() {
                return output.consumed_capacity.as_slice();
            })*
            $(if let Some(output) = output.downcast_ref::<$list>() {
                return output.consumed_capacity.as_deref().unwrap_or_default();
            })*
        };
    }
    first_of! {
        GetItemOutput, QueryOutput, ScanOutput, PutItemOutput, UpdateItemOutput, DeleteItemOutput, ExecuteStatementOutput;
        BatchGetItemOutput, TransactGetItemsOutput, BatchWriteItemOutput, TransactWriteItemsOutput,
        BatchExecuteStatementOutput, ExecuteTransactionOutput
    }
    &[]
}
