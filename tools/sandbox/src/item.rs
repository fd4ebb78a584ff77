//! Bucket items as clients write and read them.

use std::collections::HashMap;

use anyhow::Context as _;
use aws_sdk_dynamodb::{
    Client,
    operation::{put_item::PutItemError, update_item::builders::UpdateItemFluentBuilder},
    types::AttributeValue,
};
use tidegate_aws::schema::{self, bucket};
use tidegate_domain::{bucket::BucketKey, time::EpochMillis};

pub type Item = HashMap<String, AttributeValue>;

/// A bucket item that has no limits yet.
pub fn bucket(key: &BucketKey<'_>, now: EpochMillis, shards: u32) -> Item {
    let BucketKey { namespace, entity, resource, .. } = key;
    let attributes = [
        (schema::ENTITY_ID, text(entity.as_str())),
        (schema::RESOURCE, text(resource.as_str())),
        (bucket::CASCADE, AttributeValue::Bool(false)),
        (bucket::LAST_REFILL, number(now.get())),
        (bucket::SHARD_COUNT, number(shards)),
        (schema::GSI2PK, text(schema::resource_pk(namespace, resource))),
        (schema::GSI2SK, text(schema::bucket_gsi2_sk(key))),
        (schema::GSI3PK, text(schema::entity_pk(namespace, entity))),
        (schema::GSI3SK, text(schema::bucket_gsi3_sk(key))),
        (schema::GSI4PK, text(namespace.as_str())),
        (schema::GSI4SK, text(schema::bucket_gsi4_sk(key))),
    ];
    let mut item = self::key(key);
    item.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
    item
}

/// The key of a bucket item.
pub fn key(key: &BucketKey<'_>) -> Item {
    let attributes = [(schema::PK, text(schema::bucket_pk(key))), (schema::SK, text(bucket::STATE))];
    attributes.map(|(name, value)| (name.to_owned(), value)).into()
}

/// An update of a bucket item that has no expression yet.
pub fn update(client: &Client, table: &str, key: &BucketKey<'_>) -> UpdateItemFluentBuilder {
    client.update_item().table_name(table).set_key(Some(self::key(key)))
}

/// Takes millitokens from limits. A condition may use [`has_enough`].
pub fn take(update: UpdateItemFluentBuilder, taken: &[(&str, i64)]) -> UpdateItemFluentBuilder {
    let action = |limit: &str| {
        let [tokens, consumed] = [bucket::TOKENS, bucket::CONSUMED].map(|field| bucket::attribute(limit, field));
        format!("{tokens} :{limit}_change, {consumed} :{limit}_taken")
    };
    let actions: Vec<_> = taken.iter().map(|(limit, _)| action(limit)).collect();
    let update = update.update_expression(format!("ADD {}", actions.join(", ")));
    taken.iter().fold(update, |update, (limit, amount)| {
        update
            .expression_attribute_values(format!(":{limit}_change"), number(-amount))
            .expression_attribute_values(format!(":{limit}_taken"), number(*amount))
    })
}

/// The condition that a limit has the tokens that [`take`] takes.
pub fn has_enough(limit: &str) -> String {
    format!("{} >= :{limit}_taken", bucket::attribute(limit, bucket::TOKENS))
}

/// The condition that the item exists.
pub fn exists() -> String {
    format!("attribute_exists({})", schema::PK)
}

/// Creates an item unless it exists. Returns whether it did not exist.
pub async fn put_new(client: &Client, table: &str, item: Item) -> anyhow::Result<bool> {
    let put = client.put_item().table_name(table).set_item(Some(item));
    match put.condition_expression(format!("attribute_not_exists({})", schema::PK)).send().await {
        Ok(_) => Ok(true),
        Err(error) => match error.into_service_error() {
            PutItemError::ConditionalCheckFailedException(_) => Ok(false),
            error => Err(error).context("a client could not create a bucket"),
        },
    }
}

/// A limit of a bucket item. Amounts are in millitokens, the period in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub tokens: i64,
    /// Taken since the item was created.
    pub consumed: i64,
    pub capacity: i64,
    /// Accrues in a period.
    pub refill: i64,
    pub period: i64,
}

impl Limit {
    /// Writes the limit to an item.
    pub fn put(self, name: &str, item: &mut Item) {
        for (field, value) in [
            (bucket::TOKENS, self.tokens),
            (bucket::CONSUMED, self.consumed),
            (bucket::CAPACITY, self.capacity),
            (bucket::REFILL_AMOUNT, self.refill),
            (bucket::REFILL_PERIOD, self.period),
        ] {
            item.insert(bucket::attribute(name, field), number(value));
        }
    }

    /// Reads the limit from an item.
    pub fn read(name: &str, item: &Item) -> anyhow::Result<Self> {
        let read = |field| read(item, &bucket::attribute(name, field));
        Ok(Self {
            tokens: read(bucket::TOKENS)?,
            consumed: read(bucket::CONSUMED)?,
            capacity: read(bucket::CAPACITY)?,
            refill: read(bucket::REFILL_AMOUNT)?,
            period: read(bucket::REFILL_PERIOD)?,
        })
    }

    /// The tokens of one of `shards` shards after a refill by so many milliseconds, as clients compute it.
    pub fn after(self, elapsed: i64, shards: u32) -> i64 {
        let [capacity, refill] = [self.capacity, self.refill].map(|whole| whole / i64::from(shards));
        (self.tokens + elapsed * refill / self.period).min(capacity)
    }
}

/// Reads an integer.
pub fn read(item: &Item, attribute: &str) -> anyhow::Result<i64> {
    let value = item.get(attribute).and_then(|value| value.as_n().ok());
    value.and_then(|number| number.parse().ok()).with_context(|| format!("{attribute} is {value:?}"))
}

pub fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub fn number(value: impl ToString + Copy) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
