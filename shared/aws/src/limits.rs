//! Configurations, as operators write them, and the registries that list them.
//!
//! A configuration replaces the limits of the one before. Everything else that the item holds is kept, also what this crate
//! does not know.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    bucket::{Entity, Limit, Namespace, Resource},
    configuration::{LevelConfiguration, Scope},
    state::Terms,
};

use crate::{
    configurations::level,
    dynamodb::{Item, WriteOutcome, batch_get, query_all, through_conflicts},
    error::StoreError,
    expression::{Expression, Parts, number, text},
    schema::{
        self, ENTITY_ID, GSI3PK, GSI3SK, GSI4PK, GSI4SK, PK, RESOURCE, SK, bucket, config,
        registry::{ENTITY_CONFIGS, NAMES, RESOURCES},
    },
    transaction::Transaction,
};

/// The configurations of a table, for operators.
#[derive(Clone, Debug)]
pub struct Limits {
    client: Client,
    table: String,
}

/// What a configuration said before it was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The names of its limits.
    pub limits: Vec<String>,
    /// Whether it said that callers are refused, or are not.
    pub was_switched: bool,
    /// What clients did while the table was unavailable.
    pub on_unavailable: Option<String>,
}

/// Other clients change these attributes by themselves. A replacement must not undo that.
const SWITCHES: [&str; 4] = [bucket::DISABLED, bucket::CASCADE, config::ON_UNAVAILABLE, config::AUDIT_RETENTION];

/// The most items of one read.
const READ: usize = 100;

impl Limits {
    /// The configurations in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Reads the configuration of a scope. Returns `None` if nothing is configured.
    pub async fn find(
        &self,
        namespace: &Namespace<'_>,
        scope: &Scope<'_>,
    ) -> Result<Option<LevelConfiguration>, StoreError> {
        level(self.get(&key(namespace, scope)).await?.as_ref())
    }

    /// Replaces the limits of a scope. Returns what clients do while the table is unavailable, if the scope says that.
    pub async fn set(
        &self,
        namespace: &Namespace<'_>,
        scope: &Scope<'_>,
        limits: &BTreeMap<Limit<'static>, Terms>,
    ) -> Result<Option<String>, StoreError> {
        let key = key(namespace, scope);
        loop {
            let seen = self.get(&key).await?;
            let mut item = key.clone();
            item.extend(described(namespace, scope));
            item.insert(config::VERSION.to_owned(), number(&1));
            for (limit, terms) in limits {
                let mut put = |field, value| item.insert(config::attribute(limit.as_str(), field), number(&value));
                put(config::CAPACITY, terms.capacity.get() / 1000);
                put(config::REFILL_AMOUNT, terms.refill.get() / 1000);
                put(config::REFILL_PERIOD, terms.period / 1000);
            }
            for (name, value) in seen.iter().flatten().filter(|(name, _)| !is_of_limits(name)) {
                item.entry(name.clone()).or_insert_with(|| value.clone());
            }
            let on_unavailable = item.get(config::ON_UNAVAILABLE).and_then(|value| value.as_s().ok()).cloned();
            let outcome = match (&seen, &scope.entity) {
                (None, Some(_)) => {
                    let mut transaction = Transaction::new(&self.table);
                    transaction.put_new(item)?;
                    count(&mut transaction, namespace, scope, 1)?;
                    transaction.send(&self.client).await?
                }
                _ => self.replace(item, seen.as_ref()).await?,
            };
            if outcome == WriteOutcome::Written {
                self.list_resource(namespace, scope, true).await?;
                return Ok(on_unavailable);
            }
        }
    }

    /// Deletes the configuration of a scope. Returns what it said; `None` if there was none.
    pub async fn delete(&self, namespace: &Namespace<'_>, scope: &Scope<'_>) -> Result<Option<Deleted>, StoreError> {
        let key = key(namespace, scope);
        let Some(mut seen) = self.get(&key).await? else {
            // A call before this one may have stopped half way.
            if scope.entity.is_some() {
                self.forget_zero(namespace, scope).await?;
            }
            self.list_resource(namespace, scope, false).await?;
            return Ok(None);
        };
        let deleted = Deleted {
            limits: seen.keys().filter_map(|name| limit_of(name)).map(str::to_owned).collect(),
            was_switched: seen.contains_key(bucket::DISABLED),
            on_unavailable: seen.get(config::ON_UNAVAILABLE).and_then(|value| value.as_s().ok()).cloned(),
        };
        if scope.entity.is_some() {
            let mut transaction = Transaction::new(&self.table);
            transaction.delete_existing(key)?;
            count(&mut transaction, namespace, scope, -1)?;
            // If it is lost, somebody else has deleted the configuration, or this transaction did and its response was lost.
            transaction.send(&self.client).await?;
            self.forget_zero(namespace, scope).await?;
            return Ok(Some(deleted));
        }
        let is_system = scope.resource.is_none();
        let others = |name: &String| !is_of_limits(name) && !is_described(name) && name != config::ON_UNAVAILABLE;
        if is_system && seen.keys().any(others) {
            let image = seen.clone();
            seen.retain(|name, _| !is_of_limits(name) && name != config::ON_UNAVAILABLE);
            if self.replace(seen, Some(&image)).await? == WriteOutcome::Lost {
                return Box::pin(self.delete(namespace, scope)).await;
            }
        } else {
            let delete = self.client.delete_item().table_name(&self.table).set_key(Some(key));
            let sent = through_conflicts(|| delete.clone().send()).await;
            sent.map_err(|error| StoreError::from_sdk("DeleteItem", error))?;
        }
        self.list_resource(namespace, scope, false).await?;
        Ok(Some(deleted))
    }

    /// Says whether callers in a scope are refused. `None` leaves it to the less specific scopes. The scope must have
    /// an entity or a resource.
    pub async fn switch(
        &self,
        namespace: &Namespace<'_>,
        scope: &Scope<'_>,
        is_disabled: Option<bool>,
    ) -> Result<(), StoreError> {
        let key = key(namespace, scope);
        loop {
            let exists = self.get(&key).await?.is_some();
            let mut expression = Expression::default();
            let pk = expression.name(PK);
            expression.require(&format!("attribute_{}exists({pk})", if exists { "" } else { "not_" }));
            match is_disabled {
                Some(is_disabled) => {
                    expression.set(bucket::DISABLED, AttributeValue::Bool(is_disabled));
                    for (name, value) in described(namespace, scope) {
                        expression.set_once(&name, value);
                    }
                }
                None if exists => drop(expression.remove(bucket::DISABLED)),
                None => return Ok(()),
            }
            let outcome = if !exists && scope.entity.is_some() {
                let mut transaction = Transaction::new(&self.table);
                transaction.update(key.clone(), expression)?;
                count(&mut transaction, namespace, scope, 1)?;
                transaction.send(&self.client).await?
            } else {
                self.update(&key, expression).await?
            };
            if outcome == WriteOutcome::Written {
                return self.list_resource(namespace, scope, true).await;
            }
        }
    }

    /// Reads all configurations of a namespace: its own, then by resource, then by entity.
    pub async fn list(
        &self,
        namespace: &Namespace<'_>,
    ) -> Result<Vec<(Scope<'static>, LevelConfiguration)>, StoreError> {
        let resources = self.get(&registry_key(namespace, RESOURCES)).await?;
        let resources = resources.as_ref().and_then(|item| item.get(NAMES)?.as_ss().ok()).into_iter().flatten();
        let mut scopes = vec![Scope::default()];
        scopes.extend(
            resources
                .filter_map(|name| Some(Scope { entity: None, resource: Some(Resource::new(name.clone()).ok()?) })),
        );
        let counted = self.get(&registry_key(namespace, ENTITY_CONFIGS)).await?.unwrap_or_default();
        for (name, _) in counted.iter().filter(|(_, count)| count.is_n()) {
            let resource = match name.as_str() {
                config::DEFAULT => None,
                name => Resource::new(name.to_owned()).ok(),
            };
            let query = self
                .client
                .query()
                .table_name(&self.table)
                .index_name("GSI3")
                .key_condition_expression(format!("{GSI3PK} = :pk"))
                .expression_attribute_values(":pk", text(schema::entity_configs_gsi3_pk(namespace, name)));
            scopes.extend(query_all(query).await?.iter().filter_map(|item| {
                let entity = Entity::new(item.get(GSI3SK)?.as_s().ok()?.clone()).ok()?;
                Some(Scope { entity: Some(entity), resource: resource.clone() })
            }));
        }
        scopes.sort_unstable();
        self.read(namespace, scopes).await
    }

    async fn read(
        &self,
        namespace: &Namespace<'_>,
        scopes: Vec<Scope<'static>>,
    ) -> Result<Vec<(Scope<'static>, LevelConfiguration)>, StoreError> {
        let mut read = Vec::new();
        for scopes in scopes.chunks(READ) {
            let keys = scopes.iter().map(|scope| key(namespace, scope)).collect();
            let items = batch_get(&self.client, &self.table, keys, true).await?;
            for scope in scopes {
                let key = key(namespace, scope);
                let item = items.iter().find(|item| key.iter().all(|(name, value)| item.get(name) == Some(value)));
                read.extend(level(item)?.map(|configuration| (scope.clone(), configuration)));
            }
        }
        Ok(read)
    }

    /// Puts an item, if that which was seen has the same switches.
    async fn replace(&self, item: Item, seen: Option<&Item>) -> Result<WriteOutcome, StoreError> {
        let mut expression = Expression::default();
        let pk = expression.name(PK);
        match seen {
            None => expression.require(&format!("attribute_not_exists({pk})")),
            Some(seen) => {
                expression.require(&format!("attribute_exists({pk})"));
                for switch in SWITCHES {
                    if let Some(value) = seen.get(switch) {
                        expression.compare(switch, "=", value.clone());
                    } else {
                        let name = expression.name(switch);
                        expression.require(&format!("attribute_not_exists({name})"));
                    }
                }
            }
        }
        let Parts { condition, names, values, .. } = expression.into_parts();
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        WriteOutcome::of("PutItem", through_conflicts(|| put.clone().send()).await)
    }

    /// Removes a count of zero from the registry.
    async fn forget_zero(&self, namespace: &Namespace<'_>, scope: &Scope<'_>) -> Result<(), StoreError> {
        let mut expression = Expression::default();
        let name = expression.remove(counted_as(scope));
        let zero = expression.value(number(&0));
        expression.require(&format!("{name} <= {zero}"));
        self.update(&registry_key(namespace, ENTITY_CONFIGS), expression).await.map(drop)
    }

    /// Adds a resource's own configuration to the registry, or removes it.
    async fn list_resource(
        &self,
        namespace: &Namespace<'_>,
        scope: &Scope<'_>,
        is_listed: bool,
    ) -> Result<(), StoreError> {
        let Scope { entity: None, resource: Some(resource) } = scope else { return Ok(()) };
        let mut expression = Expression::default();
        let names = AttributeValue::Ss(vec![resource.to_string()]);
        if is_listed {
            list_in_namespace(&mut expression, namespace);
            expression.add(NAMES, names);
        } else {
            let pk = expression.name(PK);
            expression.require(&format!("attribute_exists({pk})"));
            expression.delete(NAMES, names);
        }
        self.update(&registry_key(namespace, RESOURCES), expression).await.map(drop)
    }

    async fn update(&self, key: &Item, expression: Expression) -> Result<WriteOutcome, StoreError> {
        let update = self.client.update_item().table_name(&self.table).set_key(Some(key.clone()));
        let update = expression.applied_to(update);
        WriteOutcome::of("UpdateItem", through_conflicts(|| update.clone().send()).await)
    }

    async fn get(&self, key: &Item) -> Result<Option<Item>, StoreError> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key.clone())).consistent_read(true);
        Ok(get.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?.item)
    }
}

/// Counts an entity's configuration in the registry.
fn count(
    transaction: &mut Transaction<'_>,
    namespace: &Namespace<'_>,
    scope: &Scope<'_>,
    change: i8,
) -> Result<(), StoreError> {
    let mut expression = Expression::default();
    if change > 0 {
        list_in_namespace(&mut expression, namespace);
    }
    expression.add(counted_as(scope), number(&change));
    transaction.update(registry_key(namespace, ENTITY_CONFIGS), expression)
}

fn key(namespace: &Namespace<'_>, scope: &Scope<'_>) -> Item {
    let (pk, sk) = schema::config_key(namespace, scope);
    [(PK.to_owned(), text(pk)), (SK.to_owned(), text(sk))].into()
}

fn registry_key(namespace: &Namespace<'_>, sk: &str) -> Item {
    [(PK.to_owned(), text(schema::system_pk(namespace))), (SK.to_owned(), text(sk))].into()
}

/// The attributes by which a configuration is found.
fn described(namespace: &Namespace<'_>, scope: &Scope<'_>) -> Vec<(String, AttributeValue)> {
    let (pk, _) = schema::config_key(namespace, scope);
    let mut attributes = vec![(GSI4PK, text(namespace.as_str())), (GSI4SK, text(pk))];
    if let Some(entity) = &scope.entity {
        let resource = counted_as(scope);
        attributes.push((GSI3PK, text(schema::entity_configs_gsi3_pk(namespace, &resource))));
        attributes.push((GSI3SK, text(entity.as_str())));
        attributes.push((ENTITY_ID, text(entity.as_str())));
        attributes.push((RESOURCE, text(resource)));
    } else if let Some(resource) = &scope.resource {
        attributes.push((RESOURCE, text(resource.as_str())));
    }
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Whether each configuration has this attribute, whatever it says.
fn is_described(name: &str) -> bool {
    [PK, SK, config::VERSION, GSI3PK, GSI3SK, GSI4PK, GSI4SK, ENTITY_ID, RESOURCE].contains(&name)
}

/// The attribute of the registry that counts an entity's configuration.
fn counted_as(scope: &Scope<'_>) -> String {
    scope.resource.as_ref().map_or_else(|| config::DEFAULT.to_owned(), ToString::to_string)
}

fn list_in_namespace(expression: &mut Expression, namespace: &Namespace<'_>) {
    expression.set_once(GSI4PK, text(namespace.as_str()));
    expression.set_once(GSI4SK, text(schema::system_pk(namespace)));
}

fn is_of_limits(attribute: &str) -> bool {
    [config::PREFIX, config::WINDOW_PREFIX].iter().any(|prefix| attribute.starts_with(prefix))
        || [config::TIME_ZONE, bucket::DEFAULT_SCHEDULE].contains(&attribute)
}

/// The limit whose capacity this attribute is.
fn limit_of(attribute: &str) -> Option<&str> {
    let name = [config::PREFIX, config::WINDOW_PREFIX].iter().find_map(|prefix| attribute.strip_prefix(prefix))?;
    name.strip_suffix("_cp")
}
