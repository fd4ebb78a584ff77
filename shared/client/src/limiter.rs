//! The limiter: its settings, and how it is made.

use std::{
    fmt,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::{Client, config::timeout::TimeoutConfig};
use tidegate_aws::{acquires::Acquires, buckets::Buckets, configurations::Configurations, namespaces::Namespaces};
use tokio::runtime::Handle;

use crate::{
    acquire::AcquireBuilder,
    administration::Administration,
    cache::ConfigurationCache,
    clock::Clock,
    core::Core,
    error::{BuildError, ScopeError},
    lease::Lease,
    names,
};

/// For how long a configuration is remembered, as by other clients.
const CONFIGURATION_LIFETIME: Duration = Duration::from_mins(1);

/// How long one attempt of a call may take, and how long all of them together, if the client does not say.
const ATTEMPT: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(10);

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
    /// The same, for at most so many acquires per second of each entity on each resource in this process, and as many at
    /// once. Above that rate, an acquire is denied.
    Local(NonZeroU32),
}

/// The settings of a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct LimiterBuilder {
    client: Client,
    table: String,
    namespace: String,
    principal: Option<String>,
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
            principal: None,
            on_unavailable: OnUnavailable::default(),
            configuration_lifetime: CONFIGURATION_LIFETIME,
            clock: Clock::System(Instant::now()),
        }
    }

    /// Starts a request for tokens of an entity on a resource. Await the builder to send it.
    pub fn acquire(&self, entity: impl AsRef<str>, resource: impl AsRef<str>) -> AcquireBuilder {
        AcquireBuilder::new(self.clone(), entity.as_ref(), resource.as_ref())
    }

    /// Takes tokens for a piece of work. If the work succeeds, the lease is committed; if it fails, everything is refunded.
    ///
    /// If the work is cancelled or panics, the tokens stay taken, and adjustments made so far are written in the
    /// background. A commit or a refund that fails is logged.
    ///
    /// ```no_run
    /// # async fn example(limiter: tidegate::Limiter) -> Result<(), tidegate::ScopeError<std::io::Error>> {
    /// let request = limiter.acquire("key-1", "gpt-4").take("tokens", 500);
    /// let text = limiter
    ///     .scope(request, async |lease| {
    ///         let (text, used) = ask_the_model().await?;
    ///         lease.adjust("tokens", used - 500);
    ///         Ok(text)
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// # async fn ask_the_model() -> std::io::Result<(String, i64)> { Ok((String::new(), 420)) }
    /// ```
    ///
    /// # Errors
    /// [`ScopeError`], which tells whether the tokens or the work failed.
    pub async fn scope<T, E>(
        &self,
        request: AcquireBuilder,
        work: impl AsyncFnOnce(&mut Lease) -> Result<T, E>,
    ) -> Result<T, ScopeError<E>> {
        let mut lease = request.await.map_err(ScopeError::Acquire)?;
        let done = work(&mut lease).await;
        let written = if done.is_ok() { lease.commit().await } else { lease.refund().await };
        if let Err(error) = written {
            tracing::warn!(%error, "the tokens of a finished piece of work may not be exact");
        }
        done.map_err(ScopeError::Work)
    }

    /// Waits until everything is written that dropped leases and cancelled acquires have left to be written.
    ///
    /// Call it before the process ends. In a Lambda function, call it before the response, because Lambda freezes the
    /// process afterwards.
    pub async fn flush(&self) {
        self.core.flush().await;
    }

    /// Ends the use of the limiter: the same as [`flush`](Self::flush), for the end of a process.
    pub async fn shutdown(self) {
        self.flush().await;
    }
}

impl LimiterBuilder {
    /// Selects the namespace by its name. The default is `default`.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// Names who uses this limiter, for the audit events of its changes: a name of an entity's characters, or an ARN.
    pub fn principal(mut self, principal: impl Into<String>) -> Self {
        self.principal = Some(principal.into());
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
    /// The limiter writes in tasks of the Tokio runtime in which this is called. Calls time out after two seconds, unless
    /// the client has timeouts of its own.
    ///
    /// # Errors
    /// [`BuildError`] if the principal is invalid, or if the table does not know the namespace or cannot be read.
    pub async fn build(self) -> Result<Limiter, BuildError> {
        let Self { client, table, namespace, principal, on_unavailable, configuration_lifetime, clock } = self;
        principal.as_deref().map(names::principal).transpose()?;
        let client = with_timeouts(&client);
        let namespaces = Namespaces::new(client.clone(), table.clone());
        let found = namespaces.find(&namespace).await;
        let found = found.map_err(|error| BuildError::Table { table: table.clone(), source: Box::new(error.into()) })?;
        let Some(namespace) = found else { return Err(BuildError::UnknownNamespace { namespace, table }) };
        let configurations = Configurations::new(client.clone(), table.clone());
        let administration = Administration::new(&client, &table, principal);
        let core = Core::new(
            Acquires::new(client.clone(), table.clone()),
            Buckets::new(client, table),
            ConfigurationCache::new(configurations, namespace.clone(), configuration_lifetime, clock.clone()),
            administration,
            namespace,
            clock,
            Handle::current(),
        );
        Ok(Limiter { core: Arc::new(core), on_unavailable })
    }
}

/// A client whose calls end. The SDK sets a timeout for connecting only, so a lost connection would block a bucket.
fn with_timeouts(client: &Client) -> Client {
    let own = client.config().timeout_config().cloned().unwrap_or_else(TimeoutConfig::disabled);
    let ours = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).operation_timeout(CALL);
    let timeouts = own.to_builder().take_unset_from(ours).build();
    Client::from_conf(client.config().to_builder().timeout_config(timeouts).build())
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("namespace", &self.core.namespace)
            .field("on_unavailable", &self.on_unavailable)
            .finish_non_exhaustive()
    }
}
