//! Audit events: what operators have changed, one item for each change.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_domain::{bucket::Namespace, configuration::Scope, state::Terms, time::EpochMillis};

use crate::{
    dynamodb::{Item, query_all, through_conflicts},
    error::StoreError,
    expression::{number, text},
    schema::{
        self, ENTITY_ID, GSI4PK, GSI4SK, PK, RESOURCE, SK, TTL,
        audit::{ACTION, DETAILS, ID, PREFIX, PRINCIPAL, TIMESTAMP},
        config,
    },
    snapshots::SECONDS_PER_DAY,
};

/// The audit events of a table.
#[derive(Clone, Debug)]
pub struct Audit {
    client: Client,
    table: String,
}

/// A change that an operator has made.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEvent {
    /// A ULID: its order is that of time.
    pub id: String,
    /// When it happened, as RFC 3339 writes it.
    pub timestamp: String,
    pub action: String,
    /// The entity, or what stands for a resource or the namespace.
    pub subject: String,
    pub principal: Option<String>,
    pub resource: Option<String>,
    pub details: HashMap<String, AttributeValue>,
}

/// What an operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    EntityCreated,
    EntityDeleted,
    LimitsSet,
    LimitsDeleted,
}

/// How many days events are kept if the namespace does not say.
const RETENTION_DAYS: i64 = 90;

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::EntityCreated => "entity_created",
            Self::EntityDeleted => "entity_deleted",
            Self::LimitsSet => "limits_set",
            Self::LimitsDeleted => "limits_deleted",
        }
    }
}

impl Audit {
    /// The audit events in `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }

    /// Writes an event about a scope. The details are a map as [`details`] makes it.
    pub async fn log(
        &self,
        namespace: &Namespace<'_>,
        action: Action,
        scope: &Scope<'_>,
        principal: Option<&str>,
        details: HashMap<String, AttributeValue>,
        now: EpochMillis,
    ) -> Result<(), StoreError> {
        let subject = subject(scope);
        let pk = schema::audit_pk(namespace, &subject);
        let id = ulid(now);
        let expires = now.get() / 1000 + self.retention_days(namespace).await? * SECONDS_PER_DAY;
        let is_of_limits = matches!(action, Action::LimitsSet | Action::LimitsDeleted);
        let resource = match (&scope.resource, &scope.entity) {
            (Some(resource), _) => Some(resource.as_str()),
            (None, Some(_)) if is_of_limits => Some(config::DEFAULT),
            _ => None,
        };
        let item = [
            (PK, text(pk.as_str())),
            (SK, text(format!("{PREFIX}{id}"))),
            (ENTITY_ID, text(subject)),
            (ID, text(id)),
            (TIMESTAMP, text(now.rfc3339())),
            (ACTION, text(action.as_str())),
            (PRINCIPAL, text_or_null(principal)),
            (RESOURCE, text_or_null(resource)),
            (DETAILS, AttributeValue::M(details)),
            (TTL, number(&expires)),
            (GSI4PK, text(namespace.as_str())),
            (GSI4SK, text(pk)),
        ];
        let item = item.map(|(name, value)| (name.to_owned(), value)).into();
        // The id is new, so the SDK may send the item again.
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        let sent = through_conflicts(|| put.clone().send()).await;
        sent.map(drop).map_err(|error| StoreError::from_sdk("PutItem", error))
    }

    /// Reads all events about a subject, the latest first.
    pub async fn events(&self, namespace: &Namespace<'_>, subject: &str) -> Result<Vec<AuditEvent>, StoreError> {
        let query = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression(format!("{PK} = :pk AND begins_with({SK}, :prefix)"))
            .expression_attribute_values(":pk", text(schema::audit_pk(namespace, subject)))
            .expression_attribute_values(":prefix", text(PREFIX))
            .scan_index_forward(false);
        Ok(query_all(query).await?.into_iter().filter_map(event).collect())
    }

    async fn retention_days(&self, namespace: &Namespace<'_>) -> Result<i64, StoreError> {
        let (pk, sk) = schema::config_key(namespace, &Scope::default());
        let get = self.client.get_item().table_name(&self.table).key(PK, text(pk)).key(SK, text(sk));
        let item = get.send().await.map_err(|error| StoreError::from_sdk("GetItem", error))?.item;
        let days = item.and_then(|item| item.get(config::AUDIT_RETENTION)?.as_n().ok()?.parse().ok());
        Ok(days.unwrap_or(RETENTION_DAYS))
    }
}

/// What events about a scope are filed under.
pub fn subject(scope: &Scope<'_>) -> String {
    match (&scope.entity, &scope.resource) {
        (Some(entity), _) => entity.to_string(),
        (None, Some(resource)) => format!("$RESOURCE:{resource}"),
        (None, None) => "$SYSTEM".to_owned(),
    }
}

/// The details of an event.
pub fn details<const N: usize>(details: [(&str, AttributeValue); N]) -> HashMap<String, AttributeValue> {
    details.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A limit, as events show it.
pub fn limit(name: &str, terms: &Terms) -> AttributeValue {
    AttributeValue::M(details([
        ("name", text(name)),
        ("capacity", number(&(terms.capacity.get() / 1000))),
        ("refill_amount", number(&(terms.refill.get() / 1000))),
        ("refill_period_seconds", number(&(terms.period / 1000))),
    ]))
}

/// A text, or null.
pub fn text_or_null(value: Option<&str>) -> AttributeValue {
    value.map_or(AttributeValue::Null(true), text)
}

/// An item that is no event is left out, as other clients do.
fn event(mut item: Item) -> Option<AuditEvent> {
    let mut text = |name: &str| match item.remove(name) {
        Some(AttributeValue::S(text)) => Some(text),
        _ => None,
    };
    Some(AuditEvent {
        action: text(ACTION)?,
        id: text(ID).unwrap_or_default(),
        timestamp: text(TIMESTAMP).unwrap_or_default(),
        subject: text(ENTITY_ID).unwrap_or_default(),
        principal: text(PRINCIPAL),
        resource: text(RESOURCE),
        details: match item.remove(DETAILS) {
            Some(AttributeValue::M(details)) => details,
            _ => HashMap::new(),
        },
    })
}

/// A new ULID: 48 bits of time and 80 random ones, in Crockford's base 32.
fn ulid(now: EpochMillis) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bits = (u128::from(now.get().unsigned_abs()) << 80) | (fastrand::u128(..) >> 48);
    (0..26_u32).rev().map(|place| char::from(ALPHABET[(bits >> (place * 5)) as usize % 32])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_begins_with_its_time() {
        let id = ulid(EpochMillis::new(1_767_225_600_000).unwrap());
        assert_eq!((&id[..10], id.len()), ("01KDVDNA00", 26), "{id}");
        assert!(ulid(EpochMillis::new(1_767_225_600_001).unwrap()) > id);
    }
}
