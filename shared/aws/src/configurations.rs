//! The limits that clients configure, and what an entity's own item says of its parent.

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{
    bucket::{Entity, Limit, Namespace, Resource},
    configuration::{Configuration, LevelConfiguration, is_disabled, resolve},
    state::Terms,
    tokens::Millitokens,
};

use crate::{
    bucket_item::Owner,
    buckets::Consistency,
    dynamodb::{Item, batch_get},
    error::StoreError,
    expression::text,
    image::describe,
    schema::{self, PK, SK, bucket, config, entity},
};

/// The configurations in a table.
#[derive(Clone, Debug)]
pub struct Configurations {
    client: Client,
    table: String,
}

/// What is configured for an entity on a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// `None` if no level defines a limit.
    pub configuration: Option<Configuration>,
    /// Whether callers are refused, also if no level defines a limit.
    pub is_disabled: bool,
    /// The entity's parent.
    pub owner: Owner,
}

impl Configurations {
    /// The configurations in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Reads all levels, and the entity's own item: one call.
    pub async fn resolve(
        &self,
        namespace: &Namespace<'_>,
        entity: &Entity<'_>,
        resource: &Resource<'_>,
        consistency: Consistency,
    ) -> Result<Configured, StoreError> {
        let entity_pk = schema::entity_pk(namespace, entity);
        let keys = [
            (entity_pk.clone(), schema::entity_config_sk(resource)),
            (entity_pk.clone(), format!("{}#{}", config::CONFIG, config::DEFAULT)),
            (schema::resource_pk(namespace, resource), config::CONFIG.to_owned()),
            (schema::system_pk(namespace), config::CONFIG.to_owned()),
            (entity_pk, entity::META.to_owned()),
        ];
        let requested = keys.iter().map(|(pk, sk)| [(PK.to_owned(), text(pk)), (SK.to_owned(), text(sk))].into());
        let is_strong = consistency == Consistency::Strong;
        let items = batch_get(&self.client, &self.table, requested.collect(), is_strong).await?;
        let [own, default, resource, system, meta] = keys.map(|(pk, sk)| {
            let is = |item: &&Item, name, value: &String| item.get(name).and_then(|of| of.as_s().ok()) == Some(value);
            items.iter().find(|item| is(item, PK, &pk) && is(item, SK, &sk))
        });
        let levels = [level(own)?, level(default)?, level(resource)?, level(system)?];
        let configuration = resolve(&levels);
        let cascades = configuration.as_ref().and_then(|configuration| configuration.cascades);
        Ok(Configured { owner: owner(meta, cascades)?, is_disabled: is_disabled(&levels), configuration })
    }
}

/// The entity's parent, by the entity's own item. Whether consumption cascades to it is overruled by the configuration.
fn owner(meta: Option<&Item>, cascades: Option<bool>) -> Result<Owner, StoreError> {
    let own = meta.map(Owner::of).transpose()?.unwrap_or_default();
    Ok(Owner { cascades: cascades.unwrap_or(own.cascades), ..own })
}

/// Decodes a configuration item.
pub(crate) fn level(item: Option<&Item>) -> Result<Option<LevelConfiguration>, StoreError> {
    let Some(item) = item else { return Ok(None) };
    let mut level = LevelConfiguration {
        is_disabled: item.get(bucket::DISABLED).and_then(|disabled| match disabled {
            AttributeValue::Bool(disabled) => Some(*disabled),
            // A bypass admits all callers.
            AttributeValue::S(_) => Some(false),
            _ => None,
        }),
        cascades: item.get(bucket::CASCADE).and_then(|cascades| cascades.as_bool().ok().copied()),
        ..LevelConfiguration::default()
    };
    for (name, value) in item {
        let Some((limit, field)) = config::limit_and_field(name) else {
            if name.starts_with(config::WINDOW_PREFIX) || name == bucket::DEFAULT_SCHEDULE {
                level.unsupported = Some(name.clone());
            }
            continue;
        };
        match field {
            config::CAPACITY | config::REFILL_AMOUNT | config::REFILL_PERIOD => {}
            bucket::SOFT if value.as_bool() == Ok(&false) => continue,
            _ => {
                level.unsupported = Some(name.clone());
                continue;
            }
        }
        let corrupt =
            || StoreError::Corrupt { item: describe(item), attribute: name.clone(), value: format!("{value:?}") };
        let limit = Limit::new(limit.to_owned()).map_err(|_| corrupt())?;
        let thousands = integer(value).and_then(|whole| whole.checked_mul(1000)).ok_or_else(corrupt)?;
        let none = Terms { capacity: Millitokens::default(), refill: Millitokens::default(), period: 0 };
        let terms = level.limits.entry(limit).or_insert(none);
        match field {
            config::CAPACITY => terms.capacity = Millitokens::new(thousands),
            config::REFILL_AMOUNT => terms.refill = Millitokens::new(thousands),
            _ => terms.period = thousands,
        }
    }
    if let Some((limit, _)) = level.limits.iter().find(|(_, terms)| terms.refill.get() <= 0) {
        level.unsupported = Some(config::attribute(limit.as_str(), config::REFILL_AMOUNT));
    }
    if let Some((limit, _)) = level.limits.iter().find(|(_, terms)| terms.period <= 0) {
        let attribute = config::attribute(limit.as_str(), config::REFILL_PERIOD);
        let value = item.get(&attribute).map_or_else(String::new, |value| format!("{value:?}"));
        return Err(StoreError::Corrupt { item: describe(item), attribute, value });
    }
    Ok(Some(level))
}

fn integer(value: &AttributeValue) -> Option<i64> {
    value.as_n().ok()?.parse().ok()
}
