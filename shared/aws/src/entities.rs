//! Entities: who is limited, and whose child it is.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::{
    Client,
    operation::put_item::PutItemError,
    types::{AttributeValue, ReturnValuesOnConditionCheckFailure},
};
use tidegate_domain::{
    bucket::{Entity, Namespace, Resource},
    configuration::Scope,
    time::EpochMillis,
};

use crate::{
    audit::text_or_null,
    dynamodb::{Item, batch_delete, query_all, through_conflicts},
    error::StoreError,
    expression::{number, text},
    limits::Limits,
    schema::{self, ENTITY_ID, GSI1PK, GSI1SK, GSI3PK, GSI4PK, GSI4SK, PK, SK, bucket, config, entity, system},
};

/// The entities of a table.
#[derive(Clone, Debug)]
pub struct Entities {
    client: Client,
    table: String,
    limits: Limits,
}

/// An entity's own item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityItem {
    pub id: String,
    pub name: String,
    pub parent: Option<String>,
    /// Whether consumption cascades to the parent.
    pub cascades: bool,
    pub metadata: BTreeMap<String, String>,
    /// As RFC 3339 writes it.
    pub created_at: String,
}

impl Entities {
    /// The entities in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        let table = table.into();
        Self { limits: Limits::new(client.clone(), table.clone()), client, table }
    }

    /// Creates an entity. Returns `false` if it exists already.
    pub async fn create(
        &self,
        namespace: &Namespace<'_>,
        id: &Entity<'_>,
        created: &EntityItem,
        now: EpochMillis,
    ) -> Result<bool, StoreError> {
        let pk = schema::entity_pk(namespace, id);
        let metadata = created.metadata.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        let incarnation = format!("{:016x}", fastrand::u64(..));
        let mut item: Item = [
            (PK, text(pk.as_str())),
            (SK, text(entity::META)),
            (ENTITY_ID, text(id.as_str())),
            (entity::NAME, text(&created.name)),
            (bucket::PARENT_ID, text_or_null(created.parent.as_deref())),
            (bucket::CASCADE, AttributeValue::Bool(created.cascades)),
            // Above every generation of an entity of this name that was deleted.
            (bucket::PARENT_GENERATION, number(&now)),
            (bucket::INCARNATION, text(incarnation.as_str())),
            (entity::METADATA, AttributeValue::M(metadata)),
            (system::CREATED_AT, text(&created.created_at)),
            (GSI4PK, text(namespace.as_str())),
            (GSI4SK, text(pk)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(parent) = created.parent.as_deref().and_then(|parent| Entity::new(parent).ok()) {
            item.insert(GSI1PK.to_owned(), text(schema::children_gsi1_pk(namespace, &parent)));
            item.insert(GSI1SK.to_owned(), text(schema::child_gsi1_sk(id)));
        }
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(format!("attribute_not_exists({PK})"))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = through_conflicts(|| put.clone().send()).await else { return Ok(true) };
        if let Some(PutItemError::ConditionalCheckFailedException(failed)) = error.as_service_error() {
            // The SDK sent the item again, because the first response was lost.
            let own = failed.item.as_ref().and_then(|item| item.get(bucket::INCARNATION)?.as_s().ok());
            return Ok(own == Some(&incarnation));
        }
        Err(StoreError::from_sdk("PutItem", error))
    }

    /// Reads an entity.
    pub async fn get(&self, namespace: &Namespace<'_>, id: &Entity<'_>) -> Result<Option<EntityItem>, StoreError> {
        let (pk, sk) = (schema::entity_pk(namespace, id), entity::META);
        let get = self.client.get_item().table_name(&self.table).key(PK, text(pk)).key(SK, text(sk));
        let output = get.consistent_read(true).send().await;
        let item = output.map_err(|error| StoreError::from_sdk("GetItem", error))?.item;
        Ok(item.as_ref().map(entity_item))
    }

    /// Reads the children of an entity.
    pub async fn children(
        &self,
        namespace: &Namespace<'_>,
        parent: &Entity<'_>,
    ) -> Result<Vec<EntityItem>, StoreError> {
        let items = self.query("GSI1", GSI1PK, schema::children_gsi1_pk(namespace, parent)).await?;
        Ok(items.iter().map(entity_item).collect())
    }

    /// Deletes an entity with its buckets, its configurations and its usage snapshots. Returns the number of deleted items.
    ///
    /// What leads to other items is deleted after them, so a call that stopped half way can be made again. Configurations
    /// are deleted one by one, because the registry counts them.
    pub async fn delete(&self, namespace: &Namespace<'_>, id: &Entity<'_>) -> Result<usize, StoreError> {
        let pk = schema::entity_pk(namespace, id);
        let buckets = keys(self.query("GSI3", GSI3PK, pk.clone()).await?);
        let mut operations = Vec::new();
        for pk in buckets.iter().filter_map(|key| key.get(PK)?.as_s().ok()).filter(|pk| pk.ends_with("#0")) {
            let query = self.client.query().key_condition_expression(format!("{PK} = :pk AND begins_with({SK}, :sk)"));
            let query = query.expression_attribute_values(":pk", text(pk));
            let query = query.expression_attribute_values(":sk", text(bucket::OPERATOR));
            operations.extend(keys(query_all(query.table_name(&self.table)).await?));
        }
        let query = self.client.query().table_name(&self.table).key_condition_expression(format!("{PK} = :pk"));
        let query = query.expression_attribute_values(":pk", text(pk)).consistent_read(true);
        let (mut scopes, mut meta, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys(query_all(query.projection_expression(format!("{PK}, {SK}"))).await?) {
            match key.get(SK).and_then(|sk| sk.as_s().ok()).map(String::as_str) {
                Some(entity::META) => meta.push(key),
                Some(sk) => match scope(id, sk) {
                    Some(scope) => scopes.push(scope),
                    None => others.push(key),
                },
                None => {}
            }
        }
        let deleted = operations.len() + buckets.len() + scopes.len() + others.len() + meta.len();
        batch_delete(&self.client, &self.table, &operations).await?;
        batch_delete(&self.client, &self.table, &buckets).await?;
        for scope in scopes {
            self.limits.delete(namespace, &scope).await?;
        }
        batch_delete(&self.client, &self.table, &others).await?;
        batch_delete(&self.client, &self.table, &meta).await?;
        Ok(deleted)
    }

    async fn query(&self, index: &str, attribute: &str, pk: String) -> Result<Vec<Item>, StoreError> {
        let query = self.client.query().table_name(&self.table).index_name(index);
        let query = query.key_condition_expression(format!("{attribute} = :pk"));
        query_all(query.expression_attribute_values(":pk", text(pk))).await
    }
}

/// The scope of an entity's configuration, by its sort key.
fn scope<'e>(entity: &Entity<'e>, sk: &str) -> Option<Scope<'e>> {
    let resource = sk.strip_prefix(config::CONFIG)?.strip_prefix('#')?;
    let resource = match resource {
        config::DEFAULT => None,
        resource => Some(Resource::new(resource.to_owned()).ok()?),
    };
    Some(Scope { entity: Some(entity.clone()), resource })
}

fn keys(items: Vec<Item>) -> Vec<Item> {
    let keys = items.into_iter().map(|mut item| {
        item.retain(|name, _| name == PK || name == SK);
        item
    });
    keys.collect()
}

fn entity_item(item: &Item) -> EntityItem {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned();
    let id = text(ENTITY_ID).unwrap_or_default();
    let metadata = item.get(entity::METADATA).and_then(|metadata| metadata.as_m().ok()).into_iter().flatten();
    EntityItem {
        name: text(entity::NAME).unwrap_or_else(|| id.clone()),
        parent: text(bucket::PARENT_ID),
        cascades: item.get(bucket::CASCADE).is_some_and(|cascades| cascades.as_bool() == Ok(&true)),
        metadata: metadata.filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone()))).collect(),
        created_at: text(system::CREATED_AT).unwrap_or_default(),
        id,
    }
}
