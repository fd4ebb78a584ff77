//! A request for tokens: from which shards it takes them, with its parent, and how long it waits.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join};
use tidegate_domain::{
    admission::{Amounts, Remedy, Shortage},
    bucket::Entity,
    tokens::Millitokens,
};
use tokio::{sync::oneshot, time::Instant};
use tracing::Instrument as _;

use crate::{
    bucket::{Bucket, Choice},
    check::{self, Availability},
    core::{Core, Name},
    error::{AcquireError, DecidedBy, Denied, InvalidRequest, LimitStatus, Unavailable},
    lane::{Busy, Reply, TakeRequest},
    lease::{Grant, Lease},
    limiter::{Limiter, OnUnavailable},
    metrics, names, several, shards,
};

/// How many shards are asked, one after the other, before a request is denied: as many as other clients ask.
const SHARDS: usize = 3;

/// How often a request is tried while partitions are busy.
const BUSY_ATTEMPTS: usize = 8;

/// The attempt at which the shards of a bucket are doubled, if its partition is too hot.
const DOUBLE_AT: usize = 4;

/// How often a request restarts because the number of shards has changed.
const MOVES: u32 = 4;

/// When to try again if the bucket's partitions take no more writes.
const BUSY: Duration = Duration::from_millis(100);

/// When to try again if the deadline passed while earlier callers waited.
const IN_LINE: Duration = Duration::from_secs(1);

/// A request for tokens of one entity on one resource. It is sent when it is awaited.
///
/// Made by [`Limiter::acquire`].
#[must_use = "nothing is taken before the request is awaited"]
#[derive(Clone, Debug)]
pub struct AcquireBuilder {
    limiter: Limiter,
    /// The first mistake is reported when the request is awaited.
    request: Result<Request, InvalidRequest>,
    deadline: Option<Instant>,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) name: Name,
    pub(crate) amounts: Amounts<'static>,
}

impl AcquireBuilder {
    pub(crate) fn new(limiter: Limiter, entity: &str, resource: &str) -> Self {
        let request = Name::checked(entity, resource).map(|name| Request { name, amounts: Amounts::new() });
        Self { limiter, request, deadline: None }
    }

    /// Asks for whole tokens of a limit. Amounts of the same limit add up. An amount of 0 takes nothing, but requires
    /// that the limit exists.
    pub fn take(mut self, limit: impl AsRef<str>, tokens: u64) -> Self {
        self.request = self.request.and_then(|request| request.with(limit.as_ref(), tokens));
        self
    }

    /// Waits for tokens until the deadline, which is Tokio's [`Instant`]. Without a deadline, a request is denied at once.
    ///
    /// Callers that wait for the same bucket stand in line, whatever limits they ask for, and are served in the order of
    /// their arrival. Callers without a deadline do not stand in line: they may take tokens first. If the table has not
    /// answered at the deadline, the request is denied. An error of the table ends the wait at once.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Looks at what the bucket and its parent's can grant, without taking. The deadline has no effect.
    ///
    /// It reads shard 0, and the other shards if there are any: one or two calls for each bucket, and one more if its
    /// limits are not cached. Other callers can take
    /// tokens at any time, so an acquire right after it can still be denied.
    ///
    /// # Errors
    /// As for the request itself, except that too few tokens are no error.
    pub async fn check(self) -> Result<Availability, AcquireError> {
        let Request { name, amounts } = self.request?;
        check::check(&self.limiter.core, &name, &amounts).await
    }

    async fn send(self) -> Result<Lease, AcquireError> {
        let Self { limiter, request, deadline } = self;
        let Request { name, amounts } = request?.not_empty()?;
        let core = &limiter.core;
        let span = tracing::debug_span!("acquire", entity = %name.entity, resource = %name.resource);
        let acquired = async {
            match deadline {
                None => acquire(core, &name, &amounts).await,
                Some(deadline) => acquire_until(core, &name, &amounts, deadline).await,
            }
        };
        match acquired.instrument(span).await {
            Ok(grants) => Ok(Lease::new(grants)),
            // The table answers. To admit the request now would switch the limit off under load.
            Err(AcquireError::Unavailable(error)) if error.is_busy => {
                tracing::debug!(entity = %name.entity, resource = %name.resource, %error, "the bucket is busy");
                Err(Denied::without_limits(BUSY, DecidedBy::Store).into())
            }
            Err(AcquireError::Unavailable(error)) => unavailable(&limiter, &name, error),
            Err(error) => Err(error),
        }
    }
}

impl IntoFuture for AcquireBuilder {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let acquired = self.send().await;
            metrics::acquired(&acquired);
            acquired
        })
    }
}

impl Request {
    fn with(mut self, limit: &str, tokens: u64) -> Result<Self, InvalidRequest> {
        let sum = self.amounts.entry(names::limit(limit)?).or_default();
        let millitokens = i64::try_from(tokens).ok().and_then(|tokens| tokens.checked_mul(1000));
        match millitokens.and_then(|millitokens| sum.get().checked_add(millitokens)) {
            Some(total) => *sum = Millitokens::new(total),
            None => return Err(InvalidRequest::Amount { limit: limit.to_owned(), amount: tokens }),
        }
        Ok(self)
    }

    fn not_empty(self) -> Result<Self, InvalidRequest> {
        let Name { entity, resource } = &self.name;
        if self.amounts.is_empty() {
            return Err(InvalidRequest::Empty { entity: entity.to_string(), resource: resource.to_string() });
        }
        Ok(self)
    }
}

/// Applies [`OnUnavailable`] to a request that the table did not answer.
fn unavailable(limiter: &Limiter, name: &Name, error: Unavailable) -> Result<Lease, AcquireError> {
    let Name { entity, resource } = name;
    match limiter.on_unavailable {
        OnUnavailable::Deny => return Err(error.into()),
        OnUnavailable::Allow => {}
        OnUnavailable::Local(per_second) => {
            let core = &limiter.core;
            if let Err(retry_after) = core.bucket(name).admit_locally(per_second, core.moment()) {
                return Err(Denied::without_limits(retry_after, DecidedBy::LocalRate).into());
            }
        }
    }
    tracing::warn!(%entity, %resource, %error, "admitted without the table");
    Ok(Lease::degraded())
}

/// Takes tokens, and waits for them until the deadline.
async fn acquire_until(
    core: &Arc<Core>,
    name: &Name,
    amounts: &Amounts<'static>,
    deadline: Instant,
) -> Result<Vec<Grant>, AcquireError> {
    let bucket = core.bucket(name);
    // The first in line tries and sleeps; the others wait for their turn.
    let Ok(_turn) = tokio::time::timeout_at(deadline, bucket.turn.lock()).await else {
        // It would be unfair to those before it to try now.
        let denied = known_denial(core, &bucket, amounts);
        let in_line = Denied::without_limits(IN_LINE, DecidedBy::Cache);
        return Err(denied.unwrap_or_else(|| in_line.into()));
    };
    let mut busy = 0;
    let mut denied = Denied::without_limits(IN_LINE, DecidedBy::Cache);
    loop {
        // A late response is not an outage.
        let Ok(acquired) = tokio::time::timeout_at(deadline, acquire(core, name, amounts)).await else {
            return Err(denied.into());
        };
        let wait = match &acquired {
            Err(AcquireError::Denied(again)) => {
                denied = again.clone();
                again.retry_after()
            }
            Err(AcquireError::Unavailable(error)) if error.is_busy => {
                busy += 1;
                Core::backoff(busy)
            }
            _ => return acquired,
        };
        if Instant::now() + wait > deadline {
            return acquired;
        }
        if tokio::time::timeout_at(deadline, core.clock.sleep(wait)).await.is_err() {
            return acquired;
        }
    }
}

/// Takes tokens of a bucket, and of its parent if consumption cascades. If only one of them
/// grants, its grants are dropped, which gives the tokens back.
async fn acquire(core: &Arc<Core>, name: &Name, amounts: &Amounts<'static>) -> Result<Vec<Grant>, AcquireError> {
    let bucket = core.bucket(name);
    let of = |entity: &Entity<'static>| core.bucket(&Name { entity: entity.clone(), resource: name.resource.clone() });
    let expected = bucket.parent();
    let (mut grants, parents) = match &expected {
        None => (take(core, &bucket, amounts, false).await?, Vec::new()),
        Some(parent) => {
            let parent = of(parent);
            // If a cached image of one of them denies the request, nothing is taken from the other one.
            match (known_denial(core, &bucket, amounts), known_denial(core, &parent, amounts)) {
                (Some(own), Some(parents)) => return Err(both(own, parents)),
                (Some(error), None) | (None, Some(error)) => return Err(error),
                (None, None) => {}
            }
            match join(take(core, &bucket, amounts, false), take(core, &parent, amounts, true)).await {
                (Ok(own), Ok(parents)) => (own, parents),
                (Err(own), Err(parents)) => return Err(both(own, parents)),
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
    };
    // The item names the parent, which is unknown before the first acquire and may have changed.
    let actual = grants.iter().find_map(|grant| grant.parent.clone());
    if actual == expected {
        grants.extend(parents);
    } else if let Some(actual) = actual {
        drop(parents);
        grants.extend(take(core, &of(&actual), amounts, true).await?);
    }
    Ok(grants)
}

/// The denial that follows from what was seen of all shards of a bucket.
fn known_denial(core: &Core, bucket: &Bucket, amounts: &Amounts<'static>) -> Option<AcquireError> {
    match bucket.choose(amounts, &[], &[], core.moment()) {
        Choice::AllDry(shortages) if shortages.iter().all(|of| matches!(of.remedy, Remedy::Wait(_))) => {
            Some(refusal(bucket, &shortages, DecidedBy::Cache))
        }
        _ => None,
    }
}

/// The error of an entity and its parent: the one that lasts longer.
fn both(own: AcquireError, parents: AcquireError) -> AcquireError {
    let rank = |error: &AcquireError| match error {
        AcquireError::Unavailable(_) => 0,
        AcquireError::Denied(_) => 1,
        _ => 2,
    };
    match (own, parents) {
        (AcquireError::Denied(mut own), AcquireError::Denied(parents)) => {
            own.retry_after = own.retry_after.max(parents.retry_after);
            own.limits.extend(parents.limits);
            own.into()
        }
        (own, parents) if rank(&own) >= rank(&parents) => own,
        (_, parents) => parents,
    }
}

/// Takes tokens of one bucket.
async fn take(
    core: &Arc<Core>,
    bucket: &Arc<Bucket>,
    amounts: &Amounts<'static>,
    is_parent: bool,
) -> Result<Vec<Grant>, AcquireError> {
    let (mut tried, mut busy, mut moves) = (Vec::new(), Vec::new(), 0);
    let mut denial = None;
    while tried.len() < SHARDS {
        let shard = match bucket.choose(amounts, &tried, &busy, core.moment()) {
            Choice::Shard(shard) => shard,
            Choice::AllDry(shortages) => {
                denial = sooner(denial, (shortages, DecidedBy::Cache));
                break;
            }
        };
        let (reply, answer) = oneshot::channel();
        bucket.take(core, shard, TakeRequest { amounts: amounts.clone(), is_parent, reply });
        match answer.await {
            Ok(Reply::Granted(grant)) => return Ok(vec![grant]),
            Ok(Reply::Denied(shortages, decided_by)) => {
                let is_large = shortages.iter().any(|of| of.remedy == Remedy::SeveralShards);
                denial = sooner(denial, (shortages, decided_by));
                tried.push(shard);
                if is_large {
                    break;
                }
            }
            Ok(Reply::Failed(error)) => return Err(error),
            Ok(Reply::Moved) => {
                moves += 1;
                if moves == MOVES {
                    break;
                }
                tried.clear();
            }
            Ok(Reply::Busy(Busy { error, hot_at })) => {
                busy.push(shard);
                if busy.len() == BUSY_ATTEMPTS {
                    return Err(error.into());
                }
                if let Some(shards) = hot_at.filter(|_| busy.len() == DOUBLE_AT) {
                    Box::pin(shards::double(core, bucket, shards)).await;
                }
                core.back_off(u32::try_from(busy.len()).unwrap_or(u32::MAX)).await;
            }
            Err(panicked) => return Err(Unavailable::new(panicked).into()),
        }
    }
    let Some((shortages, decided_by)) = denial else { return Err(Unavailable::busy(NoShard).into()) };
    if shortages.iter().all(|of| of.remedy != Remedy::SeveralShards) {
        return Err(refusal(bucket, &shortages, decided_by));
    }
    if let Some(denial) = several::known_denial(core, bucket, amounts) {
        return Err(denial);
    }
    match Box::pin(several::take(core, bucket, amounts, is_parent)).await? {
        Some(grants) => Ok(grants),
        None => Err(Unavailable::busy(NoShard).into()),
    }
}

/// Of two denials, the one after which a request can be tried sooner.
fn sooner(
    one: Option<(Vec<Shortage<'static>>, DecidedBy)>,
    other: (Vec<Shortage<'static>>, DecidedBy),
) -> Option<(Vec<Shortage<'static>>, DecidedBy)> {
    let wait = |(shortages, _): &(Vec<Shortage<'static>>, _)| shortages.iter().map(|of| of.remedy).max();
    match one {
        Some(one) if other.0.is_empty() || wait(&one) <= wait(&other) => Some(one),
        _ if other.0.is_empty() => None,
        _ => Some(other),
    }
}

/// The error for a request that a bucket denies.
pub(crate) fn refusal(bucket: &Bucket, shortages: &[Shortage<'static>], decided_by: DecidedBy) -> AcquireError {
    let entity = bucket.name.entity.as_str();
    if let Some(never) = shortages.iter().find(|of| of.remedy == Remedy::Never) {
        return AcquireError::Never(LimitStatus::new(entity, never));
    }
    let waits = shortages.iter().filter_map(|of| match of.remedy {
        Remedy::Wait(wait) => Some(wait),
        Remedy::SeveralShards | Remedy::Never => None,
    });
    let known = shortages.iter().filter(|shortage| !shortage.limit.is_write_units());
    AcquireError::Denied(Denied {
        retry_after: waits.max().unwrap_or(IN_LINE),
        limits: known.map(|shortage| LimitStatus::new(entity, shortage)).collect(),
        decided_by,
    })
}

/// The bucket has no shard to ask.
#[derive(Debug, thiserror::Error)]
#[error("the bucket's shards have changed again and again")]
struct NoShard;
