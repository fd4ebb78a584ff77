//! Rate limiting on DynamoDB: takes tokens from token buckets that many processes share.
//!
//! The buckets live in a table of zae-limiter's format, so Rust and Python services can share limits. Tidegate's Lambda
//! functions refill the buckets, spread hot ones over shards, and count usage.
//!
//! ```no_run
//! use tidegate::{AcquireError, Limiter};
//!
//! # async fn example(client: aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(client, "limits").build().await?;
//!
//! match limiter.acquire("key-1", "gpt-4").take("requests", 1).take("tokens", 500).await {
//!     Ok(mut lease) => {
//!         let used = 420;
//!         lease.adjust("tokens", used - 500);
//!         lease.commit().await?;
//!     }
//!     Err(AcquireError::Denied(denied)) => println!("try again in {:?}", denied.retry_after()),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The [guide] explains the ideas behind this crate, one after another, with examples.
//!
//! # What an acquire guarantees
//!
//! - It never admits more than the clients' common rule allows, whatever other clients write: every write is conditional.
//! - It charges at most once. If a response is lost, the limiter reads the item to find out whether the charge happened. It
//!   does not charge again.
//! - It can be cancelled at any await point. Tokens that were taken for a caller that has gone away are given back.
//! - A cache can deny a request, for at most a second, but never admits one.
//!
//! # Administration
//!
//! | method | what it does |
//! |---|---|
//! | [`Limiter::limits`] | sets, reads, deletes and lists limits: a [`Scope`] selects callers, a [`Limit`] sets the rate |
//! | [`Limiter::entities`] | creates, reads and deletes entities, and lists children |
//! | [`Limiter::disable`], [`Limiter::enable`], [`Limiter::clear_disabled`] | refuse all acquires of a scope, admit them again, or leave that to a less specific scope |
//! | [`Limiter::usage`] | reads what was consumed by hour, day or month |
//! | [`Limiter::audit_events`] | reads what operators have changed |
//!
//! All of it is stored as zae-limiter 0.17 stores it. After an error, a call can be repeated. If only its audit event failed,
//! the event is not written again.
//!
//! # The tables of rate-limiter-py
//!
//! The module [`reservation`] limits how many clusters, jobs or sessions an account runs at the same time. The module
//! [`fungible`] limits its calls in a window. Both share their limits with Python services that use rate-limiter-py.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `capacity` | `capacity::Coordinator`, which announces work before it hits a table |
//! | `fleet` | `fleet::Worker`, a member of a fleet that shares a table's capacity, and `fleet::Throttle`, which limits what any DynamoDB client uses |
//! | `tower` | `tower::LimitLayer`, a middleware for HTTP services |
//! | `metrics` | counters, and gauges of a fleet's worker, through the facade of the [`metrics`](https://docs.rs/metrics) crate |
//! | `test-util` | `Limiter::in_memory` and `ManualClock`, for tests of applications |
//!
//! None of them is on by default.

#![warn(missing_docs, clippy::missing_errors_doc, clippy::must_use_candidate)]

mod acquire;
mod administration;
mod audit;
mod background;
mod bucket;
mod cache;
#[cfg(feature = "capacity")]
pub mod capacity;
mod check;
mod clock;
mod core;
mod entities;
mod error;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod fungible;
mod give;
#[cfg(any(doc, feature = "test-util"))]
pub mod guide;
mod lane;
mod lease;
mod limit;
mod limit_cache;
mod limiter;
mod limits;
#[cfg(feature = "test-util")]
mod memory;
mod metrics;
mod monotonic;
mod names;
mod operation_ids;
pub mod reservation;
mod scope;
mod several;
mod shards;
mod shared_call;
mod store;
mod switches;
mod table_error;
mod terms;
#[cfg(feature = "tower")]
pub mod tower;
mod usage;

#[cfg(feature = "test-util")]
pub use self::clock::ManualClock;
pub use self::{
    acquire::AcquireBuilder,
    administration::{AdminError, Reached},
    audit::AuditEvent,
    check::Availability,
    entities::{Entities, Entity, NewEntity},
    error::{
        AcquireError, BuildError, CommitError, DecidedBy, Denied, InvalidRequest, LimitStatus, Rejected, ScopeError,
        Unavailable,
    },
    lease::Lease,
    limit::{InvalidLimit, Limit},
    limiter::{Limiter, LimiterBuilder, OnUnavailable},
    limits::{Limits, ScopeLimits},
    scope::Scope,
    table_error::TableError,
    usage::{Usage, UsageSnapshot, UsageSummary},
};
pub use tidegate_aws::token_tables::{MissingName, TokenTables};
pub use tidegate_domain::window::Window;
