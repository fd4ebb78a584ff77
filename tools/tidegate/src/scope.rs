//! The options that name a scope.

use serde_json::{Value, json};
use tidegate::{Reached, Scope};

/// Where limits are configured: the most specific scope that has limits applies.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct ScopeOptions {
    /// The entity; without --resource, its defaults for all resources
    #[arg(long, value_name = "ID")]
    pub entity: Option<String>,
    /// The resource; without --entity, its defaults for all entities
    #[arg(long, value_name = "NAME")]
    pub resource: Option<String>,
    /// The defaults of the whole namespace
    #[arg(long, conflicts_with_all = ["entity", "resource"])]
    pub system: bool,
}

impl ScopeOptions {
    pub fn scope(&self) -> Scope {
        scope(self.entity.as_deref(), self.resource.as_deref())
    }
}

pub fn scope(entity: Option<&str>, resource: Option<&str>) -> Scope {
    let scope = entity.map_or_else(Scope::system, Scope::entity);
    match resource {
        Some(resource) => scope.on(resource),
        None => scope,
    }
}

/// A scope, for programs.
pub fn json_of(scope: &Scope) -> Value {
    json!({"entity": scope.entity_id(), "resource": scope.resource_name()})
}

/// How many bucket items a change has reached, for people.
pub fn reached(Reached { written, left, .. }: Reached) -> String {
    let items = |count: usize| format!("{count} bucket item{}", if count == 1 { "" } else { "s" });
    let left = match left {
        0 => String::new(),
        left => format!("; {} left, because a schedule or a quota applies: use zae-limiter", items(left)),
    };
    format!("{} changed{left}", items(written))
}
