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
    error::{CommitError, InvalidRequest, Unavailable},
    give::{Changes, GiveRequest, Given},
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

    /// Changes what was taken. The receiver resolves when the change is written.
    fn change(&self, changes: Changes) -> oneshot::Receiver<Given> {
        let (reply, written) = oneshot::channel();
        self.bucket.give(&self.core, self.shard, GiveRequest { changes, reply });
        written
    }

    fn amounts_back(&self) -> Changes {
        self.amounts.iter().map(|(limit, amount)| (limit.clone(), -amount.get())).collect()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.is_kept && !self.amounts.is_empty() {
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
    /// In millitokens.
    adjustments: Changes,
    /// An adjustment of what cannot be a limit.
    invalid: Option<InvalidRequest>,
    is_degraded: bool,
}

impl Lease {
    pub(crate) fn new(mut grants: Vec<Grant>) -> Self {
        for grant in &mut grants {
            grant.is_kept = true;
        }
        Self { grants, adjustments: Changes::new(), invalid: None, is_degraded: false }
    }

    /// An empty lease, because the table was unavailable.
    pub(crate) fn degraded() -> Self {
        Self { grants: Vec::new(), adjustments: Changes::new(), invalid: None, is_degraded: true }
    }

    /// Returns whether the request was admitted without the table, by
    /// [`on_unavailable`](crate::LimiterBuilder::on_unavailable). Such a lease has taken nothing, and its adjustments
    /// have no effect.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        self.is_degraded
    }

    /// Takes `tokens` more of a limit, or gives them back if the number is below zero. The change is written when
    /// the lease is committed or dropped. The bucket may fall below zero; it then grants nothing until it has refilled.
    ///
    /// A limit that the acquire did not name is adjusted, too.
    pub fn adjust(&mut self, limit: &str, tokens: i64) {
        match crate::names::limit(limit) {
            Ok(limit) => {
                let sum = self.adjustments.entry(limit).or_default();
                *sum = sum.saturating_add(tokens.saturating_mul(1000)).clamp(-MOST, MOST);
            }
            Err(error) => self.invalid = Some(error),
        }
    }

    /// Writes the adjustments, and returns when they are written. Without adjustments, it makes no call.
    ///
    /// # Errors
    /// [`CommitError`] if an adjustment may be missing: the table was unavailable, its response was lost, or there is no
    /// such limit.
    pub async fn commit(mut self) -> Result<(), CommitError> {
        // What is written already must not be written again when the lease is dropped.
        let adjustments = mem::take(&mut self.adjustments);
        let written: Vec<_> =
            self.parts(&adjustments).into_iter().map(|(grant, changes)| (grant, grant.change(changes))).collect();
        wait_for(written).await?;
        self.invalid.take().map_or(Ok(()), |error| Err(error.into()))
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

    /// Gives everything back, without the adjustments. [`Limiter::flush`](crate::Limiter::flush) waits until it is written.
    #[cfg(feature = "tower")]
    pub(crate) fn refund_in_background(mut self) {
        self.adjustments.clear();
        for grant in &self.grants {
            drop(grant.change(grant.amounts_back()));
        }
    }

    /// The adjustments as changes of grants. If several shards of a bucket have granted, each gets back at most what it
    /// has granted: more may not fit into it.
    fn parts(&self, adjustments: &Changes) -> Vec<(&Grant, Changes)> {
        let mut left: Vec<(&Arc<Bucket>, Changes)> = Vec::new();
        let mut changes = Vec::new();
        for (at, grant) in self.grants.iter().enumerate() {
            let is_same = |bucket: &Arc<Bucket>| Arc::ptr_eq(bucket, &grant.bucket);
            if !left.iter().any(|(bucket, _)| is_same(bucket)) {
                left.push((&grant.bucket, adjustments.clone()));
            }
            let is_last = !self.grants[at + 1..].iter().any(|other| is_same(&other.bucket));
            let Some((_, left)) = left.iter_mut().find(|(bucket, _)| is_same(bucket)) else { continue };
            let part = |(limit, sum): (&Limit<'static>, &mut i64)| {
                let granted = grant.amounts.get(limit).map_or(0, |amount| amount.get());
                let part = if is_last || *sum > 0 { *sum } else { (*sum).max(-granted) };
                *sum -= part;
                (part != 0).then(|| (limit.clone(), part))
            };
            let part: Changes = left.iter_mut().filter_map(part).collect();
            if !part.is_empty() {
                changes.push((grant, part));
            }
        }
        changes
    }
}

/// The largest adjustment of a limit, in millitokens: the sums of thousands of them can still be counted.
const MOST: i64 = 1 << 53;

async fn wait_for(written: Vec<(&Grant, oneshot::Receiver<Given>)>) -> Result<(), CommitError> {
    let (mut asked, mut left_out, mut result) = (0, BTreeMap::<_, usize>::new(), Ok(()));
    let mut name = None;
    for (grant, written) in written {
        let Name { entity, resource } = &grant.bucket.name;
        let given = written.await.unwrap_or_else(|closed| Err(Unavailable::new(closed).into()));
        asked += 1;
        name = name.or(Some(&grant.bucket.name));
        match given {
            Ok(limits) => limits.into_iter().for_each(|limit| *left_out.entry(limit).or_default() += 1),
            Err(source) => {
                let (entity, resource) = (entity.to_string(), resource.to_string());
                result = Err(CommitError::NotWritten { entity, resource, source: Box::new(source) });
            }
        }
    }
    result?;
    // A parent may lack limits that its child has.
    let unknown = left_out.into_iter().find(|(_, buckets)| *buckets == asked);
    match unknown.zip(name) {
        Some(((limit, _), Name { entity, resource })) => Err(CommitError::UnknownLimit {
            limit: limit.to_string(),
            entity: entity.to_string(),
            resource: resource.to_string(),
        }),
        None => Ok(()),
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        for (grant, changes) in self.parts(&self.adjustments) {
            drop(grant.change(changes));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.grants.iter().map(|grant| (&grant.bucket.name, grant.shard, &grant.amounts));
        f.debug_struct("Lease")
            .field("taken", &taken.collect::<Vec<_>>())
            .field("adjustments", &self.adjustments)
            .field("invalid", &self.invalid)
            .field("is_degraded", &self.is_degraded)
            .finish()
    }
}
