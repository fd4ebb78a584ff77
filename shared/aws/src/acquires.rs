//! Bucket items, as a client takes tokens from them and gives them back.
//!
//! An `ADD` is not idempotent, so the SDK must not send one again. Each write
//! leaves its id in the attribute [`bucket::OPERATION`]. If a response is lost, [`Acquires::find`] reads the item and tells
//! whether the write happened.

use std::{collections::HashMap, error::Error, fmt::Write as _, io::ErrorKind};

use aws_sdk_dynamodb::{
    Client,
    config::retry::RetryConfig,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        put_item::PutItemError,
        update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    },
    types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_domain::{
    admission::{Change, Take, WRITE_UNIT},
    bucket::{BucketKey, Entity, Limit},
    state::{BucketImage, BucketState, LimitState},
    time::EpochMillis,
    tokens::Millitokens,
};

use crate::{
    buckets::{attribute, item_key, require_terms},
    configurations::Configured,
    dynamodb::{Item, WriteOutcome},
    error::StoreError,
    expression::{Expression, number, text},
    image::{describe, image_of},
    schema::{self, PK, TTL, bucket},
    transaction::Transaction,
};

/// The buckets of a table, for a client.
#[derive(Clone, Debug)]
pub struct Acquires {
    /// For reads, which may be repeated.
    client: Client,
    /// Sends each write once.
    once: Client,
    table: String,
}

/// A bucket item, as a write or a read returned it.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketItem {
    /// What it holds, whatever its `vu`.
    pub image: BucketImage<'static>,
    /// The entity to which consumption cascades.
    pub parent: Option<Entity<'static>>,
    /// Whether it refuses all callers.
    pub is_disabled: bool,
    /// Whether a limit of it is soft: it admits callers into debt.
    pub is_soft: bool,
    /// Until when its amounts hold, in epoch milliseconds. 0 asks for one pass that clamps the tokens.
    pub valid_until: Option<i64>,
    /// Until when it admits all callers, in epoch milliseconds.
    pub bypass_until: Option<i64>,
    /// The id of the last write of a client of this crate.
    pub operation: Option<String>,
}

/// A change of what was taken of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment<'a> {
    pub limit: Limit<'a>,
    /// Added to the stored tokens, in millitokens.
    pub tokens: i64,
    /// Added to what was consumed, in millitokens.
    pub consumed: i64,
    /// The write depends on at most so many stored tokens.
    pub at_most: Option<i64>,
    /// The write depends on at least so many stored tokens.
    pub at_least: Option<i64>,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// It happened; the item after it.
    Applied(BucketItem),
    /// A condition failed, so nothing was written; the item, or `None` if there is none.
    Refused(Option<BucketItem>),
}

/// Why it is not known from the response what became of a write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The table or the item's partition takes no more for the moment. Nothing was written.
    #[error("{0}")]
    Throttled(StoreError),
    /// Nothing was written.
    #[error("{0}")]
    NotWritten(StoreError),
    /// The response was lost: the write may have happened.
    #[error("the response was lost: {0}")]
    Lost(StoreError),
}

/// The expressions of the speculative write, which depend on nothing but the names of the limits.
#[derive(Clone, Debug)]
pub struct SpeculativeWrite {
    limits: Vec<Limit<'static>>,
    update: String,
    merged_update: String,
    condition: String,
    names: HashMap<String, String>,
}

impl SpeculativeWrite {
    /// The write that takes these limits, which must not include the reserved one.
    pub fn new(limits: Vec<Limit<'static>>) -> Self {
        let mut update = String::from("SET #op = :op ADD #wt :wd, #wc :wa");
        // A bypassed bucket admits all callers, and a soft limit those that it has no tokens for: zae-limiter 0.17.
        let mut condition = String::from(
            "attribute_exists(#pk) AND #wt >= :wa AND attribute_not_exists(#dis) \
             AND (attribute_not_exists(#ttl) OR #ttl > :secs) \
             AND (attribute_not_exists(#by) OR #by > :now) \
             AND (#by > :now OR attribute_not_exists(#vu) OR #vu > :now)",
        );
        let mut names: HashMap<_, _> = [
            ("#op", bucket::OPERATION.to_owned()),
            ("#wt", bucket::attribute(Limit::WRITE_UNITS, bucket::TOKENS)),
            ("#wc", bucket::attribute(Limit::WRITE_UNITS, bucket::CONSUMED)),
            ("#pk", PK.to_owned()),
            ("#dis", bucket::DISABLED.to_owned()),
            ("#ttl", TTL.to_owned()),
            ("#by", bucket::BYPASS.to_owned()),
            ("#vu", bucket::VALID_UNTIL.to_owned()),
        ]
        .map(|(name, attribute)| (name.to_owned(), attribute))
        .into();
        for (at, limit) in limits.iter().enumerate() {
            let _ = write!(update, ", #t{at} :d{at}, #c{at} :a{at}");
            let _ = write!(
                condition,
                " AND (#by > :now OR (#s{at} > :now AND attribute_exists(#p{at}) AND attribute_exists(#t{at})) \
                 OR #t{at} >= :a{at}) AND (attribute_not_exists(#s{at}) OR #s{at} > :now)"
            );
            for (name, field) in
                [("t", bucket::TOKENS), ("c", bucket::CONSUMED), ("s", bucket::SOFT), ("p", bucket::CAPACITY)]
            {
                names.insert(format!("#{name}{at}"), attribute(limit, field));
            }
        }
        let merged_update = format!("{update}, #n :n");
        Self { limits, update, merged_update, condition, names }
    }

    /// The limits, in the order in which amounts are given.
    pub fn limits(&self) -> &[Limit<'static>] {
        &self.limits
    }
}

/// A shard, and what is taken from it.
#[derive(Clone, Debug)]
pub struct SeenShard<'s, 'a> {
    pub key: BucketKey<'a>,
    /// The shard as it was seen.
    pub state: &'s BucketState<'a>,
    pub take: Take<'a>,
}

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'o> {
    /// The id that the write leaves on the item; never used twice.
    pub id: &'o str,
    /// How many acquires the write merges.
    pub acquires: u32,
    /// The present moment.
    pub now: EpochMillis,
}

impl Acquires {
    /// The buckets in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        let once = client.config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { client, once: Client::from_conf(once), table: table.into() }
    }

    /// Takes amounts, in the order of the write's limits, if the stored tokens cover them: one call, as all
    /// versions of zae-limiter make it.
    pub async fn speculate(
        &self,
        key: &BucketKey<'_>,
        write: &SpeculativeWrite,
        amounts: &[Millitokens],
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        let mut values: HashMap<_, _> = [
            (":op", text(operation.id)),
            (":wa", number(&WRITE_UNIT)),
            (":wd", number(&-WRITE_UNIT.get())),
            (":secs", number(&(operation.now.get() / 1000))),
            (":now", number(&operation.now)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (at, amount) in amounts.iter().enumerate() {
            values.insert(format!(":a{at}"), number(amount));
            values.insert(format!(":d{at}"), number(&-amount.get()));
        }
        let mut names = write.names.clone();
        let is_merged = operation.acquires > 1;
        if is_merged {
            names.insert("#n".to_owned(), bucket::ACQUIRES.to_owned());
            values.insert(":n".to_owned(), number(&operation.acquires));
        }
        let update = self
            .once
            .update_item()
            .update_expression(if is_merged { &write.merged_update } else { &write.update })
            .condition_expression(&write.condition)
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values));
        self.send(key, update).await
    }

    /// Refills a shard that was `seen` and takes from it, in one write. `expires` is the new expiry in epoch seconds;
    /// `None` if the item must not expire.
    pub async fn take(
        &self,
        key: &BucketKey<'_>,
        seen: &BucketItem,
        state: &BucketState<'_>,
        take: &Take<'_>,
        expires: Option<i64>,
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        let expression = take_expression(seen.valid_until, state, take, expires, operation);
        self.send(key, expression.applied_to(self.once.update_item())).await
    }

    /// Refills several shards of a bucket and takes from each, in one transaction. The SDK may send it again: its token
    /// makes it idempotent.
    ///
    /// AWS: [idempotency](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-apis-txwriteitems).
    pub async fn take_together(
        &self,
        takes: &[SeenShard<'_, '_>],
        expires: Option<i64>,
        operation: Operation<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut transaction = Transaction::new(&self.table);
        for SeenShard { key, state, take } in takes {
            transaction.update(item_key(key), take_expression(None, state, take, expires, operation))?;
        }
        transaction.send(&self.client).await
    }

    /// Creates an item that does not exist, with the state that it has after the first acquire.
    pub async fn create(
        &self,
        key: &BucketKey<'_>,
        state: &BucketState<'_>,
        configured: &Configured,
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        let BucketKey { namespace, entity, resource, .. } = key;
        let mut item = item_key(key);
        let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
        put(schema::ENTITY_ID, text(entity.as_str()));
        put(schema::RESOURCE, text(resource.as_str()));
        put(bucket::CASCADE, AttributeValue::Bool(configured.parent.is_some()));
        if let Some(parent) = &configured.parent {
            put(bucket::PARENT_ID, text(parent.as_str()));
        }
        put(bucket::LAST_REFILL, number(&state.last_refill));
        put(bucket::SHARD_COUNT, number(&state.shards.get()));
        put(bucket::OPERATION, text(operation.id));
        if operation.acquires > 1 {
            put(bucket::ACQUIRES, number(&operation.acquires));
        }
        if let Some(expires) = state.expires {
            put(TTL, number(&expires));
        }
        put(schema::GSI2PK, text(schema::resource_pk(namespace, resource)));
        put(schema::GSI2SK, text(schema::bucket_gsi2_sk(key)));
        put(schema::GSI3PK, text(schema::entity_pk(namespace, entity)));
        put(schema::GSI3SK, text(schema::bucket_gsi3_sk(key)));
        put(schema::GSI4PK, text(namespace.as_str()));
        put(schema::GSI4SK, text(schema::bucket_gsi4_sk(key)));
        for (limit, LimitState { tokens, consumed, terms }) in &state.limits {
            for (field, value) in [
                (bucket::TOKENS, number(tokens)),
                (bucket::CONSUMED, number(consumed)),
                (bucket::CAPACITY, number(&terms.capacity)),
                (bucket::REFILL_AMOUNT, number(&terms.refill)),
                (bucket::REFILL_PERIOD, number(&terms.period)),
            ] {
                put(&attribute(limit, field), value);
            }
        }
        let sent = self
            .once
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item.clone()))
            .condition_expression("attribute_not_exists(PK)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match sent {
            Ok(_) => Ok(Written::Applied(bucket_item(item).map_err(WriteError::Lost)?)),
            Err(error) => refused("PutItem", error, |error| match error {
                PutItemError::ConditionalCheckFailedException(failed) => Some(failed.item),
                _ => None,
            }),
        }
    }

    /// Changes what was taken of some limits.
    pub async fn adjust(
        &self,
        key: &BucketKey<'_>,
        adjustments: &[Adjustment<'_>],
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        let mut expression = Expression::default();
        let exists = expression.name(PK);
        expression.require(&format!("attribute_exists({exists})"));
        expression.set(bucket::OPERATION, text(operation.id));
        for Adjustment { limit, tokens, consumed, at_most, at_least } in adjustments {
            let name = attribute(limit, bucket::TOKENS);
            if *tokens != 0 {
                expression.add(name.clone(), number(tokens));
            }
            expression.add(attribute(limit, bucket::CONSUMED), number(consumed));
            if let Some(at_most) = at_most {
                expression.compare(name.clone(), "<=", number(at_most));
            } else {
                // An item without the limit would become one that no client can use.
                let name = expression.name(name.clone());
                expression.require(&format!("attribute_exists({name})"));
            }
            if let Some(at_least) = at_least {
                expression.compare(name, ">=", number(at_least));
            }
        }
        self.send(key, expression.applied_to(self.once.update_item())).await
    }

    /// Reads an item, consistently; `None` if there is none.
    pub async fn find(&self, key: &BucketKey<'_>) -> Result<Option<BucketItem>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(item_key(key))).consistent_read(true);
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(bucket_item).transpose()
    }

    async fn send(&self, key: &BucketKey<'_>, update: UpdateItemFluentBuilder) -> Result<Written, WriteError> {
        let sent = update
            .table_name(&self.table)
            .set_key(Some(item_key(key)))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match sent {
            // The write has happened, whatever the item looks like.
            Ok(output) => {
                Ok(Written::Applied(bucket_item(output.attributes.unwrap_or_default()).map_err(WriteError::Lost)?))
            }
            Err(error) => refused("UpdateItem", error, |error| match error {
                UpdateItemError::ConditionalCheckFailedException(failed) => Some(failed.item),
                _ => None,
            }),
        }
    }
}

/// The write that refills a shard that was seen and takes from it, on the condition that it still is as it was seen.
fn take_expression(
    valid_until: Option<i64>,
    state: &BucketState<'_>,
    take: &Take<'_>,
    expires: Option<i64>,
    operation: Operation<'_>,
) -> Expression {
    let mut expression = Expression::default();
    expression.compare(bucket::LAST_REFILL, "=", number(&state.last_refill));
    expression.compare(bucket::SHARD_COUNT, "=", number(&state.shards.get()));
    pin_plain(&mut expression, valid_until);
    expression.set(bucket::OPERATION, text(operation.id));
    if take.until > state.last_refill {
        expression.set(bucket::LAST_REFILL, number(&take.until));
    }
    match expires {
        Some(expires) if state.expires != Some(expires) => drop(expression.set(TTL, number(&expires))),
        None if state.expires.is_some() => drop(expression.remove(TTL)),
        _ => {}
    }
    if operation.acquires > 1 {
        expression.add(bucket::ACQUIRES, number(&operation.acquires));
    }
    for (limit, of) in &state.limits {
        require_terms(&mut expression, limit, &of.terms);
        let Some(Change { credit, taken, at_least }) = take.changes.get(limit) else { continue };
        let tokens = attribute(limit, bucket::TOKENS);
        // What another writer has credited must not be credited twice.
        expression.compare(tokens.clone(), "<=", number(&of.tokens));
        if taken.get() > 0 {
            expression.compare(tokens.clone(), ">=", number(at_least));
            expression.add(attribute(limit, bucket::CONSUMED), number(taken));
        }
        let change = credit.get().saturating_sub(taken.get());
        if change != 0 {
            expression.add(tokens, number(&change));
        }
    }
    expression
}

/// A plain bucket: neither disabled nor bypassed, without soft limits, and with the `vu` that was seen. A write that
/// refills clamps the tokens, which is all that a `vu` of 0 asks for, so it removes it.
fn pin_plain(expression: &mut Expression, seen: Option<i64>) {
    for attribute in [bucket::DISABLED, bucket::BYPASS] {
        let name = expression.name(attribute);
        expression.require(&format!("attribute_not_exists({name})"));
    }
    match seen {
        None => {
            let name = expression.name(bucket::VALID_UNTIL);
            expression.require(&format!("attribute_not_exists({name})"));
        }
        Some(seen) => {
            let name = expression.remove(bucket::VALID_UNTIL);
            let value = expression.value(number(&seen));
            expression.require(&format!("{name} = {value}"));
        }
    }
}

/// Judges the error of a write that is sent once. `condition_failed` returns the item if a condition failed.
fn refused<E>(
    operation: &'static str,
    error: SdkError<E>,
    condition_failed: fn(E) -> Option<Option<Item>>,
) -> Result<Written, WriteError>
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    if error.code() == Some("ConditionalCheckFailedException") {
        let SdkError::ServiceError(error) = error else { return Ok(Written::Refused(None)) };
        let item = condition_failed(error.into_err()).flatten();
        return Ok(Written::Refused(item.map(bucket_item).transpose().map_err(WriteError::NotWritten)?));
    }
    let judge = match &error {
        SdkError::ServiceError(service) => match service.err().code() {
            // A transaction that holds the item is over in milliseconds.
            Some(
                "ProvisionedThroughputExceededException"
                | "ThrottlingException"
                | "RequestLimitExceeded"
                | "TransactionConflictException",
            ) => WriteError::Throttled,
            _ if service.raw().status().is_server_error() => WriteError::Lost,
            _ => WriteError::NotWritten,
        },
        SdkError::ConstructionFailure(_) => WriteError::NotWritten,
        SdkError::DispatchFailure(failure) if failure.is_user() || never_connected(&error) => WriteError::NotWritten,
        _ => WriteError::Lost,
    };
    Err(judge(StoreError::from_sdk(operation, error)))
}

/// Whether no connection was made, so that the request was never sent.
fn never_connected(error: &(dyn Error + 'static)) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Reads an item as a client sees it.
pub(crate) fn bucket_item(mut item: Item) -> Result<BucketItem, StoreError> {
    let mut moment = |name: &str| {
        let value = item.remove(name);
        value.map(|value| integer(&value).ok_or_else(|| corrupt(&item, name, &value))).transpose()
    };
    let (valid_until, bypass_until) = (moment(bucket::VALID_UNTIL)?, moment(bucket::BYPASS)?);
    let is_disabled = matches!(item.remove(bucket::DISABLED), Some(AttributeValue::Bool(true)));
    let is_soft = item.keys().any(|name| matches!(bucket::limit_and_field(name), Some((_, bucket::SOFT))));
    let operation = match item.remove(bucket::OPERATION) {
        Some(AttributeValue::S(id)) => Some(id),
        _ => None,
    };
    let cascades = item.get(bucket::CASCADE).is_some_and(|cascades| cascades.as_bool() == Ok(&true));
    let parent = item.get(bucket::PARENT_ID).filter(|_| cascades).and_then(|parent| parent.as_s().ok());
    let parent = parent.map(|parent| {
        let quoted = || corrupt(&item, bucket::PARENT_ID, &AttributeValue::S(parent.clone()));
        Entity::new(parent.clone()).map_err(|_| quoted())
    });
    let parent = parent.transpose()?;
    Ok(BucketItem { image: image_of(&item)?, parent, is_disabled, is_soft, valid_until, bypass_until, operation })
}

fn integer(value: &AttributeValue) -> Option<i64> {
    value.as_n().ok()?.parse().ok()
}

fn corrupt(item: &Item, attribute: &str, value: &AttributeValue) -> StoreError {
    StoreError::Corrupt { item: describe(item), attribute: attribute.to_owned(), value: format!("{value:?}") }
}
