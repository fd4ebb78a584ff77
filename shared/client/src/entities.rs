//! Entities: who is limited, and whose child it is.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::{
    audit::{self, Action, text_or_null},
    entities::EntityItem,
};
use tidegate_domain::{bucket, configuration};

use crate::{administration::AdminError, limiter::Limiter, names};

/// The entities of a namespace. Made by [`Limiter::entities`].
#[derive(Clone, Copy, Debug)]
pub struct Entities<'l> {
    limiter: &'l Limiter,
}

/// An entity that was created by an operator. Entities that were not can take tokens, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entity {
    /// The id.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The parent.
    pub parent: Option<String>,
    /// Whether an acquire also takes tokens from the parent.
    pub cascades: bool,
    /// Notes of the operator.
    pub metadata: BTreeMap<String, String>,
    /// When it was created, as RFC 3339 writes it.
    pub created_at: String,
}

/// An entity to create.
///
/// ```
/// use tidegate::NewEntity;
///
/// let key = NewEntity::new("key-1").name("Production").parent("team-1").cascade(true).metadata("owner", "ops");
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `Entities::create`"]
pub struct NewEntity {
    item: EntityItem,
}

impl NewEntity {
    /// An entity with this id, and without a parent.
    pub fn new(id: impl Into<String>) -> Self {
        let id = id.into();
        Self { item: EntityItem { name: id.clone(), id, ..EntityItem::default() } }
    }

    /// Sets the display name. The default is the id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.item.name = name.into();
        self
    }

    /// Sets the parent. The parent does not have to exist.
    pub fn parent(mut self, parent: impl Into<String>) -> Self {
        self.item.parent = Some(parent.into());
        self
    }

    /// Sets whether an acquire also takes tokens from the parent. The default is `false`.
    pub fn cascade(mut self, cascade: bool) -> Self {
        self.item.cascades = cascade;
        self
    }

    /// Adds a note.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.item.metadata.insert(name.into(), value.into());
        self
    }
}

impl Limiter {
    /// Reads and changes entities.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate::Limiter) -> Result<(), tidegate::AdminError> {
    /// use tidegate::NewEntity;
    ///
    /// let entities = limiter.entities();
    /// entities.create(NewEntity::new("key-1").parent("team-1").cascade(true)).await?;
    /// for child in entities.children("team-1").await? {
    ///     println!("{}: {}", child.id, child.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn entities(&self) -> Entities<'_> {
        Entities { limiter: self }
    }
}

// The methods take the handle by value, so that their futures outlive it.
impl Entities<'_> {
    /// Creates an entity. Create it before it takes tokens: a bucket that exists keeps its parent until it is refilled.
    ///
    /// # Errors
    /// [`AdminError`] if an id is invalid, if the entity exists or is its own parent, or if the table cannot be written.
    pub async fn create(self, entity: NewEntity) -> Result<Entity, AdminError> {
        let core = &self.limiter.core;
        let mut item = entity.item;
        let id = names::entity(&item.id)?;
        let parent = item.parent.as_deref().map(names::entity).transpose()?;
        if parent.as_ref() == Some(&id) {
            return Err(AdminError::OwnParent { entity: item.id });
        }
        let now = core.moment().now;
        item.created_at = now.rfc3339();
        let created = core.administration.entities.create(&core.namespace, &id, &item, now).await;
        if !created? {
            return Err(AdminError::EntityExists { entity: item.id });
        }
        let scope = scope(id);
        core.configurations.forget(&scope);
        let metadata = item.metadata.iter().map(|(name, value)| (name.clone(), AttributeValue::S(value.clone())));
        let details = audit::details([
            ("name", AttributeValue::S(item.name.clone())),
            ("parent_id", text_or_null(item.parent.as_deref())),
            ("cascade", AttributeValue::Bool(item.cascades)),
            ("metadata", AttributeValue::M(metadata.collect())),
        ]);
        core.log(Action::EntityCreated, &scope, details).await?;
        Ok(item.into())
    }

    /// Reads an entity. Returns `None` if no operator has created it.
    ///
    /// # Errors
    /// [`AdminError`] if the id is invalid, or the table cannot be read.
    pub async fn get(self, id: &str) -> Result<Option<Entity>, AdminError> {
        let core = &self.limiter.core;
        let found = core.administration.entities.get(&core.namespace, &names::entity(id)?).await;
        Ok(found?.map(Entity::from))
    }

    /// Reads all children of an entity.
    ///
    /// # Errors
    /// [`AdminError`] if the id is invalid, or the table cannot be read.
    pub async fn children(self, parent: &str) -> Result<Vec<Entity>, AdminError> {
        let core = &self.limiter.core;
        let found = core.administration.entities.children(&core.namespace, &names::entity(parent)?).await;
        Ok(found?.into_iter().map(Entity::from).collect())
    }

    /// Deletes an entity with its buckets, its limits and its usage snapshots. Returns the number of deleted items. Audit
    /// events stay, and so do children.
    ///
    /// # Errors
    /// [`AdminError`] if the id is invalid, or the table cannot be written. The same call can be made again, and deletes
    /// what is left.
    pub async fn delete(self, id: &str) -> Result<usize, AdminError> {
        let core = &self.limiter.core;
        let id = names::entity(id)?;
        let deleted = core.administration.entities.delete(&core.namespace, &id).await?;
        let scope = scope(id);
        core.configurations.forget(&scope);
        if deleted > 0 {
            let records = AttributeValue::N(deleted.to_string());
            let details = [("records_deleted", records), ("complete", AttributeValue::Bool(true))];
            core.log(Action::EntityDeleted, &scope, audit::details(details)).await?;
        }
        Ok(deleted)
    }
}

fn scope(entity: bucket::Entity<'static>) -> configuration::Scope<'static> {
    configuration::Scope { entity: Some(entity), resource: None }
}

impl From<EntityItem> for Entity {
    fn from(EntityItem { id, name, parent, cascades, metadata, created_at }: EntityItem) -> Self {
        Self { id, name, parent, cascades, metadata, created_at }
    }
}
