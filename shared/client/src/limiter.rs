//! The limiter: its settings, and how it is made.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use aws_sdk_dynamodb::Client;
use tidegate_aws::{acquires::Acquires, buckets::Buckets, configurations::Configurations, namespaces::Namespaces};

use crate::{
    acquire::AcquireBuilder,
    cache::ConfigurationCache,
    clock::Clock,
    core::Core,
    error::{BuildError, Unavailable},
};

/// For how long a configuration is remembered, as by other clients.
const CONFIGURATION_LIFETIME: Duration = Duration::from_mins(1);

/// Takes tokens from the buckets of one namespace of a table. Cheap to clone: all clones share their caches.
#[derive(Clone)]
pub struct Limiter {
    pub(crate) core: Arc<Core>,
    pub(crate) on_unavailable: OnUnavailable,
}

/// What an acquire returns while the table is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnavailable {
    /// [`AcquireError::Unavailable`](crate::AcquireError::Unavailable).
    #[default]
    Deny,
    /// A lease of nothing: see [`Lease::is_degraded`](crate::Lease::is_degraded).
    Allow,
}

/// The settings of a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct LimiterBuilder {
    client: Client,
    table: String,
    namespace: String,
    on_unavailable: OnUnavailable,
    configuration_lifetime: Duration,
    clock: Clock,
}

impl Limiter {
    /// Starts to build a limiter for a table, by its name or ARN.
    pub fn builder(client: Client, table: impl Into<String>) -> LimiterBuilder {
        LimiterBuilder {
            client,
            table: table.into(),
            namespace: "default".to_owned(),
            on_unavailable: OnUnavailable::default(),
            configuration_lifetime: CONFIGURATION_LIFETIME,
            clock: Clock::default(),
        }
    }

    /// Starts a request for tokens of an entity on a resource. Await the builder to send it.
    pub fn acquire<'l>(
        &'l self,
        entity: impl Into<Cow<'l, str>>,
        resource: impl Into<Cow<'l, str>>,
    ) -> AcquireBuilder<'l> {
        AcquireBuilder::new(self, entity.into(), resource.into())
    }

    /// Waits until everything is written that dropped leases and cancelled acquires have left to be written.
    ///
    /// Call it before the process ends. In a Lambda function, call it before the response, because Lambda freezes the
    /// process afterwards.
    pub async fn flush(&self) {
        self.core.flush().await;
    }
}

impl LimiterBuilder {
    /// Selects the namespace by its name. The default is `default`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Selects what an acquire returns while the table is unavailable. The default is [`OnUnavailable::Deny`].
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.on_unavailable = on_unavailable;
        self
    }

    /// Sets for how long a configuration is remembered. The default is a minute.
    pub fn configuration_lifetime(mut self, lifetime: Duration) -> Self {
        self.configuration_lifetime = lifetime;
        self
    }

    /// Lets the limiter take the time from a clock that a test moves.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Builds the limiter. It reads the namespace's id: one call.
    ///
    /// # Errors
    /// [`BuildError`] if the table does not know the namespace, or cannot be read.
    pub async fn build(self) -> Result<Limiter, BuildError> {
        let Self { client, table, namespace, on_unavailable, configuration_lifetime, clock } = self;
        let namespaces = Namespaces::new(client.clone(), table.clone());
        let found = namespaces.find(&namespace).await.map_err(Unavailable::new)?;
        let Some(namespace) = found else { return Err(BuildError::UnknownNamespace { namespace, table }) };
        let configurations = Configurations::new(client.clone(), table.clone());
        let core = Core::new(
            Acquires::new(client.clone(), table.clone()),
            Buckets::new(client, table),
            ConfigurationCache::new(configurations, namespace.clone(), configuration_lifetime),
            namespace,
            clock,
        );
        Ok(Limiter { core: Arc::new(core), on_unavailable })
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("namespace", &self.core.namespace)
            .field("on_unavailable", &self.on_unavailable)
            .finish_non_exhaustive()
    }
}
