//! The limiter: its settings, and how it is made.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

#[cfg(feature = "test-util")]
use aws_sdk_dynamodb::config::{BehaviorVersion, Config};
use aws_sdk_dynamodb::{Client, config::timeout::TimeoutConfig};
use tidegate_aws::{error::StoreError, namespaces::Namespaces, registry::Registry};
use tidegate_domain::bucket::Namespace;
use tokio::runtime::Handle;

use crate::{
    acquire::AcquireBuilder,
    administration::Administration,
    cache::ConfigurationCache,
    clock::Clock,
    core::Core,
    error::{AcquireError, BuildError, ScopeError},
    lease::Lease,
    names,
    store::Store,
};
#[cfg(feature = "test-util")]
use crate::{
    limit::{self, Limit},
    memory::Memory,
};

/// For how long a configuration is remembered, as by other clients.
const CONFIGURATION_LIFETIME: Duration = Duration::from_mins(1);

/// How long one attempt of a call may take, and how long all of them together, if the client does not say.
const ATTEMPT: Duration = Duration::from_secs(2);
const CALL: Duration = Duration::from_secs(10);
/// How many attempts fit into a call if the client limits only the time of an attempt.
const ATTEMPTS: u32 = 5;

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
    /// An empty lease: see [`Lease::is_degraded`](crate::Lease::is_degraded).
    Allow,
    /// An empty lease for at most this many acquires per second, and this many at once, of each entity on each resource in
    /// this process. Above that rate, an acquire is denied.
    Local(NonZeroU32),
}

/// The settings of a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct LimiterBuilder {
    place: Place,
    namespace: String,
    principal: Option<String>,
    on_unavailable: OnUnavailable,
    configuration_lifetime: Duration,
    clock: Clock,
}

/// Where the buckets are.
#[derive(Clone, Debug)]
enum Place {
    /// In a table.
    Table { client: Client, table: String, creates_namespace: bool },
    #[cfg(feature = "test-util")]
    Memory { limits: Vec<Limit> },
}

impl Limiter {
    /// Starts to build a limiter for a table, by its name or ARN.
    pub fn builder(client: Client, table: impl Into<String>) -> LimiterBuilder {
        LimiterBuilder::new(Place::Table { client, table: table.into(), creates_namespace: false })
    }

    /// Starts to build a limiter whose buckets are in this process, for tests of applications. All entities have these
    /// limits on all resources. Administration fails with [`AdminError::Rejected`](crate::AdminError::Rejected).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::{Limit, Limiter, ManualClock};
    ///
    /// let clock = ManualClock::new(1_767_225_600_000);
    /// let limiter = Limiter::in_memory([Limit::per_second("requests", 1)]).clock(clock.clone()).build().await?;
    /// assert!(limiter.acquire("key-1", "api").take("requests", 1).await.is_ok());
    /// assert!(limiter.acquire("key-1", "api").take("requests", 1).await.is_err());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.acquire("key-1", "api").take("requests", 1).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "test-util")]
    pub fn in_memory(limits: impl IntoIterator<Item = Limit>) -> LimiterBuilder {
        LimiterBuilder::new(Place::Memory { limits: limits.into_iter().collect() })
    }

    /// Creates the bucket table if it does not exist, for tests and small set-ups: on demand, with all indexes, a stream
    /// and time to live. [`sam deploy`](https://github.com/aws/aws-sam-cli) creates it together with the functions.
    ///
    /// Calls that need the table can be made when this returns.
    ///
    /// # Errors
    /// [`BuildError::Table`] if the table cannot be created.
    pub async fn create_table(client: &Client, table: &str) -> Result<(), BuildError> {
        let failed = |source: AcquireError| BuildError::Table { table: table.to_owned(), error: Box::new(source) };
        tidegate_aws::table::ensure(client, table).await.map_err(|error| failed(error.into()))?;
        Registry::new(client.clone(), table).enter_version(false).await.map_err(|error| failed(error.into()))?;
        Ok(())
    }

    /// Starts a request for tokens of an entity on a resource. Await the builder to send it.
    ///
    /// | name | characters |
    /// |---|---|
    /// | entity | a letter or a digit, then letters, digits and `_ . - : @`; at most 256 |
    /// | resource | a letter, then letters, digits and `_ . - / :`; at most 64 |
    /// | limit | a letter, then letters, digits and `_ . -`; at most 64; not `wcu` |
    ///
    /// The names are ASCII, as in all clients of the table. Hash a key that has other characters.
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
        self.core.background.flush().await;
    }

    /// Ends the use of the limiter: the same as [`flush`](Self::flush), for the end of a process.
    pub async fn shutdown(self) {
        self.flush().await;
    }
}

impl LimiterBuilder {
    fn new(place: Place) -> Self {
        Self {
            place,
            namespace: "default".to_owned(),
            principal: None,
            on_unavailable: OnUnavailable::default(),
            configuration_lifetime: CONFIGURATION_LIFETIME,
            clock: Clock::system(),
        }
    }

    /// Registers the namespace if the table does not have it.
    pub fn create_namespace(mut self) -> Self {
        match &mut self.place {
            Place::Table { creates_namespace, .. } => *creates_namespace = true,
            #[cfg(feature = "test-util")]
            Place::Memory { .. } => {}
        }
        self
    }

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

    /// Builds the limiter. It reads the namespace's id in one call, and may need more to register it.
    ///
    /// The limiter writes in tasks of the Tokio runtime in which this is called, so it must not outlive that runtime. An
    /// attempt of a call times out after two seconds, unless the client has timeouts of its own. A write is attempted
    /// once; a read again, within ten seconds.
    ///
    /// # Panics
    /// If it is called outside of a Tokio runtime.
    ///
    /// # Errors
    /// [`BuildError`] if the principal is invalid, or if the table does not know the namespace or cannot be read.
    pub async fn build(self) -> Result<Limiter, BuildError> {
        let Self { place, namespace, principal, on_unavailable, configuration_lifetime, clock } = self;
        principal.as_deref().map(names::principal).transpose()?;
        let (store, client, table, namespace) = match place {
            Place::Table { client, table, creates_namespace } => {
                let client = with_timeouts(&client);
                let namespace = find_namespace(&client, &table, namespace, creates_namespace, &clock).await?;
                (Store::table(&client, &table), client, table, namespace)
            }
            #[cfg(feature = "test-util")]
            Place::Memory { limits } => {
                let limits = limit::all_checked(limits, "a limiter in memory")?;
                let unknown = BuildError::UnknownNamespace { namespace: namespace.clone(), table: String::new() };
                let namespace = Namespace::new(namespace).map_err(|_| unknown)?;
                // Administration needs a table: without a region, every call fails.
                let nowhere = Client::from_conf(Config::builder().behavior_version(BehaviorVersion::latest()).build());
                (Store::Memory(Memory::new(limits)), nowhere, String::new(), namespace)
            }
        };
        let core = Core::new(
            store.clone(),
            ConfigurationCache::new(store, namespace.clone(), configuration_lifetime, clock.clone()),
            Administration::new(&client, &table, principal),
            namespace,
            clock,
            Handle::current(),
        );
        Ok(Limiter { core: Arc::new(core), on_unavailable })
    }
}

/// Reads the id of a namespace, and registers its name if it is missing and `creates_namespace`.
async fn find_namespace(
    client: &Client,
    table: &str,
    name: String,
    creates_namespace: bool,
    clock: &Clock,
) -> Result<Namespace<'static>, BuildError> {
    let namespaces = Namespaces::new(client.clone(), table);
    let found = if creates_namespace {
        namespaces.register(&name, clock.moment().now).await.map(Some)
    } else {
        namespaces.find(&name).await
    };
    let unreadable = |error: StoreError| BuildError::Table { table: table.to_owned(), error: Box::new(error.into()) };
    let unknown = || BuildError::UnknownNamespace { namespace: name.clone(), table: table.to_owned() };
    found.map_err(unreadable)?.ok_or_else(unknown)
}

/// A client whose calls end. The SDK sets a timeout for connecting only, so a lost connection would block a bucket.
pub(crate) fn with_timeouts(client: &Client) -> Client {
    let own = client.config().timeout_config().cloned().unwrap_or_else(TimeoutConfig::disabled);
    let attempt = own.operation_attempt_timeout();
    if own.operation_timeout().is_some() {
        return client.clone();
    }
    let call = attempt.map_or(CALL, |attempt| attempt * ATTEMPTS);
    let timeouts = own.to_builder().operation_attempt_timeout(attempt.unwrap_or(ATTEMPT)).operation_timeout(call);
    let timeouts = timeouts.build();
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
