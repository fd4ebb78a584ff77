//! What operators write to the bucket table: the registries of what is configured, and audit events. Also the key ranges in
//! which they look for usage.

use tidegate_domain::{
    bucket::{Entity, Namespace, Resource},
    configuration::Scope,
};

use super::table::{config, entity_config_sk, entity_pk, resource_pk, system_pk};

/// The partition key and the sort key of a configuration.
pub(crate) fn config_key(namespace: &Namespace<'_>, scope: &Scope<'_>) -> (String, String) {
    match (&scope.entity, &scope.resource) {
        (Some(entity), Some(resource)) => (entity_pk(namespace, entity), entity_config_sk(resource)),
        (Some(entity), None) => (entity_pk(namespace, entity), format!("{}#{}", config::CONFIG, config::DEFAULT)),
        (None, Some(resource)) => (resource_pk(namespace, resource), config::CONFIG.to_owned()),
        (None, None) => (system_pk(namespace), config::CONFIG.to_owned()),
    }
}

/// The partition key of an entity's configurations on a resource in the index by entity. The sort key is the entity.
pub(crate) fn entity_configs_gsi3_pk(namespace: &Namespace<'_>, resource: &str) -> String {
    format!("{namespace}/ENTITY_CONFIG#{resource}")
}

/// The partition key of an entity's children in the index by parent.
pub(crate) fn children_gsi1_pk(namespace: &Namespace<'_>, parent: &Entity<'_>) -> String {
    format!("{namespace}/PARENT#{parent}")
}

/// The sort key of a child in the index by parent.
pub(crate) fn child_gsi1_sk(child: &Entity<'_>) -> String {
    format!("CHILD#{child}")
}

/// The partition key of the audit events about an entity, or about a resource or the namespace as a whole.
pub(crate) fn audit_pk(namespace: &Namespace<'_>, subject: &str) -> String {
    format!("{namespace}/AUDIT#{subject}")
}

/// The lowest and the highest sort key of usage snapshots that begin with `prefix` and whose period starts from `from`
/// to `to`, both RFC 3339.
///
/// The prefix ends in `#`. No name holds a `$`, the next character, so it ends the range of all periods.
pub(crate) fn usage_range(prefix: &str, from: Option<&str>, to: Option<&str>) -> (String, String) {
    let (from, open) = (from.unwrap_or_default(), prefix.trim_end_matches('#'));
    (format!("{prefix}{from}"), to.map_or_else(|| format!("{open}$"), |to| format!("{prefix}{to}")))
}

/// The sort key's beginning of an entity's snapshots, on one resource or on all.
pub(crate) mod usage {
    use super::Resource;

    pub(crate) fn of_entity(resource: Option<&Resource<'_>>) -> String {
        resource.map_or_else(|| "#USAGE#".to_owned(), |resource| format!("#USAGE#{resource}#"))
    }

    /// In the index by resource.
    pub(crate) const OF_RESOURCE: &str = "USAGE#";
}

pub(crate) mod registry {
    //! The items that list what is configured, in the partition of [`system_pk`](super::system_pk).

    /// The sort key of the item that lists the resources with limits of their own.
    pub(crate) const RESOURCES: &str = "#RESOURCES";
    /// Of that item: the resources, a set of strings.
    pub(crate) const NAMES: &str = "resources";
    /// The sort key of the item that counts, for each resource, the entities with limits of their own on it: an attribute
    /// of the resource's name. Defaults of entities count for [`DEFAULT`](super::config::DEFAULT).
    pub(crate) const ENTITY_CONFIGS: &str = "#ENTITY_CONFIG_RESOURCES";
}

pub(crate) mod audit {
    //! Attributes of audit events.

    /// The beginning of every sort key; the event's id follows.
    pub(crate) const PREFIX: &str = "#AUDIT#";
    /// The event's id, a ULID.
    pub(crate) const ID: &str = "event_id";
    /// When it happened, as RFC 3339 writes it.
    pub(crate) const TIMESTAMP: &str = "timestamp";
    pub(crate) const ACTION: &str = "action";
    /// Who did it, or null.
    pub(crate) const PRINCIPAL: &str = "principal";
    /// What else belongs to the action: a map.
    pub(crate) const DETAILS: &str = "details";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_the_periods_of_one_resource() {
        let check = |from, to, key: &str, expect| {
            let (lowest, highest) = usage_range("#USAGE#gpt-4#", from, to);
            assert_eq!((lowest.as_str()..=highest.as_str()).contains(&key), expect, "{key} in {lowest} to {highest}");
        };
        let (january, march) = (Some("2026-01-01T00:00:00Z"), Some("2026-03-01T00:00:00Z"));
        for (from, to) in [(None, None), (january, None), (None, march), (january, march)] {
            check(from, to, "#USAGE#gpt-4#2026-02-01T00:00:00Z", true);
            check(from, to, "#USAGE#gpt-4#2026-02-01T00:00:00Z#daily", true);
            check(from, to, "#USAGE#gpt-4-32k#2026-02-01T00:00:00Z", false);
            check(from, to, "#USAGE#gpt-3#2026-02-01T00:00:00Z", false);
        }
        check(january, None, "#USAGE#gpt-4#2025-12-31T23:00:00Z", false);
        check(None, march, "#USAGE#gpt-4#2026-03-01T01:00:00Z", false);
    }
}
