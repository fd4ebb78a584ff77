//! Adjustments and refunds, merged into one write of a shard.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_aws::acquires::{Adjustment, WriteError, Written};
use tidegate_domain::bucket::Limit;
use tokio::sync::oneshot;

use crate::{
    bucket::{Seen, plain},
    error::{AcquireError, Contended, Unavailable},
    lane::{Writer, operation},
    metrics,
};

/// How often a write is tried while other clients write to the same item or the table is throttled.
const ATTEMPTS: u32 = 16;

/// The changes of what was taken, in millitokens by limit. Tokens are given back where a change is below zero.
pub(crate) type Changes = BTreeMap<Limit<'static>, i64>;

/// A change of what was taken.
pub(crate) struct GiveRequest {
    pub(crate) changes: Changes,
    pub(crate) reply: oneshot::Sender<Given>,
}

/// Whether a change was written; with the limits that the bucket does not have.
pub(crate) type Given = Result<BTreeSet<Limit<'static>>, AcquireError>;

impl Writer {
    /// Writes what callers have given back, or have taken beyond their grants.
    pub(crate) async fn give(&self, requests: Vec<GiveRequest>) {
        // An item with rules of its own may refuse one change, which must not be the end of the others.
        let is_plain = self.bucket.seen(self.shard).is_none_or(|seen| plain(&seen.item).is_some());
        let batches = if is_plain { vec![requests] } else { requests.into_iter().map(|one| vec![one]).collect() };
        for batch in batches {
            let mut sums = Changes::new();
            for (limit, change) in batch.iter().flat_map(|request| &request.changes) {
                let sum = sums.entry(limit.clone()).or_default();
                *sum = sum.saturating_add(*change);
            }
            sums.retain(|_, sum| *sum != 0);
            let given = if sums.is_empty() { Ok(BTreeSet::new()) } else { self.adjust(sums).await };
            if let Err(error) = &given {
                tracing::warn!(bucket = ?self.key, %error, "an adjustment may not have been written");
                metrics::adjustments_lost(batch.len());
            }
            for request in batch {
                drop(request.reply.send(given.clone()));
            }
        }
    }

    async fn adjust(&self, mut sums: Changes) -> Given {
        let mut left_out = BTreeSet::new();
        for attempt in 1..=ATTEMPTS {
            let moment = self.core.moment();
            let Some(seen) = self.bucket.seen(self.shard) else {
                match self.core.store.find(&self.key).await? {
                    Some(item) => drop(self.bucket.observe(self.shard, item, moment)),
                    // The bucket has expired, and is full when it is created again.
                    None => return Ok(left_out),
                }
                continue;
            };
            if let Some(state) = seen.item.image.plain() {
                left_out
                    .extend(sums.extract_if(.., |limit, _| !state.limits.contains_key(limit)).map(|(limit, _)| limit));
            } else if sums.values().any(|sum| *sum < 0)
                && let Some(obstacle) = self.bucket.obstacle(&seen.item)
            {
                // Its own rules may have given the tokens back already.
                return Err(obstacle);
            }
            if sums.is_empty() {
                return Ok(left_out);
            }
            let adjustments: Vec<_> = sums.iter().map(|(limit, sum)| adjustment(&seen, limit, *sum)).collect();
            let id = self.core.operation_id();
            let written = self.core.store.adjust(&self.key, &adjustments, operation(&id, 1, moment.now)).await;
            metrics::written("adjust", &written);
            match written {
                Ok(Written::Applied(item)) => {
                    self.remember(item, moment);
                    return Ok(left_out);
                }
                Ok(Written::Refused(Some(item))) => {
                    let seen = self.bucket.observe(self.shard, item, moment);
                    if seen.item.image.plain().is_none()
                        && let Some(obstacle) = self.bucket.obstacle(&seen.item)
                    {
                        return Err(obstacle);
                    }
                }
                Ok(Written::Refused(None)) => {
                    self.bucket.forget(self.shard);
                    return Ok(left_out);
                }
                Err(WriteError::Throttled { .. }) => self.core.back_off(attempt).await,
                Err(WriteError::NotWritten(error)) if error.is_retryable() && attempt < ATTEMPTS => {
                    self.core.back_off(attempt).await;
                }
                Err(WriteError::NotWritten(error)) => return Err(error.into()),
                Err(WriteError::Lost(error)) => match self.find_written(&id).await {
                    Some(item) => {
                        self.bucket.observe(self.shard, item, moment);
                        return Ok(left_out);
                    }
                    // To write it again could charge twice, or create tokens.
                    None => return Err(error.into()),
                },
            }
        }
        Err(Unavailable::busy(Contended(ATTEMPTS)).into())
    }
}

/// The change of one limit. Tokens that are given back fill the shard up to its share, and no further.
fn adjustment(seen: &Seen, limit: &Limit<'static>, taken: i64) -> Adjustment<'static> {
    let limit = limit.clone();
    let state = seen.item.image.plain().and_then(|state| Some((state, state.limits.get(&limit)?)));
    let Some((state, of)) = state.filter(|_| taken < 0) else {
        return Adjustment { limit, tokens: -taken, consumed: taken, at_most: None, at_least: None, share: None };
    };
    let (share, stored) = (state.share(&limit, of).capacity.get(), of.tokens.get());
    let room = share.saturating_sub(stored).max(0);
    let tokens = room.min(-taken);
    let is_clipped = tokens < -taken;
    Adjustment {
        limit,
        tokens,
        consumed: taken,
        at_most: Some(share.saturating_sub(tokens).max(stored)),
        // Less stored would leave more room.
        at_least: is_clipped.then_some(stored),
        share: Some((state.shards, of.terms)),
    }
}
