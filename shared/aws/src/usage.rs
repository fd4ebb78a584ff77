//! Usage snapshots, as operators read them.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::Client;
use tidegate_domain::{
    bucket::{Entity, Namespace, Resource},
    window::Window,
};

use crate::{
    dynamodb::{Item, query_all},
    error::StoreError,
    expression::text,
    image::describe,
    schema::{self, ENTITY_ID, GSI2PK, GSI2SK, PK, RESOURCE, SK, TTL, snapshot, usage, usage_range},
};

/// The usage snapshots of a table, for operators.
#[derive(Clone, Debug)]
pub struct Usage {
    client: Client,
    table: String,
}

/// Which snapshots to read.
#[derive(Clone, Debug)]
pub struct UsageQuery<'q> {
    pub subject: UsageSubject<'q>,
    pub window: Window,
    /// The first start of a period, as RFC 3339 writes it.
    pub from: Option<String>,
    /// The first start of a period that is left out.
    pub to: Option<String>,
}

/// Whose usage to read.
#[derive(Clone, Debug)]
pub enum UsageSubject<'q> {
    /// That of an entity, on one resource or on all.
    Entity(&'q Entity<'q>, Option<&'q Resource<'q>>),
    /// That of all entities on a resource.
    Resource(&'q Resource<'q>),
}

/// What was consumed in a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageItem {
    pub entity: String,
    pub resource: String,
    /// The start of the period, as RFC 3339 writes it.
    pub start: String,
    /// Acquires, adjustments and refunds that changed the consumption.
    pub events: i64,
    /// Whole tokens, by limit.
    pub tokens: BTreeMap<String, i64>,
    /// How often a soft limit was overdrawn, by limit.
    pub overdrawn: BTreeMap<String, i64>,
}

impl Usage {
    /// The usage snapshots in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Reads all snapshots that a query is for, in the order of their periods' starts.
    pub async fn read(&self, namespace: &Namespace<'_>, query: &UsageQuery<'_>) -> Result<Vec<UsageItem>, StoreError> {
        let UsageQuery { subject, window, from, to } = query;
        let (from, to) = (from.as_deref(), to.as_deref());
        let request = self.client.query().table_name(&self.table);
        let (request, pk, (lowest, highest)) = match subject {
            UsageSubject::Entity(entity, resource) => {
                // In the key of a snapshot, the resource comes before the time.
                let is_one = resource.is_some();
                let range = usage_range(&usage::of_entity(*resource), from.filter(|_| is_one), to.filter(|_| is_one));
                (
                    request.expression_attribute_names("#pk", PK).expression_attribute_names("#sk", SK),
                    schema::entity_pk(namespace, entity),
                    range,
                )
            }
            UsageSubject::Resource(resource) => {
                let request = request.index_name("GSI2");
                let request = request.expression_attribute_names("#pk", GSI2PK);
                (
                    request.expression_attribute_names("#sk", GSI2SK),
                    schema::resource_pk(namespace, resource),
                    usage_range(usage::OF_RESOURCE, from, to),
                )
            }
        };
        let request = request
            .key_condition_expression("#pk = :pk AND #sk BETWEEN :lowest AND :highest")
            .filter_expression("#window = :window")
            .expression_attribute_names("#window", snapshot::WINDOW)
            .expression_attribute_values(":pk", text(pk))
            .expression_attribute_values(":lowest", text(lowest))
            .expression_attribute_values(":highest", text(highest))
            .expression_attribute_values(":window", text(window.as_str()));
        let items = query_all(request).await?;
        let mut usage: Vec<_> = items.iter().map(usage_item).collect::<Result<_, _>>()?;
        usage.retain(|item| from.is_none_or(|from| *item.start >= *from) && to.is_none_or(|to| *item.start < *to));
        usage.sort_by(|a, b| (&a.start, &a.resource, &a.entity).cmp(&(&b.start, &b.resource, &b.entity)));
        Ok(usage)
    }
}

fn usage_item(item: &Item) -> Result<UsageItem, StoreError> {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
    let mut usage = UsageItem {
        entity: text(ENTITY_ID),
        resource: text(RESOURCE),
        start: text(snapshot::WINDOW_START),
        events: 0,
        tokens: BTreeMap::new(),
        overdrawn: BTreeMap::new(),
    };
    for (name, value) in item.iter().filter(|(name, _)| *name != TTL) {
        let Ok(digits) = value.as_n() else { continue };
        let count = digits.parse().map_err(|_| StoreError::Corrupt {
            item: describe(item),
            attribute: name.clone(),
            value: digits.clone(),
        })?;
        if name == snapshot::TOTAL_EVENTS {
            usage.events = count;
        } else if let Some(limit) = name.strip_suffix(snapshot::OVERDRAWN) {
            usage.overdrawn.insert(limit.to_owned(), count);
        } else {
            // A limit whose name is an attribute's has a `#` behind it.
            usage.tokens.insert(name.trim_end_matches('#').to_owned(), count);
        }
    }
    Ok(usage)
}
