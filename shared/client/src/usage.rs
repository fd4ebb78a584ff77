//! Usage: what was consumed in each hour, day or month.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tidegate_aws::usage::{UsageItem, UsageQuery, UsageSubject};
use tidegate_domain::{time::EpochMillis, window::Window};

use crate::{administration::AdminError, limiter::Limiter, names, scope::Scope};

/// A query of usage snapshots. Made by [`Limiter::usage`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before `snapshots` or `summary`"]
pub struct Usage<'l> {
    limiter: &'l Limiter,
    window: Window,
    scope: Scope,
    from: Option<SystemTime>,
    to: Option<SystemTime>,
}

/// What an entity consumed on a resource in a period. `usage-rollup` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageSnapshot {
    /// The entity.
    pub entity: String,
    /// The resource.
    pub resource: String,
    /// The start of the period in UTC, like `2026-01-01T14:00:00Z`.
    pub start: String,
    /// The number of acquires, adjustments and refunds that changed the consumption.
    pub events: i64,
    /// The consumed whole tokens by limit. Below zero if more was given back than taken.
    pub tokens: BTreeMap<String, i64>,
    /// How often an acquire left a soft limit in debt, by limit.
    pub overdrawn: BTreeMap<String, i64>,
}

/// The totals of some snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageSummary {
    /// How many snapshots were added up.
    pub snapshots: usize,
    /// The start of the first period.
    pub first: Option<String>,
    /// The start of the last period.
    pub last: Option<String>,
    /// The number of acquires, adjustments and refunds that changed the consumption.
    pub events: i64,
    /// The consumed whole tokens by limit.
    pub tokens: BTreeMap<String, i64>,
    /// How often an acquire left a soft limit in debt, by limit.
    pub overdrawn: BTreeMap<String, i64>,
}

impl Limiter {
    /// Reads usage by hour, by day or by month. Name an entity, a resource, or both.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate::Limiter) -> Result<(), tidegate::AdminError> {
    /// use tidegate::Window;
    ///
    /// let summary = limiter.usage(Window::Daily).entity("key-1").resource("gpt-4").summary().await?;
    /// println!("{:?} tokens in {} acquires", summary.tokens.get("tokens"), summary.events);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn usage(&self, window: Window) -> Usage<'_> {
        Usage { limiter: self, window, scope: Scope::system(), from: None, to: None }
    }
}

impl Usage<'_> {
    /// Selects the usage of an entity.
    pub fn entity(self, entity: impl Into<String>) -> Self {
        let entity = Scope::entity(entity);
        let scope = match self.scope.resource_name() {
            Some(resource) => entity.on(resource),
            None => entity,
        };
        Self { scope, ..self }
    }

    /// Selects the usage of a resource.
    pub fn resource(self, resource: impl Into<String>) -> Self {
        let scope = self.scope.clone().on(resource);
        Self { scope, ..self }
    }

    /// Leaves out periods that start before a moment.
    pub const fn from(mut self, from: SystemTime) -> Self {
        self.from = Some(from);
        self
    }

    /// Leaves out periods that start at a moment or later.
    pub const fn to(mut self, to: SystemTime) -> Self {
        self.to = Some(to);
        self
    }

    /// Reads all snapshots, in the order of their periods.
    ///
    /// With a resource, the range of time narrows what is read. Without one, all snapshots of the entity are read, and those
    /// outside the range are dropped.
    ///
    /// # Errors
    /// [`AdminError`] if a name is invalid, if there is neither an entity nor a resource, if the range ends before it
    /// begins, or if the table cannot be read.
    pub async fn snapshots(&self) -> Result<Vec<UsageSnapshot>, AdminError> {
        let core = &self.limiter.core;
        let entity = self.scope.entity_id().map(names::entity).transpose()?;
        let resource = self.scope.resource_name().map(names::resource).transpose()?;
        let (from, to) = (self.from.map(next_second), self.to.map(next_second));
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(AdminError::InvalidRange { from: from.clone(), to: to.clone() });
        }
        let query = UsageQuery {
            subject: match (&entity, &resource) {
                (Some(entity), resource) => UsageSubject::Entity(entity, resource.as_ref()),
                (None, Some(resource)) => UsageSubject::Resource(resource),
                (None, None) => return Err(AdminError::NoSubject),
            },
            window: self.window,
            from,
            to,
        };
        let read = core.administration.usage.read(&core.namespace, &query).await?;
        Ok(read.into_iter().map(UsageSnapshot::from).collect())
    }

    /// Adds up all snapshots.
    ///
    /// # Errors
    /// As [`snapshots`](Self::snapshots).
    pub async fn summary(&self) -> Result<UsageSummary, AdminError> {
        Ok(UsageSummary::of(&self.snapshots().await?))
    }
}

impl UsageSummary {
    /// Adds up snapshots. They should be of the same window: a day's usage contains that of its hours.
    #[must_use]
    pub fn of(snapshots: &[UsageSnapshot]) -> Self {
        let starts = || snapshots.iter().map(|snapshot| &snapshot.start);
        let mut summary = Self {
            snapshots: snapshots.len(),
            first: starts().min().cloned(),
            last: starts().max().cloned(),
            ..Self::default()
        };
        let add = |sums: &mut BTreeMap<String, i64>, counts: &BTreeMap<String, i64>| {
            for (limit, count) in counts {
                let sum = sums.entry(limit.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        };
        for UsageSnapshot { events, tokens, overdrawn, .. } in snapshots {
            summary.events = summary.events.saturating_add(*events);
            add(&mut summary.tokens, tokens);
            add(&mut summary.overdrawn, overdrawn);
        }
        summary
    }
}

/// The first full second from a moment on, as RFC 3339 writes it. Periods start at full seconds.
fn next_second(moment: SystemTime) -> String {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().saturating_add(u64::from(since.subsec_nanos() > 0));
    EpochMillis::EPOCH.after(Duration::from_secs(seconds)).rfc3339()
}

impl From<UsageItem> for UsageSnapshot {
    fn from(UsageItem { entity, resource, start, events, tokens, overdrawn }: UsageItem) -> Self {
        Self { entity, resource, start, events, tokens, overdrawn }
    }
}
