//! Which limits are configured for an entity on a resource.
//!
//! Limits are configured at four levels. The first level that defines any limit applies whole; levels are not merged.
//! Whether a bucket is disabled is decided by the first of the upper three levels that says so either way.

use std::collections::BTreeMap;

use crate::{
    bucket::{Entity, Limit, Resource},
    state::Terms,
    time::EpochMillis,
};

/// A bucket whose limits are not the entity's own expires this many refill times after it was written.
const REFILL_TIMES: i128 = 7;

/// Where limits are configured, most specific first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// For the entity on the resource.
    Entity,
    /// For the entity on all resources without limits of their own.
    EntityDefault,
    /// For all entities on the resource.
    Resource,
    /// For everything else in the namespace.
    System,
}

impl Level {
    /// All levels, most specific first.
    pub const ALL: [Self; 4] = [Self::Entity, Self::EntityDefault, Self::Resource, Self::System];
}

/// The place of one configuration: a [`Level`] with its names. Without an entity, it is the configuration of a resource;
/// without a resource, the default of an entity; without both, that of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope<'a> {
    /// The entity that is limited; `None` for all entities.
    pub entity: Option<Entity<'a>>,
    /// The resource that is limited; `None` for all resources.
    pub resource: Option<Resource<'a>>,
}

impl Scope<'_> {
    /// Returns whether the scope's limits can apply to an entity on a resource.
    #[must_use]
    pub fn covers(&self, entity: &Entity<'_>, resource: &Resource<'_>) -> bool {
        self.entity.as_ref().is_none_or(|own| own.as_str() == entity.as_str())
            && self.resource.as_ref().is_none_or(|own| own.as_str() == resource.as_str())
    }
}

/// What is configured at one level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelConfiguration {
    /// The limits, with undivided terms.
    pub limits: BTreeMap<Limit<'static>, Terms>,
    /// Whether callers are refused; `None` if the level does not say.
    pub is_disabled: Option<bool>,
    /// Whether consumption cascades to the entity's parent; `None` if the level does not say.
    pub cascades: Option<bool>,
    /// An attribute that a plain token bucket does not know, such as a schedule.
    pub unsupported: Option<String>,
}

/// What applies to an entity on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The level whose limits apply.
    pub level: Level,
    /// The limits, with undivided terms; never empty.
    pub limits: BTreeMap<Limit<'static>, Terms>,
    /// Whether callers are refused.
    pub is_disabled: bool,
    /// Whether consumption cascades to the entity's parent; `None` if only the entity itself says.
    pub cascades: Option<bool>,
    /// An attribute of the level that a plain token bucket does not know.
    pub unsupported: Option<String>,
}

/// Decides what applies, from what is configured at each level of [`Level::ALL`]. Returns `None` if no level defines a
/// limit.
#[must_use]
pub fn resolve(levels: &[Option<LevelConfiguration>; 4]) -> Option<Configuration> {
    let (level, applied) = Level::ALL
        .into_iter()
        .zip(levels)
        .find_map(|(level, configured)| Some((level, configured.as_ref().filter(|level| !level.limits.is_empty())?)))?;
    Some(Configuration {
        level,
        limits: applied.limits.clone(),
        is_disabled: is_disabled(levels),
        cascades: levels[..3].iter().flatten().find_map(|level| level.cascades),
        unsupported: applied.unsupported.clone(),
    })
}

/// Returns whether callers are refused, from what is configured at each level of [`Level::ALL`]. The most specific level
/// that says anything decides. The system level has no say.
#[must_use]
pub fn is_disabled(levels: &[Option<LevelConfiguration>; 4]) -> bool {
    levels[..3].iter().flatten().find_map(|level| level.is_disabled).unwrap_or(false)
}

impl Configuration {
    /// Returns when a bucket expires that is written at `now`, in epoch **seconds**: seven times the longest time in which
    /// a limit refills. Returns `None` if the limits are the entity's own: such a bucket never expires.
    ///
    /// A change of the defaults reaches an idle bucket when it expires and is created again.
    #[must_use]
    pub fn expires(&self, now: EpochMillis) -> Option<i64> {
        if matches!(self.level, Level::Entity | Level::EntityDefault) {
            return None;
        }
        let refill_times = self.limits.values().filter(|terms| terms.refill.get() > 0).map(|terms| {
            REFILL_TIMES * i128::from(terms.capacity.get()) * i128::from(terms.period)
                / (i128::from(terms.refill.get()) * 1000)
        });
        let seconds = i64::try_from(refill_times.max()?).unwrap_or(i64::MAX);
        Some((now.get() / 1000).saturating_add(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Millitokens;

    fn terms(capacity: i64, refill: i64, period: i64) -> Terms {
        Terms { capacity: Millitokens::new(capacity), refill: Millitokens::new(refill), period }
    }

    fn with(limits: &[(&'static str, Terms)]) -> LevelConfiguration {
        let limits = limits.iter().map(|(name, terms)| (Limit::new(*name).unwrap(), *terms)).collect();
        LevelConfiguration { limits, ..LevelConfiguration::default() }
    }

    #[test]
    fn the_first_level_with_limits_applies_whole() {
        let (rpm, tpm) = (("rpm", terms(1, 1, 1)), ("tpm", terms(2, 2, 2)));
        let check = |levels: [&[(&'static str, Terms)]; 4], expect: Option<(Level, &[&str])>| {
            let levels = levels.map(|limits| Some(with(limits)));
            let resolved = resolve(&levels);
            let names =
                resolved.as_ref().map(|of| of.limits.keys().map(|limit| limit.as_str().to_owned()).collect::<Vec<_>>());
            let expect = expect.map(|(level, names)| (level, names.iter().map(ToString::to_string).collect()));
            assert_eq!(resolved.map(|of| of.level).zip(names), expect);
        };
        check([&[rpm], &[rpm, tpm], &[tpm], &[]], Some((Level::Entity, &["rpm"])));
        check([&[], &[rpm, tpm], &[tpm], &[rpm]], Some((Level::EntityDefault, &["rpm", "tpm"])));
        check([&[], &[], &[tpm], &[rpm]], Some((Level::Resource, &["tpm"])));
        check([&[], &[], &[], &[rpm]], Some((Level::System, &["rpm"])));
        check([&[], &[], &[], &[]], None);
    }

    #[test]
    fn the_first_explicit_switch_of_the_upper_levels_counts() {
        let check = |switches: [Option<bool>; 4], expect| {
            let limits = with(&[("rpm", terms(1, 1, 1))]);
            let levels = switches.map(|is_disabled| Some(LevelConfiguration { is_disabled, ..limits.clone() }));
            assert_eq!(resolve(&levels).map(|of| of.is_disabled), Some(expect), "{switches:?}");
        };
        check([None, None, None, None], false);
        check([None, None, Some(true), None], true);
        check([Some(false), Some(true), Some(true), None], false);
        check([None, None, None, Some(true)], false);
    }

    #[test]
    fn a_scope_without_a_name_covers_all() {
        let (entity, resource) = (Entity::new("key-1").unwrap(), Resource::new("gpt-4").unwrap());
        let check = |own: Option<&'static str>, on: Option<&'static str>, expect| {
            let scope = Scope {
                entity: own.map(|name| Entity::new(name).unwrap()),
                resource: on.map(|name| Resource::new(name).unwrap()),
            };
            assert_eq!(scope.covers(&entity, &resource), expect, "{scope:?}");
        };
        check(None, None, true);
        check(Some("key-1"), None, true);
        check(None, Some("gpt-4"), true);
        check(Some("key-1"), Some("gpt-4"), true);
        check(Some("key-2"), None, false);
        check(Some("key-1"), Some("gpt-3"), false);
    }

    #[test]
    fn only_buckets_of_defaults_expire() {
        let now = EpochMillis::new(1_767_225_600_999).unwrap();
        let check = |level, limits: &[(&'static str, Terms)], expect| {
            let levels = Level::ALL.map(|of| (of == level).then(|| with(limits)));
            assert_eq!(resolve(&levels).unwrap().expires(now), expect, "{level:?} {limits:?}");
        };
        let minute = ("rpm", terms(100_000, 100_000, 60_000));
        check(Level::Entity, &[minute], None);
        check(Level::EntityDefault, &[minute], None);
        check(Level::Resource, &[minute], Some(1_767_225_600 + 420));
        check(Level::System, &[minute, ("tpd", terms(1_000, 1_000, 86_400_000))], Some(1_767_225_600 + 604_800));
        check(Level::System, &[("none", terms(1_000, 0, 1_000))], None);
    }
}
