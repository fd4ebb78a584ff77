//! Limits: who may take how much.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::{
    audit::{self, Action, text_or_null},
    fanout::Changed,
};
use tidegate_domain::configuration::LevelConfiguration;

use crate::{
    administration::{AdminError, Reached},
    limit::{self, Limit},
    limiter::Limiter,
    scope::Scope,
};

/// The limits of a namespace. Made by [`Limiter::limits`].
#[derive(Clone, Copy, Debug)]
pub struct Limits<'l> {
    limiter: &'l Limiter,
}

/// What is configured in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeLimits {
    /// The scope.
    pub scope: Scope,
    /// Its limits, in the order of their names. Empty if the scope only says whether callers are refused.
    pub limits: Vec<Limit>,
    /// Whether callers are refused; `None` if the scope leaves that to less specific scopes.
    pub is_disabled: Option<bool>,
    /// An attribute that this crate does not support, such as a schedule. Limits with session windows are not in `limits`.
    pub unsupported: Option<String>,
}

impl Limiter {
    /// Reads and changes limits.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate::Limiter) -> Result<(), tidegate::AdminError> {
    /// use tidegate::{Limit, Scope};
    ///
    /// let limits = limiter.limits();
    /// limits.set(Scope::resource("gpt-4"), [Limit::per_minute("requests", 600)]).await?;
    /// limits.set(Scope::entity("key-1").on("gpt-4"), [Limit::per_minute("requests", 60).burst(100)]).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn limits(&self) -> Limits<'_> {
        Limits { limiter: self }
    }
}

// The methods take the handle by value, so that their futures outlive it.
impl Limits<'_> {
    /// Reads what is configured in a scope itself, whatever less specific scopes say. Returns `None` if nothing is.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be read.
    pub async fn get(self, scope: Scope) -> Result<Option<ScopeLimits>, AdminError> {
        let core = &self.limiter.core;
        let found = core.administration.limits.find(&core.namespace, &scope.checked()?).await;
        Ok(found?.map(|configured| ScopeLimits::new(scope, configured)))
    }

    /// Replaces the limits of a scope. What else is configured there stays, for instance whether callers are refused.
    ///
    /// An entity's limits also reach its buckets, which keep their tokens: a raised limit fills up, and surplus tokens of a
    /// lowered one are dropped by the next acquire. The limits of a resource or of the namespace reach an existing bucket
    /// later: when a Rust client refills it after its cache of configurations has expired, or when it expires itself.
    ///
    /// # Errors
    /// [`AdminError`] if a name or a limit is invalid, or the table cannot be written. The same call can be made again.
    pub async fn set(self, scope: Scope, limits: impl IntoIterator<Item = Limit>) -> Result<Reached, AdminError> {
        let core = &self.limiter.core;
        let checked = scope.checked()?;
        let terms = limit::all_checked(limits, &scope)?;
        let set = core.administration.limits.set(&core.namespace, &checked, &terms).await;
        let on_unavailable = set?;
        let reached = if checked.entity.is_some() {
            core.fan_out(&checked, Changed::Limits).await?
        } else {
            core.configurations.forget(&checked);
            Reached::default()
        };
        let limits = terms.iter().map(|(limit, terms)| audit::limit(limit.as_str(), terms)).collect();
        let mut details = audit::details([("limits", AttributeValue::L(limits))]);
        if scope == Scope::system() {
            details.insert("on_unavailable".to_owned(), text_or_null(on_unavailable.as_deref()));
        }
        core.log(Action::LimitsSet, &checked, details).await?;
        Ok(reached)
    }

    /// Deletes what is configured in a scope, so that a less specific scope applies. Returns `None` if nothing was
    /// configured.
    ///
    /// The buckets of an entity get the limits that apply now. If none do, they keep theirs.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, or the table cannot be written. The same call can be made again.
    pub async fn delete(self, scope: Scope) -> Result<Option<Reached>, AdminError> {
        let core = &self.limiter.core;
        let checked = scope.checked()?;
        let deleted = core.administration.limits.delete(&core.namespace, &checked).await?;
        let was_switched = deleted.as_ref().is_some_and(|deleted| deleted.was_switched);
        let reached = match (&checked.entity, &checked.resource) {
            (Some(_), _) => core.fan_out(&checked, Changed::Deleted).await?,
            // A call before this one may have deleted the configuration and not reached all buckets.
            (None, Some(_)) if was_switched || deleted.is_none() => core.fan_out(&checked, Changed::Switch).await?,
            _ => {
                core.configurations.forget(&checked);
                Reached::default()
            }
        };
        let Some(deleted) = deleted else { return Ok(None) };
        let details = if scope == Scope::system() {
            let limits = deleted.limits.into_iter().map(AttributeValue::S).collect();
            let on_unavailable = text_or_null(deleted.on_unavailable.as_deref());
            audit::details([("limits", AttributeValue::L(limits)), ("on_unavailable", on_unavailable)])
        } else {
            audit::details([])
        };
        core.log(Action::LimitsDeleted, &checked, details).await?;
        Ok(Some(reached))
    }

    /// Reads what is configured in all scopes of the namespace: its own, then by resource, then by entity.
    ///
    /// # Errors
    /// [`AdminError`] if the table cannot be read.
    pub async fn list(self) -> Result<Vec<ScopeLimits>, AdminError> {
        let core = &self.limiter.core;
        let listed = core.administration.limits.list(&core.namespace).await?;
        Ok(listed.into_iter().map(|(scope, configured)| ScopeLimits::new(Scope::of(&scope), configured)).collect())
    }
}

impl ScopeLimits {
    fn new(scope: Scope, configured: LevelConfiguration) -> Self {
        let LevelConfiguration { limits, is_disabled, unsupported, .. } = configured;
        let limits = limits.iter().map(|(name, terms)| Limit::of(name, terms)).collect();
        Self { scope, limits, is_disabled, unsupported }
    }
}
