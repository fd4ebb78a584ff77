//! `tidegate entity`: shows and changes entities.

use anyhow::{Context as _, anyhow};
use serde_json::{Value, json};
use tidegate::{Entity, Limiter, NewEntity};

use crate::output::{Output, table};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Creates an entity. Entities that are not created can take tokens, too
    Create {
        id: String,
        /// The display name [default: the id]
        #[arg(long)]
        name: Option<String>,
        /// The parent, which does not have to exist
        #[arg(long, value_name = "ID")]
        parent: Option<String>,
        /// Lets each acquire take the same tokens from the parent
        #[arg(long, requires = "parent")]
        cascade: bool,
        /// A note; can be given again
        #[arg(long, value_name = "NAME=VALUE", value_parser = note)]
        metadata: Vec<(String, String)>,
    },
    /// Shows an entity
    Get { id: String },
    /// Shows the children of an entity
    Children { id: String },
    /// Deletes an entity with its buckets, limits and usage. Audit events and children stay
    Delete { id: String },
}

impl Action {
    pub async fn run(self, limiter: &Limiter) -> anyhow::Result<Output> {
        let entities = limiter.entities();
        match self {
            Self::Create { id, name, parent, cascade, metadata } => {
                let mut entity = NewEntity::new(id).cascade(cascade);
                if let Some(name) = name {
                    entity = entity.name(name);
                }
                if let Some(parent) = parent {
                    entity = entity.parent(parent);
                }
                for (name, value) in metadata {
                    entity = entity.metadata(name, value);
                }
                let created = entities.create(entity).await?;
                Ok(Output::new(shown(std::slice::from_ref(&created)), json_of(&created)))
            }
            Self::Get { id } => {
                let entity = entities.get(&id).await?.with_context(|| format!("entity {id:?} was not created"))?;
                Ok(Output::new(shown(std::slice::from_ref(&entity)), json_of(&entity)))
            }
            Self::Children { id } => {
                let children = entities.children(&id).await?;
                let json = children.iter().map(json_of).collect();
                if children.is_empty() {
                    return Ok(Output::new(format!("entity {id:?} has no children"), json));
                }
                Ok(Output::new(shown(&children), json))
            }
            Self::Delete { id } => {
                let deleted = entities.delete(&id).await?;
                Ok(Output::new(format!("entity {id:?}: {deleted} items deleted"), json!({"deleted": deleted})))
            }
        }
    }
}

fn shown(entities: &[Entity]) -> String {
    let rows = entities.iter().map(|entity| {
        let notes: Vec<_> = entity.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
        vec![
            entity.id.clone(),
            entity.name.clone(),
            entity.parent.clone().unwrap_or_default(),
            if entity.cascades { "yes" } else { "no" }.to_owned(),
            entity.created_at.clone(),
            notes.join("\n"),
        ]
    });
    let columns = ["id", "name", "parent", "cascade", "created", "metadata"];
    table(columns, rows.collect(), 0..0).to_string()
}

fn json_of(Entity { id, name, parent, cascades, metadata, created_at, .. }: &Entity) -> Value {
    json!({
        "id": id, "name": name, "parent": parent, "cascade": cascades, "metadata": metadata, "created_at": created_at,
    })
}

fn note(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').ok_or_else(|| anyhow!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}
