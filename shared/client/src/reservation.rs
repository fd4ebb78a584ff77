//! Limits how many clusters, jobs or sessions an account runs at the same time.
//!
//! The tokens live in the tables of rate-limiter-py, so Rust and Python services can share limits. Reserve a token, start
//! the resource, and bind the token to the resource's id within five minutes. The Lambda function `token-sweeper` frees the
//! token when the resource has ended.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::{TokenTables, reservation::{Reservations, ReserveError}};
//!
//! # async fn start_cluster() -> Result<String, std::io::Error> { Ok(String::new()) }
//! # async fn example(dynamodb: aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let reservations = Reservations::builder(dynamodb, TokenTables::of("prod")).default_limit("emr-cluster", 5).build();
//!
//! match reservations.reserve("emr-cluster", "123456789012").await {
//!     Ok(mut reservation) => {
//!         // `?` drops the reservation, which frees its token: return an error only if no cluster was started.
//!         let cluster = start_cluster().await?;
//!         let token = reservation.bind(&cluster, Duration::from_hours(8)).await?;
//!         println!("{cluster} runs with the fencing number {}", token.fence());
//!     }
//!     Err(ReserveError::Denied(denied)) => println!("{} of {} clusters run", denied.held, denied.limit),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a reservation guarantees
//!
//! Each token of a limit is a slot, an item with at most one holder. A client takes a free slot with one conditional write,
//! so clients of this crate never hold more tokens than the limit, however many of them reserve at the same time. The
//! exceptions are lowered limits and wrong clocks, see below.
//!
//! Python clients count tokens, and add one if there are fewer than the limit. They count slots, too. By default, this
//! crate counts their tokens: it takes no slot if a consistent count over all pages has reached the limit, and gives the
//! slot back if the count exceeds the limit afterwards. That is one read before the write and one after it. Where no
//! Python client runs, [`only_rust_clients`](ReservationsBuilder::only_rust_clients) saves both reads.
//!
//! Python clients can still exceed the limit in four ways:
//!
//! - They write without a condition after they count. A [margin](ReservationsBuilder::margin) keeps some tokens free for
//!   such writes.
//! - `create_token` re-creates a reservation that has expired.
//! - They count only the first megabyte, about 4,000 tokens.
//! - On a host whose time zone is not UTC, their expiry times are wrong.
//!
//! Replace `EventProcessorManager` of rate-limiter-py by `token-sweeper` before you use this crate:
//! `EventProcessorManager` deletes items without a condition, and could delete a slot that has a new holder.
//!
//! A limit is cached for five seconds. After it was lowered, clients can hold more tokens than the new limit: those
//! that they held before, and those that they take before they read it.
//!
//! # Clocks
//!
//! A slot becomes free at its expiry, by the clock of the client that takes it. Clocks must be right within seconds, as they
//! are on hosts of AWS. A holder whose clock is behind learns that its slot was taken: [`Reservation::bind`] and
//! [`Token::renew`] fail with [`TokenError::Lost`].
//!
//! Use a global table in one region only: writes in two regions can take the same slot.

mod error;
mod reserve;
mod slot_cache;
mod token;

use std::{
    collections::BTreeMap,
    fmt,
    future::IntoFuture,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_sdk_dynamodb::Client;
use futures::future::BoxFuture;
use tidegate_aws::{
    slots::{HeldToken, Slots},
    token_limits::{TokenLimit, TokenLimits},
    token_tables::TokenTables,
};
use tidegate_domain::token_limits::LimitKey;
use tokio::runtime::Handle;

use self::reserve::Shared;
pub use self::{
    error::{ReservationDenied, ReserveError, TokenError},
    token::{Reservation, Token},
};
use crate::{
    clock::Clock,
    error::InvalidRequest,
    limit_cache::{LimitCache, checked_coordinate},
    limiter::with_timeouts,
    metrics,
    table_error::TableError,
};

/// The longest owner that is stored, in bytes: each read of a slot pays for it.
const LONGEST_OWNER: usize = 64;

/// Reserves tokens. Cheap to clone: all clones share what they know.
#[derive(Clone)]
pub struct Reservations {
    shared: Arc<Shared>,
}

/// The settings of [`Reservations`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct ReservationsBuilder {
    client: Client,
    tables: TokenTables,
    defaults: BTreeMap<String, TokenLimit>,
    /// `None` if tokens of Python clients are not counted before each take.
    margin: Option<u32>,
    owner: Option<String>,
    clock: Clock,
}

/// A request for a token. It is sent when it is awaited.
///
/// Made by [`Reservations::reserve`].
#[must_use = "nothing is reserved before the request is awaited"]
#[derive(Clone)]
pub struct ReserveBuilder {
    shared: Arc<Shared>,
    key: Result<LimitKey, InvalidRequest>,
    deadline: Option<tokio::time::Instant>,
}

/// A live token of a Rust or Python client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The id of the resource that runs. `None` while the token is a reservation.
    pub resource_id: Option<String>,
    /// The [owner](ReservationsBuilder::owner) that its client was built with. `None` for tokens of Python clients.
    pub owner: Option<String>,
    /// When it was reserved. `None` for tokens of Python clients.
    pub since: Option<SystemTime>,
    /// When it becomes free, unless it is renewed or freed before.
    pub expires: SystemTime,
}

impl Reservations {
    /// Starts to build a client of these tables.
    pub fn builder(client: Client, tables: TokenTables) -> ReservationsBuilder {
        ReservationsBuilder {
            client,
            tables,
            defaults: BTreeMap::new(),
            margin: Some(0),
            owner: None,
            clock: Clock::system(),
        }
    }

    /// Starts a request for a token of an account on a resource. Await the builder to send it.
    ///
    /// A resource is a name without a colon. Both names have at most 1,000 bytes.
    ///
    /// Dropping the future frees a token that it took.
    pub fn reserve(&self, resource: impl AsRef<str>, account: impl AsRef<str>) -> ReserveBuilder {
        let key = checked_coordinate(resource.as_ref(), account.as_ref());
        ReserveBuilder { shared: Arc::clone(&self.shared), key, deadline: None }
    }

    /// Lists the tokens that an account holds, those of Python clients included.
    ///
    /// # Errors
    /// [`ReserveError::Invalid`] for a wrong name, [`ReserveError::Table`] if the table cannot be read.
    pub async fn list(&self, resource: impl AsRef<str>, account: impl AsRef<str>) -> Result<Vec<Held>, ReserveError> {
        let key = checked_coordinate(resource.as_ref(), account.as_ref())?;
        let tokens = self.shared.list(&key).await?;
        Ok(tokens.into_iter().map(Held::from).collect())
    }

    /// Returns a token that this or another process has bound, by its [id](Token::id), to renew or release it. This makes
    /// no call.
    ///
    /// # Errors
    /// [`InvalidRequest`] if the id is not that of a token, or a name is wrong.
    pub fn token(
        &self,
        resource: impl AsRef<str>,
        account: impl AsRef<str>,
        id: impl AsRef<str>,
    ) -> Result<Token, InvalidRequest> {
        Token::find(&self.shared, checked_coordinate(resource.as_ref(), account.as_ref())?, id.as_ref())
    }

    /// Waits until no write is running, such as those of dropped reservations and cancelled calls.
    ///
    /// Call it before the process ends. In a Lambda function, call it before the response.
    pub async fn flush(&self) {
        self.shared.background.flush().await;
    }
}

impl ReservationsBuilder {
    /// Sets the limit of accounts without a row in the table of limits. 0 blocks them. Limits above 1,000,000 count as
    /// 1,000,000.
    pub fn default_limit(mut self, resource: impl Into<String>, limit: u32) -> Self {
        self.defaults.insert(resource.into(), TokenLimit { tokens: limit.into(), window: None });
        self
    }

    /// Sets the owner that [`Reservations::list`] shows, such as the name of a service or a host. Only the first 64 bytes are
    /// stored.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        let mut owner = owner.into();
        owner.truncate(owner.floor_char_boundary(LONGEST_OWNER));
        self.owner = Some(owner);
        self
    }

    /// Keeps this number of tokens of each limit free for Python clients that count at the same time. At least one token of a limit
    /// can be taken. It undoes [`only_rust_clients`](Self::only_rust_clients).
    pub fn margin(mut self, tokens: u32) -> Self {
        self.margin = Some(tokens);
        self
    }

    /// Declares that no Python client uses these tables. Then a reservation usually takes one write, and no margin is kept.
    /// The tokens of other clients are counted once in five seconds, and before a request is denied.
    pub fn only_rust_clients(mut self) -> Self {
        self.margin = None;
        self
    }

    /// Takes the time from a clock that a test moves.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Builds the client, without a call.
    ///
    /// It writes in tasks of the Tokio runtime in which this is called, so it must not outlive that runtime. An attempt
    /// of a call times out after two seconds, unless the SDK's client has timeouts of its own.
    ///
    /// # Panics
    /// If it is called outside of a Tokio runtime.
    #[must_use]
    pub fn build(self) -> Reservations {
        let Self { client, tables, defaults, margin, owner, clock } = self;
        let client = with_timeouts(&client);
        let limits = TokenLimits::new(client.clone(), tables.limits);
        let limits = LimitCache::new(limits, defaults, clock.clone());
        let slots = Slots::new(client, tables.non_fungible);
        Reservations { shared: Shared::new(slots, limits, margin, owner, clock, Handle::current()) }
    }
}

impl ReserveBuilder {
    /// If all tokens are held, tries again until the deadline, which is Tokio's [`Instant`](tokio::time::Instant). Without a
    /// deadline, the request is denied at once.
    ///
    /// It waits 0.05 to 5 seconds between attempts, longer each time. Callers that wait in one process share their denials
    /// for a second. They are not served in order. An error of the table ends the wait. If the table has not answered at the
    /// deadline, the result is [`ReserveError::TimedOut`].
    pub fn until(mut self, deadline: tokio::time::Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

impl IntoFuture for ReserveBuilder {
    type Output = Result<Reservation, ReserveError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { shared, key, deadline } = self;
            let reserved = match key {
                Ok(key) => shared.reserve_until(&key, deadline).await,
                Err(error) => Err(error.into()),
            };
            metrics::reserved(&reserved);
            reserved
        })
    }
}

impl From<HeldToken> for Held {
    fn from(token: HeldToken) -> Self {
        let HeldToken { resource, owner, since, expires, .. } = token;
        Self {
            resource_id: resource,
            owner,
            since: since.map(|since| UNIX_EPOCH + Duration::from_millis(since.get().unsigned_abs())),
            expires: time(expires),
        }
    }
}

/// A moment in epoch seconds.
fn time(seconds: i64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds.unsigned_abs())).unwrap_or(UNIX_EPOCH)
}

impl Shared {
    async fn list(&self, key: &LimitKey) -> Result<Vec<HeldToken>, TableError> {
        let listed = self.slots.list(reserve::coordinate(key), self.clock.moment().now).await;
        listed.map_err(|error| TableError::new(self.slots.table(), error))
    }
}

impl fmt::Debug for Reservations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservations").field("table", &self.shared.slots.table()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReserveBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReserveBuilder")
            .field("key", &self.key)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
