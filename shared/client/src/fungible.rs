//! Fungible tokens: a token bucket for each resource and account, in the tables of
//! [rate-limiter-py](https://pypi.org/project/rate-limiter-py/).
//!
//! A limit of `limit` tokens per window has two sources: the account's row in the limits table, or
//! [`default_limit`](FungibleBuilder::default_limit). A bucket holds at most `limit` tokens. It starts full, and `limit`
//! tokens accrue in each window.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::{
//!     TokenTables,
//!     fungible::{Fungible, TakeError},
//! };
//!
//! # async fn example(dynamodb: aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let fungible = Fungible::builder(dynamodb, TokenTables::of("prod"))
//!     .default_limit("emr-api", 10, Duration::from_secs(60))
//!     .build();
//!
//! match fungible.take("emr-api", "123456789012", 1).await {
//!     Ok(taken) => println!("{} tokens are left", taken.remaining()),
//!     Err(TakeError::Denied(denied)) => println!("try again in {:?}", denied.retry_after()),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What a take guarantees
//!
//! - While only this crate's clients use a row, they take at most `limit + elapsed * limit / window` tokens in any
//!   period, as far as their clocks agree. A take is denied only if the bucket lacks the tokens.
//! - A take is charged at most once. If its response is lost, the client reads the row. If that does not tell whether the
//!   charge happened, the take fails with [`TakeError::Lost`]: count the tokens as taken.
//! - If a clock was far ahead, nothing accrues until the other clocks reach the moment that it has stored.
//!   [`Fungible::release_refill`] and the next take repair the row.
//! - If a caller is cancelled, its write still finishes, and the charge stays. Tokens cannot be given back. A take counts at
//!   some moment between its request and its response.
//! - A cached row can deny a take, for at most a second, but never admits one.
//!
//! # Beside Python clients
//!
//! rate-limiter-py 0.3.0 sets the tokens to `limit - 1` after each take, so it limits almost nothing, and a row that it
//! refills is not limited, whatever this crate does. With [`exact_beside_python`](FungibleBuilder::exact_beside_python),
//! only this crate refills:
//!
//! - Each row that it creates, adopts or refills gets a `lastRefill` in the year 9999. A Python client refills only if
//!   `lastRefill` lies in the past.
//! - Takes of Python clients count. From the first such write on, clients of both kinds together take at most
//!   `limit + elapsed * limit / window` tokens, plus the takes of Python's fail-safe.
//! - Python's fail-safe takes one token per `window / limit` even from an empty row. Such takes make `tokens` negative, and
//!   later accrual pays for them. If no client of this crate runs, Python clients have the stored tokens and then the
//!   fail-safe. A schedule that calls [`Fungible::refill`] gives them the rest.
//! - The row stores the time of the last take only. What Python clients took since the last write of this crate counts from
//!   that time. So a bucket that was full in between gets up to two limits fewer tokens than it would have by the exact
//!   times. The fail-safe waits for whole milliseconds: at more than one token per millisecond it takes more than accrues.
//! - [`Fungible::release_refill`] undoes it for a row.
//!
//! Run Python clients with `TZ=UTC`: rate-limiter-py treats local time as UTC, and otherwise exceeds the limit.
//!
//! # What an operation costs
//!
//! Calls, read units and write units, for a row of at most a kilobyte, and with rate-limiter-py 0.3.0:
//!
//! | operation | this crate | rate-limiter-py |
//! |---|---|---|
//! | take, of stored tokens or with a refill | 1 call, 1 WCU | 3 calls, 0.5 RCU, 2 WCU |
//! | take, limit not read for five seconds | 2 calls, 0.5 RCU, 1 WCU | 3 calls, 0.5 RCU, 2 WCU |
//! | take, another process has refilled since | 2 calls, 2 WCU | 3 calls, 0.5 RCU, 2 WCU |
//! | take from a full bucket, with others | 2 to 4 calls, 2 to 4 WCU | 3 calls, 0.5 RCU, 2 WCU |
//! | first take of a process | 3 calls, 1 RCU, 1 WCU | 3 calls, 0.5 RCU, 2 WCU |
//! | denied | 1 call, 0.5 RCU | 2 calls, 0.5 RCU, 1 WCU |
//! | denied again within a second | none | 2 calls, 0.5 RCU, 1 WCU |

mod error;
mod rows;

use std::{collections::BTreeMap, fmt, future::IntoFuture, sync::Arc, time::Duration};

use aws_sdk_dynamodb::Client;
use futures::future::BoxFuture;
use tidegate_aws::{
    token_limits::{TokenLimit, TokenLimits},
    token_rows::TokenRows,
    token_tables::TokenTables,
};
use tidegate_domain::token_limits::LimitKey;
use tokio::{runtime::Handle, time::Instant};

pub use self::error::{TakeError, TokensDenied};
use self::rows::Rows;
use crate::{
    clock::Clock,
    error::InvalidRequest,
    limit_cache::{LimitCache, checked_key},
    limiter::with_timeouts,
    metrics,
};

/// Takes fungible tokens. Cheap to clone: all clones share their caches.
#[derive(Clone)]
pub struct Fungible {
    rows: Arc<Rows>,
}

/// The settings of [`Fungible`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `build`"]
pub struct FungibleBuilder {
    client: Client,
    tables: TokenTables,
    defaults: BTreeMap<String, TokenLimit>,
    seals: bool,
    clock: Clock,
}

/// A request for fungible tokens. It is sent when it is awaited.
///
/// Made by [`Fungible::take`].
#[must_use = "nothing is taken before the request is awaited"]
#[derive(Clone, Debug)]
pub struct TakeBuilder {
    fungible: Fungible,
    /// A mistake is reported when the request is awaited.
    key: Result<LimitKey, InvalidRequest>,
    tokens: u64,
    deadline: Option<Instant>,
}

/// Tokens that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    remaining: u64,
}

impl Fungible {
    /// Starts to build a client of the token tables. It uses the tables of fungible tokens and of limits.
    pub fn builder(client: Client, tables: TokenTables) -> FungibleBuilder {
        FungibleBuilder { client, tables, defaults: BTreeMap::new(), seals: false, clock: Clock::system() }
    }

    /// Starts a request for whole tokens of a resource for an account. Await the builder to send it.
    ///
    /// The names have 1 to 1,000 bytes.
    ///
    /// # Errors
    /// When it is awaited: [`TakeError::Denied`] if there are too few tokens now, and the other variants.
    pub fn take(&self, resource: impl AsRef<str>, account: impl AsRef<str>, tokens: u64) -> TakeBuilder {
        let key = checked_key(resource.as_ref(), account.as_ref());
        TakeBuilder { fungible: self.clone(), key, tokens, deadline: None }
    }

    /// Credits what has accrued, and takes nothing. It creates a missing row. If nothing changes, it writes nothing.
    ///
    /// Call it from a schedule if Python clients use rows whose refill this crate has taken over, so that they find tokens
    /// while no client of this crate takes any. For a blocked account, it does nothing.
    ///
    /// # Errors
    /// [`TakeError::UnknownLimit`] or [`TakeError::UnknownWindow`] without a limit, [`TakeError::Invalid`] for wrong
    /// names, and [`TakeError::Table`] if a call fails. After an error, the call can be repeated.
    pub async fn refill(&self, resource: impl AsRef<str>, account: impl AsRef<str>) -> Result<(), TakeError> {
        self.rows.refill(&checked_key(resource.as_ref(), account.as_ref())?).await
    }

    /// Waits until no write is running, such as those of cancelled callers.
    ///
    /// Call it before the process ends. In a Lambda function, call it before the response.
    pub async fn flush(&self) {
        self.rows.background.flush().await;
    }

    /// Lets Python clients refill a row again, and removes this crate's attributes from it. A row without them stays as it
    /// is, so the call can be repeated.
    ///
    /// First stop the clients with [`exact_beside_python`](FungibleBuilder::exact_beside_python): the next write of such a
    /// client takes the refill over again.
    ///
    /// # Errors
    /// [`TakeError::Invalid`] for wrong names, and [`TakeError::Table`] if the call fails.
    pub async fn release_refill(&self, resource: impl AsRef<str>, account: impl AsRef<str>) -> Result<(), TakeError> {
        self.rows.release(&checked_key(resource.as_ref(), account.as_ref())?).await
    }
}

impl FungibleBuilder {
    /// Sets the limit of accounts without a row in the limits table, in tokens per window. The window also applies to rows
    /// without one. A limit of 0 blocks the accounts.
    pub fn default_limit(mut self, resource: impl Into<String>, tokens: u64, window: Duration) -> Self {
        self.defaults.insert(resource.into(), TokenLimit { tokens, window: Some(window) });
        self
    }

    /// Takes over the refill of every row that this client writes, of all resources, so that the limit also holds for Python
    /// clients: see the [module](self#beside-python-clients).
    pub fn exact_beside_python(mut self) -> Self {
        self.seals = true;
        self
    }

    /// Lets the client take the time from a clock that a test moves.
    #[cfg(feature = "test-util")]
    pub fn clock(mut self, clock: crate::ManualClock) -> Self {
        self.clock = Clock::Manual(clock);
        self
    }

    /// Builds the client. It makes no call.
    ///
    /// It writes in tasks of the Tokio runtime in which this is called, so it must not outlive that runtime. An attempt of a
    /// call times out after two seconds, unless the SDK's client has timeouts of its own. Takes are sent once; reads are
    /// retried for up to ten seconds.
    ///
    /// # Panics
    /// If it is called outside of a Tokio runtime.
    #[must_use]
    pub fn build(self) -> Fungible {
        let Self { client, tables, defaults, seals, clock } = self;
        let client = with_timeouts(&client);
        let limits = LimitCache::new(TokenLimits::new(client.clone(), tables.limits), defaults, clock.clone());
        let rows = TokenRows::new(client, tables.fungible);
        Fungible { rows: Arc::new(Rows::new(rows, limits, clock, seals, Handle::current())) }
    }
}

impl TakeBuilder {
    /// Waits for tokens until the deadline, which is Tokio's [`Instant`]. Without a deadline, a request is denied at once.
    ///
    /// Callers of this process that wait for the same row stand in line. Callers without a deadline, and other processes,
    /// may take tokens first. The deadline ends the wait, and no call that is under way.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn send(self) -> Result<Taken, TakeError> {
        let Self { fungible, key, tokens, deadline } = self;
        let key = key?;
        if tokens == 0 {
            let LimitKey { resource, account } = key;
            return Err(InvalidRequest::NoTokens { resource, account }.into());
        }
        match deadline {
            None => fungible.rows.take(&key, tokens).await,
            Some(deadline) => fungible.rows.take_until(&key, tokens, deadline).await,
        }
    }
}

impl IntoFuture for TakeBuilder {
    type Output = Result<Taken, TakeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let taken = self.send().await;
            metrics::taken(&taken);
            taken
        })
    }
}

impl Taken {
    /// Returns the tokens that the row stored right after the take.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl fmt::Debug for Fungible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fungible").field("table", &self.rows.table()).finish_non_exhaustive()
    }
}
