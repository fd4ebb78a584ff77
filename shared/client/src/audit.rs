//! What operators have changed.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::audit;

use crate::{administration::AdminError, limiter::Limiter, scope::Scope};

/// A change that an operator has made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The event's id, a ULID: its order is that of time.
    pub id: String,
    /// When it happened, as RFC 3339 writes it.
    pub timestamp: String,
    /// What was done, like `limits_set`, `limits_deleted`, `entity_created` or `entity_deleted`.
    pub action: String,
    /// Who did it, if known.
    pub principal: Option<String>,
    /// The resource; `_default_` for all resources of an entity.
    pub resource: Option<String>,
    /// What else belongs to the action.
    pub details: HashMap<String, AttributeValue>,
}

impl Limiter {
    /// Reads all audit events, the latest first: of an entity on any resource, of a resource's defaults, or of the
    /// namespace's.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be read.
    pub async fn audit_events(&self, scope: Scope) -> Result<Vec<AuditEvent>, AdminError> {
        let core = &self.core;
        let subject = audit::subject(&scope.checked()?);
        let events = core.administration.audit.events(&core.namespace, &subject).await?;
        Ok(events.into_iter().map(AuditEvent::from).collect())
    }
}

impl From<audit::AuditEvent> for AuditEvent {
    fn from(event: audit::AuditEvent) -> Self {
        let audit::AuditEvent { id, timestamp, action, principal, resource, details, .. } = event;
        Self { id, timestamp, action, principal, resource, details }
    }
}
