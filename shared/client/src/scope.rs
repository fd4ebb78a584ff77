//! Where limits are configured.

use std::fmt;

use tidegate_domain::configuration;

use crate::{error::InvalidRequest, names};

/// Where limits are configured. The most specific scope that has limits applies, and the limits of different scopes are
/// never mixed:
///
/// 1. an entity on one resource,
/// 2. an entity on all resources,
/// 3. a resource, for all entities,
/// 4. the whole namespace.
///
/// ```
/// use tidegate::Scope;
///
/// let own = Scope::entity("key-1").on("gpt-4");
/// assert_eq!(own.to_string(), r#"entity "key-1" on resource "gpt-4""#);
/// assert_eq!(Scope::resource("gpt-4").entity_id(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    entity: Option<String>,
    resource: Option<String>,
}

impl Scope {
    /// The defaults of the whole namespace.
    #[must_use]
    pub const fn system() -> Self {
        Self { entity: None, resource: None }
    }

    /// The defaults of a resource, for all entities.
    #[must_use]
    pub fn resource(resource: impl Into<String>) -> Self {
        Self { entity: None, resource: Some(resource.into()) }
    }

    /// The defaults of an entity, for all resources.
    #[must_use]
    pub fn entity(entity: impl Into<String>) -> Self {
        Self { entity: Some(entity.into()), resource: None }
    }

    /// Narrows the scope to one resource.
    #[must_use]
    pub fn on(self, resource: impl Into<String>) -> Self {
        Self { resource: Some(resource.into()), ..self }
    }

    /// Returns the entity; `None` if the scope is for all entities.
    #[must_use]
    pub fn entity_id(&self) -> Option<&str> {
        self.entity.as_deref()
    }

    /// Returns the resource; `None` if the scope is for all resources.
    #[must_use]
    pub fn resource_name(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    /// Checks the names.
    pub(crate) fn checked(&self) -> Result<configuration::Scope<'static>, InvalidRequest> {
        Ok(configuration::Scope {
            entity: self.entity.as_deref().map(names::entity).transpose()?,
            resource: self.resource.as_deref().map(names::resource).transpose()?,
        })
    }

    pub(crate) fn of(scope: &configuration::Scope<'_>) -> Self {
        let configuration::Scope { entity, resource } = scope;
        Self { entity: entity.as_ref().map(ToString::to_string), resource: resource.as_ref().map(ToString::to_string) }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.entity, &self.resource) {
            (Some(entity), Some(resource)) => write!(f, "entity {entity:?} on resource {resource:?}"),
            (Some(entity), None) => write!(f, "entity {entity:?}"),
            (None, Some(resource)) => write!(f, "resource {resource:?}"),
            (None, None) => f.write_str("the namespace"),
        }
    }
}
