//! Bucket items, as a client takes tokens from them and gives them back.
//!
//! An `ADD` is not idempotent, so the SDK must not send one again. Each write
//! leaves its id in the attribute `#op`. If a response is lost, [`Acquires::find`] reads the item and tells
//! whether the write happened.

pub(crate) mod outcome;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    ops::Range,
};

use aws_sdk_dynamodb::{
    Client,
    operation::{put_item::PutItemError, update_item::builders::UpdateItemFluentBuilder},
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_domain::{
    admission::{Change, Take, WRITE_UNIT},
    bucket::{BucketKey, Limit, Shard},
    state::{BucketState, ShardCount, Terms},
    time::EpochMillis,
    tokens::Millitokens,
};

use self::outcome::{Refusal, judge, refusal, throttled};
pub use self::outcome::{WriteError, Written};
use crate::{
    bucket_item::{BucketItem, Owner, bucket_item, new_item},
    buckets::{attribute, item_key, require_terms},
    configurations::Configured,
    dynamodb::{Item, WriteOutcome, batch_get},
    error::StoreError,
    expression::{Expression, number, text},
    schema::{self, PK, SK, TTL, bucket},
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
    /// The write depends on this number of shards and on these terms, from which the amounts follow.
    pub share: Option<(ShardCount, Terms)>,
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
                " AND attribute_exists(#t{at}) \
                 AND (#by > :now OR (#s{at} > :now AND attribute_exists(#p{at})) OR #t{at} >= :a{at}) AND (attribute_not_exists(#s{at}) OR #s{at} > :now)"
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

/// A shard as it was seen, and the write that refills it and takes from it.
#[derive(Clone, Debug)]
pub struct SeenShard<'s, 'a> {
    pub key: BucketKey<'a>,
    pub item: &'s BucketItem,
    /// The state of `item`.
    pub state: &'s BucketState<'static>,
    pub take: Take<'static>,
    pub renewal: Renewal,
}

/// What a refill renews beside the tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// The new expiry in epoch seconds; `None` if the item must not expire.
    pub expires: Option<i64>,
    /// The new parent, if the item has another one.
    pub owner: Option<Owner>,
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
        Self { once: outcome::without_retries(&client), client, table: table.into() }
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

    /// Refills a shard that was seen and takes from it, in one write.
    pub async fn take(&self, seen: &SeenShard<'_, '_>, operation: Operation<'_>) -> Result<Written, WriteError> {
        self.send(&seen.key, take_expression(seen, operation).applied_to(self.once.update_item())).await
    }

    /// Refills several shards of a bucket and takes from each, in one transaction. The SDK may send it again: its token
    /// makes it idempotent.
    ///
    /// AWS: [idempotency](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-apis-txwriteitems).
    pub async fn take_together(
        &self,
        shards: &[SeenShard<'_, '_>],
        operation: Operation<'_>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut transaction = Transaction::new(&self.table);
        for seen in shards {
            transaction.update(item_key(&seen.key), take_expression(seen, operation))?;
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
        let item = new_item(key, state, &configured.owner, operation);
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
            Ok(_) => Ok(Written::Applied(bucket_item(item).ok())),
            Err(error) => judge("PutItem", error, refusal!(PutItemError), bucket_item),
        }
    }

    /// Gives an item that exists all attributes of this state that it lacks.
    pub async fn complete(
        &self,
        key: &BucketKey<'_>,
        state: &BucketState<'_>,
        configured: &Configured,
        operation: Operation<'_>,
    ) -> Result<Written, WriteError> {
        let mut expression = Expression::default();
        let exists = expression.name(PK);
        expression.require(&format!("attribute_exists({exists})"));
        for (name, value) in new_item(key, state, &configured.owner, operation) {
            if name != PK && name != SK {
                expression.set_once(&name, value);
            }
        }
        self.send(key, expression.applied_to(self.once.update_item())).await
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
        if let Some((shards, _)) = adjustments.iter().find_map(|of| of.share) {
            expression.compare(bucket::SHARD_COUNT, "=", number(&shards.get()));
        }
        for Adjustment { limit, tokens, consumed, at_most, at_least, share } in adjustments {
            if let Some((_, terms)) = share {
                require_terms(&mut expression, limit, terms);
            }
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

    /// Reads an item consistently. Returns `None` if the item does not exist.
    pub async fn find(&self, key: &BucketKey<'_>) -> Result<Option<BucketItem>, StoreError> {
        let request = self.client.get_item().table_name(&self.table).set_key(Some(item_key(key))).consistent_read(true);
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?;
        output.item.map(bucket_item).transpose()
    }

    /// Reads several shards of a bucket, consistently; missing ones are left out.
    pub async fn find_all(
        &self,
        key: &BucketKey<'_>,
        shards: Range<u32>,
    ) -> Result<BTreeMap<Shard, BucketItem>, StoreError> {
        let keys: HashMap<_, _> =
            shards.map(Shard::new).map(|shard| (schema::bucket_pk(&key.at(shard)), shard)).collect();
        let requested: Vec<_> = keys.values().map(|shard| item_key(&key.at(*shard))).collect();
        let mut items = Vec::new();
        for requested in requested.chunks(BATCH) {
            items.extend(batch_get(&self.client, &self.table, requested.to_vec(), true).await?);
        }
        let shard_of = |item: &Item| keys.get(item.get(PK)?.as_s().ok()?).copied();
        let found = items.into_iter().filter_map(|item| Some((shard_of(&item)?, item)));
        found.map(|(shard, item)| Ok((shard, bucket_item(item)?))).collect()
    }

    async fn send(&self, key: &BucketKey<'_>, update: UpdateItemFluentBuilder) -> Result<Written, WriteError> {
        outcome::send(update.table_name(&self.table).set_key(Some(item_key(key))), bucket_item).await
    }
}

/// The most items of one read.
///
/// AWS: [BatchGetItem](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html).
const BATCH: usize = 100;

/// The write that refills a shard that was seen and takes from it, on the condition that it still is as it was seen.
fn take_expression(seen: &SeenShard<'_, '_>, operation: Operation<'_>) -> Expression {
    let SeenShard { item, state, take, renewal: Renewal { expires, owner }, .. } = seen;
    let mut expression = Expression::default();
    expression.compare(bucket::LAST_REFILL, "=", number(&state.last_refill));
    expression.compare(bucket::SHARD_COUNT, "=", number(&state.shards.get()));
    pin_plain(&mut expression, item.valid_until);
    expression.set(bucket::OPERATION, text(operation.id));
    if take.until > state.last_refill {
        expression.set(bucket::LAST_REFILL, number(&take.until));
    }
    match expires {
        Some(expires) if state.expires != Some(*expires) => drop(expression.set(TTL, number(expires))),
        None if state.expires.is_some() => drop(expression.remove(TTL)),
        _ => {}
    }
    if let Some(Owner { cascades, parent }) = owner {
        expression.set(bucket::CASCADE, AttributeValue::Bool(*cascades));
        match parent {
            Some(parent) => drop(expression.set(bucket::PARENT_ID, text(parent.as_str()))),
            None => drop(expression.remove(bucket::PARENT_ID)),
        }
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
        if taken.get() > 0 || credit.get() < 0 {
            expression.compare(tokens.clone(), ">=", number(at_least));
        }
        if taken.get() > 0 {
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
