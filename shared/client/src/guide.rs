//! How to limit callers with this crate, one idea after another.
//!
//! Most examples use `Limiter::in_memory`, whose buckets are in the process, so they run without a table.
//!
//! # The ideas
//!
//! **Tokens** pay for requests. A **limit** says how many tokens come back in a period, and how many a full bucket
//! holds. A **bucket** has all limits of one **entity** on one **resource**:
//!
//! - An entity is the caller that is limited: an API key, a customer, a team.
//! - A resource is what the entity uses: an API, a model, a queue.
//! - A limit has a name of your choice, such as `requests` or `tokens`. A request can take from several limits at once. It
//!   gets all that it asks for, or nothing.
//!
//! Tokens come back continuously: a limit of 600 a minute gives one token every 100 milliseconds. A bucket begins full.
//!
//! Buckets are items of a DynamoDB table. All processes that use the table share them, whether they are written in Rust with
//! this crate or in Python with zae-limiter. A bucket that is used very often is spread over several items, its **shards**,
//! because DynamoDB writes to one item at most 1,000 times a second. You do not see shards: a request takes from any of
//! them, or from several.
//!
//! An acquire returns a **lease**: the tokens that were taken. They are taken already when you get it.
//!
//! # Your first limiter
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::{AcquireError, Limit, Limiter};
//!
//! let limiter = Limiter::in_memory([Limit::per_minute("requests", 60).burst(2)]).build().await?;
//!
//! for expect in [true, true, false] {
//!     match limiter.acquire("key-1", "search").take("requests", 1).await {
//!         Ok(_lease) => assert!(expect),
//!         Err(AcquireError::Denied(denied)) => {
//!             assert!(!expect);
//!             println!("try again in {:?}", denied.retry_after()); // about a second
//!         }
//!         Err(error) => return Err(error.into()),
//!     }
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! The errors of an acquire tell you what to do:
//!
//! | error | what it means |
//! |---|---|
//! | [`Denied`](crate::AcquireError::Denied) | There are too few tokens now, or the bucket accepts no more writes for the moment. `retry_after` says how long to wait. |
//! | [`Never`](crate::AcquireError::Never) | The request is larger than the bucket. Waiting does not help. |
//! | [`Disabled`](crate::AcquireError::Disabled) | An operator refuses this entity or resource. |
//! | [`UnknownLimit`](crate::AcquireError::UnknownLimit), [`NotConfigured`](crate::AcquireError::NotConfigured) | Limits are missing in the configuration. |
//! | [`Invalid`](crate::AcquireError::Invalid) | A name or an amount is wrong. Nothing was sent. |
//! | [`Unsupported`](crate::AcquireError::Unsupported) | The bucket has a rule of zae-limiter that this crate does not apply. |
//! | [`Rejected`](crate::AcquireError::Rejected) | The table or a permission is missing, or an item is malformed: an operator must act. |
//! | [`Unavailable`](crate::AcquireError::Unavailable) | The table could not be reached, or a response was lost. |
//!
//! On a table, build the limiter once and clone it: clones share connections and caches.
//!
//! ```no_run
//! use tidegate::{Limit, Limiter, Scope};
//!
//! # async fn example(client: aws_sdk_dynamodb::Client) -> Result<(), Box<dyn std::error::Error>> {
//! Limiter::create_table(&client, "limits").await?; // or `sam deploy`, together with the functions
//! let limiter = Limiter::builder(client, "limits").create_namespace().build().await?;
//!
//! limiter.limits().set(Scope::resource("search"), [Limit::per_minute("requests", 600)]).await?;
//! limiter.limits().set(Scope::entity("key-1").on("search"), [Limit::per_minute("requests", 60)]).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The most specific [`Scope`](crate::Scope) that has limits applies, and it applies alone: the limits of two scopes are
//! never mixed.
//!
//! # Waiting
//!
//! A request is denied at once, unless it has a deadline. [`until`](crate::AcquireBuilder::until) waits for tokens. Callers in
//! a process that wait for the same bucket are served in the order of their arrival. A request that cannot succeed before the
//! deadline is denied without waiting.
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate::{Limit, Limiter};
//! use tokio::time::Instant;
//!
//! let limiter = Limiter::in_memory([Limit::per_second("requests", 100).burst(1)]).build().await?;
//!
//! let deadline = Instant::now() + Duration::from_secs(5);
//! for _ in 0..3 {
//!     // The second and the third request wait for 10 milliseconds each.
//!     let _lease = limiter.acquire("key-1", "search").take("requests", 1).until(deadline).await?;
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! [`check`](crate::AcquireBuilder::check) returns what a bucket can grant, without taking anything.
//!
//! # Adjusting
//!
//! Often the cost of a request is known only afterwards. Take an estimate, and adjust the lease by the difference:
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::{Limit, Limiter};
//!
//! let limiter = Limiter::in_memory([Limit::per_minute("tokens", 1_000)]).build().await?;
//!
//! let mut lease = limiter.acquire("key-1", "gpt-4").take("tokens", 500).await?;
//! let used = 420; // reported by the model
//! lease.adjust("tokens", used - 500);
//! lease.commit().await?; // writes the adjustment
//!
//! let available = limiter.acquire("key-1", "gpt-4").check().await?;
//! assert!(available.limits()[0].available >= 580);
//!
//! // Nothing was used: give everything back.
//! limiter.acquire("key-1", "gpt-4").take("tokens", 500).await?.refund().await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! An adjustment is never denied. A bucket may fall below zero, and then grants nothing until it has refilled.
//!
//! [`scope`](crate::Limiter::scope) does both: it commits if the work succeeds, and refunds if the work fails.
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::{Limit, Limiter, ScopeError};
//!
//! let limiter = Limiter::in_memory([Limit::per_hour("tokens", 1_000)]).build().await?;
//!
//! let request = limiter.acquire("key-1", "gpt-4").take("tokens", 500);
//! let failed = limiter.scope(request, async |_lease| Err::<(), _>("the model has failed")).await;
//! assert!(matches!(failed, Err(ScopeError::Work("the model has failed"))));
//!
//! let full = limiter.acquire("key-1", "gpt-4").check().await?;
//! assert_eq!(full.limits()[0].available, 1_000);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! A lease that is dropped keeps its tokens, and its adjustments are written in the background.
//!
//! # Cascades
//!
//! An entity can have a parent. If its consumption cascades, each of its acquires takes the same amounts from the parent's
//! bucket: ten keys of a team share the team's limits, and each has its own. A request is granted only if both buckets grant
//! it. A limit that the parent does not have is left out there. Grandparents are not charged.
//!
//! ```no_run
//! # async fn example(limiter: tidegate::Limiter) -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::{Limit, NewEntity, Scope};
//!
//! limiter.entities().create(NewEntity::new("team-1")).await?;
//! limiter.entities().create(NewEntity::new("key-1").parent("team-1").cascade(true)).await?;
//! limiter.limits().set(Scope::entity("team-1"), [Limit::per_minute("requests", 1_000)]).await?;
//! limiter.limits().set(Scope::entity("key-1"), [Limit::per_minute("requests", 200)]).await?;
//!
//! let _lease = limiter.acquire("key-1", "search").take("requests", 1).await?; // takes one from each
//! # Ok(())
//! # }
//! ```
//!
//! Create an entity before it takes tokens: a bucket that exists keeps its parent until it is refilled.
//!
//! # When the table is unavailable
//!
//! If the table is unavailable, the limiter can refuse requests or admit them without limits. Choose with
//! [`on_unavailable`](crate::LimiterBuilder::on_unavailable):
//!
//! | [`OnUnavailable`](crate::OnUnavailable) | what an acquire returns |
//! |---|---|
//! | `Deny`, the default | [`AcquireError::Unavailable`](crate::AcquireError::Unavailable) |
//! | `Allow` | an empty lease |
//! | `Local(rate)` | an empty lease, at most `rate` times a second for each bucket in each process: `OnUnavailable::Local(50.try_into()?)` |
//!
//! [`Lease::is_degraded`](crate::Lease::is_degraded) returns true for such a lease. If a response is lost, the limiter
//! reads the item to find out whether the tokens were taken. It never takes them twice. If it cannot find out, the acquire
//! fails as unavailable, and the tokens count as taken; a refund counts as not made. So tokens can be lost, but never
//! created.
//!
//! Errors that an operator must correct, such as a missing table or permission, are
//! [`AcquireError::Rejected`](crate::AcquireError::Rejected), whatever `on_unavailable` says.
//!
//! # Shutdown and Lambda
//!
//! Adjustments of dropped leases, and the refunds of acquires that were cancelled, are written in the background. Before a
//! process ends, [`shutdown`](crate::Limiter::shutdown) waits for them. A Lambda function is frozen as soon as it has
//! responded, so call [`flush`](crate::Limiter::flush) before each response:
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # use tidegate::{Limit, Limiter};
//! # let limiter = Limiter::in_memory([Limit::per_hour("tokens", 1_000)]).build().await?;
//! async fn handle(limiter: &Limiter) -> Result<String, tidegate::AcquireError> {
//!     let mut lease = limiter.acquire("key-1", "gpt-4").take("tokens", 500).await?;
//!     lease.adjust("tokens", -80);
//!     Ok("the response".to_owned())
//! }
//!
//! let response = handle(&limiter).await;
//! limiter.flush().await;
//! // Respond now.
//! # assert_eq!(response?, "the response");
//! # assert_eq!(limiter.acquire("key-1", "gpt-4").check().await?.limits()[0].available, 580);
//! # limiter.shutdown().await;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! `lambda.rs` among the examples of this crate is a complete function.
//!
//! # Testing your application
//!
//! The feature `test-util` provides a limiter without a table, and a clock that your test moves. All entities of such a limiter
//! have the same limits on all resources. Its administration is unavailable.
//!
//! ```
//! # #[cfg(feature = "test-util")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use tidegate::{Limit, Limiter, ManualClock};
//!
//! let clock = ManualClock::new(1_767_225_600_000); // milliseconds since 1970
//! let limiter = Limiter::in_memory([Limit::per_minute("requests", 1)]).clock(clock.clone()).build().await?;
//!
//! limiter.acquire("key-1", "search").take("requests", 1).await?;
//! assert!(limiter.acquire("key-1", "search").take("requests", 1).await.is_err());
//! clock.advance(Duration::from_secs(60));
//! limiter.acquire("key-1", "search").take("requests", 1).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "test-util"))]
//! # fn main() {}
//! ```
//!
//! # Middleware
//!
//! With the feature `tower`, `tower::LimitLayer` takes tokens for each HTTP request. Without tokens, it responds with
//! `429 Too Many Requests` and `Retry-After`. It works with all services of the `http` crate, such as those of axum:
//!
//! ```
//! # #[cfg(not(all(feature = "test-util", feature = "tower")))]
//! # fn main() {}
//! # #[cfg(all(feature = "test-util", feature = "tower"))]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Extension, Router, body::Body, http::Request, routing::get};
//! use tidegate::{Limit, Limiter, tower::{LimitLayer, RequestLease}};
//!
//! let limiter = Limiter::in_memory([Limit::per_second("requests", 10)]).build().await?;
//! let layer = LimitLayer::new(move |request: &Request<Body>| {
//!     let key = request.headers().get("x-api-key")?.to_str().ok()?;
//!     Some(limiter.acquire(key, "search").take("requests", 1))
//! });
//! // A handler can adjust what was taken.
//! let search = async |Extension(lease): Extension<RequestLease>| lease.adjust("requests", 2);
//! let service: Router = Router::new().route("/search", get(search)).layer(layer);
//! # drop(service);
//! # Ok(())
//! # }
//! ```
//!
//! # Announcing work
//!
//! With the feature `capacity`, a job tells the function `capacity-coordinator` what it is about to use of a provisioned table,
//! and starts when the table has it. A `capacity::Announcement` that is dropped is released.
//!
//! ```no_run
//! # #[cfg(not(feature = "capacity"))]
//! # fn main() {}
//! # #[cfg(feature = "capacity")]
//! # async fn load() {}
//! # #[cfg(feature = "capacity")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let lambda = aws_sdk_lambda::Client::new(&aws_config::load_from_env().await);
//! use std::time::Duration;
//! use tidegate::capacity::{CapacityKind, Coordinator};
//!
//! let coordinator = Coordinator::new(lambda, "tidegate-capacity-coordinator");
//! let request = coordinator.announce("orders", CapacityKind::Write, 4_000);
//! let announcement = request.caller("nightly-load").lasting(Duration::from_mins(30)).await?;
//! load().await;
//! announcement.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `fleet`, `WorkerBuilder::announce` does this for a worker, instead of a slow start.
//!
//! # Metrics and tracing
//!
//! With the feature `metrics`, the limiter counts through the facade of the [`metrics`](https://docs.rs/metrics) crate:
//!
//! | counter | labels | what it counts |
//! |---|---|---|
//! | `tidegate_acquires_total` | `outcome`: `granted`, `denied`, `never`, `unavailable`, `degraded` or `error` | acquires, except those that were cancelled |
//! | | `decided_by` of denials: `store`, `cache` or `local_rate` | |
//! | `tidegate_reservations_total` | `outcome`: `granted`, `denied`, `blocked`, `unavailable` or `error` | requests for reservations |
//! | `tidegate_fungible_takes_total` | `outcome`: `granted`, `denied`, `never`, `blocked`, `unavailable`, `lost` or `error` | takes of fungible tokens |
//! | `tidegate_writes_total` | `operation`: `take` or `adjust` | writes to one shard, with those that failed |
//! | | `outcome`: `applied`, `refused`, `throttled`, `failed` or `lost` | |
//! | `tidegate_merged_acquires_total` | | acquires that another acquire's write took the tokens for |
//! | `tidegate_adjustments_lost_total` | | adjustments and refunds that may not have been written |
//! | `tidegate_announcements_total` | `outcome`: `ready`, `not_ready`, `refused`, `unavailable` or `error` | requests for capacity, except those that were cancelled |
//! | `tidegate_fleet_calls_total` | `call`: `summary` or `report`; `outcome`: `succeeded` or `failed` | calls of a fleet's worker to its bucket |
//!
//! A fleet's worker also sets the gauges `tidegate_fleet_used_units` and `tidegate_fleet_allowed_units`, by `capacity` (`read` or
//! `write`): what its callers use and may use, in capacity units a second.
//!
//! Each acquire runs in a `tracing` span `acquire` of the level `debug`, with its entity and resource. Warnings are events.
//!
//! # What it costs
//!
//! Calls, read units and write units of one acquire, with limits that are cached (for a minute) and items below 1 KB. The
//! table's indexes cost one more write unit for each write that succeeds, and three when a bucket is created.
//!
//! | operation | calls | read units | write units |
//! |---|---|---|---|
//! | enough tokens are stored | 1 | 0 | 1 |
//! | the bucket must be refilled, and was seen before | 1 | 0 | 1 |
//! | the bucket must be refilled, and was not seen before | 2 | 0 | 2 |
//! | with a parent | twice as many | 0 | twice as many |
//! | denied; a bucket with several shards: up to 3 times | 1 | 0 | 1 |
//! | denied again within a second | 0 | 0 | 0 |
//! | first acquire of a bucket: it is created | 3 | 2.5 | 2 |
//! | limits must be read | +1 | +2.5 | 0 |
//! | adjusted or refunded | +1 | 0 | +1 |
//!
//! At most one write to a shard is under way in a process, except for requests that are larger than one shard. Acquires that arrive meanwhile share the next one. So under
//! load, a process makes one write for many acquires: at 5 milliseconds for a write, at most 200 a second for each shard,
//! however many callers there are.
//!
//! # What this crate does not do
//!
//! - It does not apply schedules, quotas and session windows of zae-limiter. From a bucket that has them, it takes stored
//!   tokens only. It honours soft limits and bypasses that are in effect, and does not renew them. What needs more is
//!   [`AcquireError::Unsupported`](crate::AcquireError::Unsupported), which names the rule.
//! - A request takes from one resource. Acquires of two resources are two requests, and two leases.
//! - Amounts are whole tokens.
//! - Leases do not expire: a process that crashes leaves its tokens taken, and they come back with time.
//! - Callers in different processes are not served in the order of their arrival.
//! - A [`Limiter`](crate::Limiter) limits rates. For the number of jobs that run at the same time, use [`reservation`](crate::reservation).
