//! A bucket item as a client sees it, and as a client creates it.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_domain::{
    bucket::{BucketKey, Entity},
    state::{BucketImage, BucketState, LimitState},
};

use crate::{
    acquires::Operation,
    buckets::{attribute, item_key},
    dynamodb::Item,
    error::StoreError,
    expression::{number, text},
    image::{describe, image_of},
    schema::{self, TTL, bucket},
};

/// A bucket item, as a write or a read returned it.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketItem {
    /// What it holds, whatever its `vu`.
    pub image: BucketImage<'static>,
    /// The parent of the bucket's entity.
    pub owner: Owner,
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

/// The parent that an item names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Whether consumption cascades to the parent.
    pub cascades: bool,
    /// The parent, if there is one.
    pub parent: Option<Entity<'static>>,
}

impl Owner {
    /// Reads an entity's own item, or a bucket's.
    pub(crate) fn of(item: &Item) -> Result<Self, StoreError> {
        let cascades = item.get(bucket::CASCADE).is_some_and(|cascades| cascades.as_bool() == Ok(&true));
        let parent = item.get(bucket::PARENT_ID).and_then(|parent| parent.as_s().ok());
        let parent = parent.map(|parent| {
            let value = || AttributeValue::S(parent.clone());
            Entity::new(parent.clone()).map_err(|_| corrupt(item, bucket::PARENT_ID, &value()))
        });
        Ok(Self { cascades, parent: parent.transpose()? })
    }

    /// The entity to which consumption cascades.
    #[must_use]
    pub fn cascades_to(&self) -> Option<&Entity<'static>> {
        self.parent.as_ref().filter(|_| self.cascades)
    }
}

/// Reads an item as a client sees it.
pub(crate) fn bucket_item(mut item: Item) -> Result<BucketItem, StoreError> {
    let mut moment = |name: &str| {
        let value = item.remove(name);
        value.map(|value| integer(&value).ok_or_else(|| corrupt(&item, name, &value))).transpose()
    };
    let (valid_until, bypass_until) = (moment(bucket::VALID_UNTIL)?, moment(bucket::BYPASS)?);
    let is_disabled = item.remove(bucket::DISABLED).is_some();
    let is_soft = item.keys().any(|name| matches!(bucket::limit_and_field(name), Some((_, bucket::SOFT))));
    let operation = match item.remove(bucket::OPERATION) {
        Some(AttributeValue::S(id)) => Some(id),
        _ => None,
    };
    let (owner, image) = (Owner::of(&item)?, image_of(&item)?);
    Ok(BucketItem { image, owner, is_disabled, is_soft, valid_until, bypass_until, operation })
}

/// The item of a state that did not exist before.
pub(crate) fn new_item(key: &BucketKey<'_>, state: &BucketState<'_>, owner: &Owner, operation: Operation<'_>) -> Item {
    let BucketKey { namespace, entity, resource, .. } = key;
    let mut item = item_key(key);
    let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
    put(schema::ENTITY_ID, text(entity.as_str()));
    put(schema::RESOURCE, text(resource.as_str()));
    put(bucket::CASCADE, AttributeValue::Bool(owner.cascades));
    if let Some(parent) = &owner.parent {
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
    item
}

fn integer(value: &AttributeValue) -> Option<i64> {
    value.as_n().ok()?.parse().ok()
}

fn corrupt(item: &Item, attribute: &str, value: &AttributeValue) -> StoreError {
    StoreError::Corrupt { item: describe(item), attribute: attribute.to_owned(), value: format!("{value:?}") }
}
