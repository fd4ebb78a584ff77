//! What all parts of the administration share: the stores, errors, and what a change has reached.

use std::collections::HashMap;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use tidegate_aws::{
    audit::{Action, Audit},
    entities,
    error::StoreError,
    fanout, limits, usage,
};
use tidegate_domain::configuration;

use crate::{
    core::Core,
    error::{InvalidRequest, Rejected, Unavailable},
    limit::InvalidLimit,
};

/// The stores that operators use.
pub(crate) struct Administration {
    pub(crate) limits: limits::Limits,
    pub(crate) fanout: fanout::Fanout,
    pub(crate) entities: entities::Entities,
    pub(crate) usage: usage::Usage,
    pub(crate) audit: Audit,
    /// Who makes the changes.
    principal: Option<String>,
}

/// Why a change was not made, or only in part.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// A name is wrong. Nothing was written.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// A limit is wrong. Nothing was written.
    #[error(transparent)]
    InvalidLimit(#[from] InvalidLimit),
    /// An entity has this id already.
    #[error("entity {entity:?} exists already")]
    EntityExists {
        /// The id.
        entity: String,
    },
    /// An entity would be its own parent. Nothing was written.
    #[error("entity {entity:?} cannot be its own parent")]
    OwnParent {
        /// The id.
        entity: String,
    },
    /// The namespace as a whole cannot be disabled or enabled. Nothing was written.
    #[error("the namespace as a whole cannot be disabled or enabled: name an entity or a resource")]
    NotSwitchable,
    /// A usage query names neither an entity nor a resource.
    #[error("the usage of a whole namespace cannot be read: name an entity or a resource")]
    NoSubject,
    /// A usage query's range of time ends before it begins.
    #[error("no usage can be read from {from} to {to}: the range ends before it begins")]
    InvalidRange {
        /// The beginning, as RFC 3339 writes it.
        from: String,
        /// The end.
        to: String,
    },
    /// The configuration was written, but not all buckets have it. The same call, made again, writes the rest.
    #[error("the configuration was written, but only {} bucket items have it: make the same call again", reached.written)]
    Incomplete {
        /// The items that have it.
        reached: Reached,
        /// Why the others do not.
        source: Unavailable,
    },
    /// The table does not exist, a permission is missing, it rejects the request, or an item is malformed.
    #[error(transparent)]
    Rejected(Rejected),
    /// The table could not be asked, or its response was lost. The same call can be made again.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::Unavailable(Unavailable::new(error)),
            _ => Self::Rejected(Rejected::new(error)),
        }
    }
}

/// How many bucket items a change has reached. A bucket has one item for each shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reached {
    /// Items that have the change.
    pub written: usize,
    /// Items that keep their limits, because a schedule or a quota applies to them, which this crate does not support.
    pub left: usize,
}

impl Administration {
    pub(crate) fn new(client: &Client, table: &str, principal: Option<String>) -> Self {
        Self {
            limits: limits::Limits::new(client.clone(), table),
            fanout: fanout::Fanout::new(client.clone(), table),
            entities: entities::Entities::new(client.clone(), table),
            usage: usage::Usage::new(client.clone(), table),
            audit: Audit::new(client.clone(), table),
            principal,
        }
    }
}

impl Core {
    /// Brings the buckets of a scope in line with a change, and forgets what was configured before.
    pub(crate) async fn fan_out(
        &self,
        scope: &configuration::Scope<'_>,
        changed: fanout::Changed,
    ) -> Result<Reached, AdminError> {
        self.configurations.forget(scope);
        let run = self.administration.fanout.run(&self.namespace, scope, changed, self.moment().now).await;
        // A read that was under way during the change may have brought back what was configured before.
        self.configurations.forget(scope);
        run.map(Reached::from).map_err(|error| AdminError::Incomplete {
            reached: error.reached.into(),
            source: Unavailable::new(error.source),
        })
    }

    /// Writes an audit event.
    pub(crate) async fn log(
        &self,
        action: Action,
        scope: &configuration::Scope<'_>,
        details: HashMap<String, AttributeValue>,
    ) -> Result<(), AdminError> {
        let Administration { audit, principal, .. } = &self.administration;
        let logged = audit.log(&self.namespace, action, scope, principal.as_deref(), details, self.moment().now).await;
        Ok(logged?)
    }
}

impl From<fanout::Reached> for Reached {
    fn from(fanout::Reached { written, left }: fanout::Reached) -> Self {
        Self { written, left }
    }
}
