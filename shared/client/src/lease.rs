//! What was taken, until its real cost is known.

use std::{collections::BTreeMap, fmt, mem, sync::Arc};

use tidegate_domain::{
    admission::Amounts,
    bucket::{Entity, Limit, Shard},
};
use tokio::sync::oneshot;

use crate::{
    bucket::Bucket,
    core::{Core, Name},
    error::{CommitError, Unavailable},
    lane::GiveRequest,
};

/// Tokens that one write took from one shard. Dropped before a lease keeps it, it gives them back.
pub(crate) struct Grant {
    core: Arc<Core>,
    bucket: Arc<Bucket>,
    shard: Shard,
    amounts: Amounts<'static>,
    /// The entity to which the item says that consumption cascades.
    pub(crate) parent: Option<Entity<'static>>,
    is_kept: bool,
}

impl Grant {
    pub(crate) fn new(
        core: &Arc<Core>,
        bucket: &Arc<Bucket>,
        shard: Shard,
        amounts: Amounts<'static>,
        parent: Option<Entity<'static>>,
    ) -> Self {
        Self { core: Arc::clone(core), bucket: Arc::clone(bucket), shard, amounts, parent, is_kept: false }
    }

    /// Changes what was taken. The receiver hears when the change is written.
    fn change(&self, changes: BTreeMap<Limit<'static>, i64>) -> oneshot::Receiver<Result<(), Unavailable>> {
        let (reply, written) = oneshot::channel();
        self.bucket.give(&self.core, self.shard, GiveRequest { changes, reply: Some(reply) });
        written
    }

    fn amounts_back(&self) -> BTreeMap<Limit<'static>, i64> {
        self.amounts.iter().map(|(limit, amount)| (limit.clone(), -amount.get())).collect()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.is_kept {
            drop(self.change(self.amounts_back()));
        }
    }
}

/// Tokens that were granted.
///
/// The tokens are taken when the lease is made. [`adjust`](Self::adjust) corrects the amounts when the real cost is known,
/// and [`commit`](Self::commit) writes the corrections. [`refund`](Self::refund) gives everything back.
///
/// A lease that is dropped keeps its tokens, and its corrections are written in the background:
/// [`Limiter::flush`](crate::Limiter::flush) waits for that.
#[must_use = "a lease that is dropped keeps its tokens"]
pub struct Lease {
    grants: Vec<Grant>,
    adjustments: BTreeMap<Limit<'static>, i64>,
    is_degraded: bool,
}

impl Lease {
    pub(crate) fn new(mut grants: Vec<Grant>) -> Self {
        for grant in &mut grants {
            grant.is_kept = true;
        }
        Self { grants, adjustments: BTreeMap::new(), is_degraded: false }
    }

    /// A lease of nothing, because the table was unavailable.
    pub(crate) fn degraded() -> Self {
        Self { grants: Vec::new(), adjustments: BTreeMap::new(), is_degraded: true }
    }

    /// Returns whether the request was admitted without the table, by
    /// [`on_unavailable`](crate::LimiterBuilder::on_unavailable). Such a lease has taken nothing, and its adjustments
    /// have no effect.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Takes `tokens` more of a limit, or gives them back if the number is below zero. Nothing is written before
    /// [`commit`](Self::commit). The bucket may fall below zero; it then grants nothing until it has refilled.
    ///
    /// A limit that the acquire did not name is adjusted, too. If the bucket does not have the limit, the adjustment has
    /// no effect.
    pub fn adjust(&mut self, limit: &str, tokens: i64) {
        let Ok(limit) = crate::names::limit(limit) else { return };
        let sum = self.adjustments.entry(limit).or_default();
        *sum = sum.saturating_add(tokens.saturating_mul(1000));
    }

    /// Writes the adjustments, and returns when they are written. Without adjustments, it makes no call.
    ///
    /// # Errors
    /// [`CommitError`] if an adjustment may be missing: the table was unavailable, or its response was lost.
    pub async fn commit(mut self) -> Result<(), CommitError> {
        let adjustments = mem::take(&mut self.adjustments);
        if adjustments.values().all(|sum| *sum == 0) {
            return Ok(());
        }
        let written: Vec<_> = self.first_grants().map(|grant| (grant, grant.change(adjustments.clone()))).collect();
        wait_for(written).await
    }

    /// Gives everything back, without the adjustments, and returns when that is written.
    ///
    /// # Errors
    /// [`CommitError`] if tokens may not have been given back: the table was unavailable, or its response was lost.
    pub async fn refund(mut self) -> Result<(), CommitError> {
        self.adjustments.clear();
        let written: Vec<_> = self.grants.iter().map(|grant| (grant, grant.change(grant.amounts_back()))).collect();
        wait_for(written).await
    }

    /// One grant of each bucket: an amount taken from several shards is adjusted on one of them.
    fn first_grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().enumerate().filter_map(|(at, grant)| {
            let is_first = self.grants[..at].iter().all(|other| !Arc::ptr_eq(&other.bucket, &grant.bucket));
            is_first.then_some(grant)
        })
    }
}

async fn wait_for(written: Vec<(&Grant, oneshot::Receiver<Result<(), Unavailable>>)>) -> Result<(), CommitError> {
    let mut result = Ok(());
    for (grant, written) in written {
        let source = match written.await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(closed) => Unavailable::new(closed),
        };
        let Name { entity, resource } = &grant.bucket.name;
        result = Err(CommitError { entity: entity.to_string(), resource: resource.to_string(), source });
    }
    result
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.adjustments.values().any(|sum| *sum != 0) {
            for grant in self.first_grants() {
                drop(grant.change(self.adjustments.clone()));
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.grants.iter().map(|grant| (&grant.bucket.name, grant.shard, &grant.amounts));
        f.debug_struct("Lease")
            .field("taken", &taken.collect::<Vec<_>>())
            .field("adjustments", &self.adjustments)
            .field("is_degraded", &self.is_degraded)
            .finish()
    }
}
