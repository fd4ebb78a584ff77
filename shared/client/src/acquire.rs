//! A request for tokens: from which shards it takes them, with its parent, and how long it waits.

use std::{borrow::Cow, future::IntoFuture, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join};
use tidegate_domain::{
    admission::{Amounts, Remedy, Shortage},
    bucket::Entity,
    tokens::Millitokens,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    bucket::{Bucket, Choice},
    core::{Core, Name},
    error::{AcquireError, DecidedBy, Denied, InvalidRequest, LimitStatus, Unavailable},
    lane::{Reply, TakeRequest},
    lease::{Grant, Lease},
    limiter::{Limiter, OnUnavailable},
    names, several,
};

/// How many shards are asked, one after the other, before a request is denied: as many as other clients ask.
const SHARDS: usize = 3;

/// How often a request is tried again while partitions are busy.
const BUSY_ATTEMPTS: u32 = 8;

/// A request for tokens of one entity on one resource. It is sent when it is awaited.
///
/// Made by [`Limiter::acquire`].
#[must_use = "nothing is taken before the request is awaited"]
#[derive(Clone, Debug)]
pub struct AcquireBuilder<'l> {
    limiter: &'l Limiter,
    entity: Cow<'l, str>,
    resource: Cow<'l, str>,
    amounts: Vec<(Cow<'l, str>, u64)>,
    deadline: Option<Instant>,
}

impl<'l> AcquireBuilder<'l> {
    pub(crate) fn new(limiter: &'l Limiter, entity: Cow<'l, str>, resource: Cow<'l, str>) -> Self {
        Self { limiter, entity, resource, amounts: Vec::new(), deadline: None }
    }

    /// Asks for whole tokens of a limit. Amounts of the same limit add up. An amount of 0 takes nothing, but requires
    /// that the limit exists.
    pub fn take(mut self, limit: impl Into<Cow<'l, str>>, tokens: u64) -> Self {
        self.amounts.push((limit.into(), tokens));
        self
    }

    /// Waits for tokens until the deadline. Callers that wait for the same bucket are served in the order of their
    /// arrival. Without a deadline, a request is denied at once.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    async fn send(self) -> Result<Lease, AcquireError> {
        let core = &self.limiter.core;
        let name = Name { entity: names::entity(&self.entity)?, resource: names::resource(&self.resource)? };
        let amounts = amounts(&name, &self.amounts)?;
        let acquired = match self.deadline {
            None => acquire(core, &name, &amounts).await,
            Some(deadline) => acquire_until(core, &name, &amounts, deadline).await,
        };
        match acquired {
            Ok(grants) => Ok(Lease::new(grants)),
            Err(AcquireError::Unavailable(error)) => match self.limiter.on_unavailable {
                OnUnavailable::Deny => Err(error.into()),
                OnUnavailable::Allow => {
                    tracing::warn!(entity = %self.entity, resource = %self.resource, error = %error, "admitted without the table");
                    Ok(Lease::degraded())
                }
            },
            Err(error) => Err(error),
        }
    }
}

impl<'l> IntoFuture for AcquireBuilder<'l> {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = BoxFuture<'l, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

fn amounts(name: &Name, taken: &[(Cow<'_, str>, u64)]) -> Result<Amounts<'static>, InvalidRequest> {
    let mut amounts = Amounts::new();
    for (limit, tokens) in taken {
        let overflow = || InvalidRequest::Amount { limit: limit.to_string(), amount: *tokens };
        let millitokens =
            i64::try_from(*tokens).ok().and_then(|tokens| tokens.checked_mul(1000)).ok_or_else(overflow)?;
        let sum = amounts.entry(names::limit(limit)?).or_default();
        *sum = Millitokens::new(sum.get().checked_add(millitokens).ok_or_else(overflow)?);
    }
    if amounts.is_empty() {
        return Err(InvalidRequest::Empty { entity: name.entity.to_string(), resource: name.resource.to_string() });
    }
    Ok(amounts)
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
        return acquire(core, name, amounts).await;
    };
    loop {
        let denied = match acquire(core, name, amounts).await {
            Err(AcquireError::Denied(denied)) => denied,
            other => return other,
        };
        if Instant::now() + denied.retry_after() > deadline {
            return Err(AcquireError::Denied(denied));
        }
        core.clock.sleep(denied.retry_after()).await;
    }
}

/// Takes tokens of a bucket, and of its parent if consumption cascades. What only one of them grants is given back when
/// its grants are dropped.
async fn acquire(core: &Arc<Core>, name: &Name, amounts: &Amounts<'static>) -> Result<Vec<Grant>, AcquireError> {
    let bucket = core.bucket(name);
    let of = |entity: &Entity<'static>| core.bucket(&Name { entity: entity.clone(), resource: name.resource.clone() });
    let expected = bucket.parent();
    let (mut grants, parents) = match &expected {
        None => (take(core, &bucket, amounts).await?, Vec::new()),
        Some(parent) => {
            let parent = of(parent);
            match join(take(core, &bucket, amounts), take(core, &parent, amounts)).await {
                (Ok(own), Ok(parents)) => (own, parents),
                (Err(AcquireError::Denied(own)), Err(AcquireError::Denied(parents))) => {
                    return Err(both(own, parents).into());
                }
                (Err(error), _) | (_, Err(error)) => return Err(error),
            }
        }
    };
    // The item says who the parent is: it is not known before the first acquire, and may have changed.
    let actual = grants.iter().find_map(|grant| grant.parent.clone());
    if actual == expected {
        grants.extend(parents);
    } else if let Some(actual) = actual {
        drop(parents);
        grants.extend(take(core, &of(&actual), amounts).await?);
    }
    Ok(grants)
}

/// The denial of an entity and its parent.
fn both(mut own: Denied, parents: Denied) -> Denied {
    own.retry_after = own.retry_after.max(parents.retry_after);
    own.limits.extend(parents.limits);
    own
}

impl From<Denied> for AcquireError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// Takes tokens of one bucket.
async fn take(core: &Arc<Core>, bucket: &Arc<Bucket>, amounts: &Amounts<'static>) -> Result<Vec<Grant>, AcquireError> {
    let mut tried = Vec::new();
    let mut denial = None;
    let mut busy = 0;
    while tried.len() < SHARDS {
        let shard = match bucket.choose(amounts, &tried, core.now()) {
            Choice::Shard(shard) => shard,
            Choice::AllDry(shortages) => {
                denial = sooner(denial, (shortages, DecidedBy::Cache));
                break;
            }
        };
        let (reply, answer) = oneshot::channel();
        bucket.take(core, shard, TakeRequest { amounts: amounts.clone(), reply });
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
            Ok(Reply::Moved) => tried.clear(),
            Ok(Reply::Busy(error)) => {
                busy += 1;
                if busy == BUSY_ATTEMPTS {
                    return Err(error.into());
                }
                Box::pin(core.relieve(bucket, busy)).await?;
            }
            Err(panicked) => return Err(Unavailable::new(panicked).into()),
        }
    }
    let Some((shortages, decided_by)) = denial else { return Err(Unavailable::new(NoShard).into()) };
    match shortages.iter().map(|of| of.remedy).max() {
        Some(Remedy::SeveralShards) => Box::pin(several::take(core, bucket, amounts)).await,
        _ => Err(refusal(bucket, &shortages, decided_by)),
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
    AcquireError::Denied(Denied {
        retry_after: waits.max().unwrap_or(Duration::from_secs(1)),
        limits: shortages.iter().map(|shortage| LimitStatus::new(entity, shortage)).collect(),
        decided_by,
    })
}

/// The bucket has no shard to ask.
#[derive(Debug, thiserror::Error)]
#[error("the bucket's shards have changed again and again")]
struct NoShard;
