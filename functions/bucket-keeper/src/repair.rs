//! The repair: what no stream record shows. It goes through the registry of sharded buckets, creates missing
//! shards, aligns shards with shard 0, refills those that have run dry, moves tokens to those that cannot be
//! refilled, and removes the entries of buckets that are gone.

use std::time::Duration;

use tidegate_aws::{
    buckets::{Consistency, Shards, WriteOutcome},
    concurrent::{concurrently, within},
    error::{CallError, StoreError, causes},
    registry::{Entry, Page},
};
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    refill::{self, Decision},
    repair::{self, rebalance},
    split,
    state::{BucketState, ShardCount},
    time::EpochMillis,
};
use tokio::time::Instant;

use crate::{BucketKeeper, report::KeeperReport, shards::is_unsettled};

/// The most buckets that one repair looks at; the next repair continues after them.
const BUCKETS: usize = 10_000;

/// The most time for one bucket: a busy partition must not keep the repair from the others.
const BUCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for storing where the repair stopped, after the deadline.
const STOP_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub struct Repaired {
    pub report: KeeperReport,
    /// Whether the repair reached the end of the registry. If not, the next one continues. An error if the
    /// registry could not be read, or if the place where the repair stopped could not be stored.
    pub complete: Result<bool, CallError>,
}

/// The time of day during a repair, which may take a minute.
#[derive(Clone, Copy)]
struct Clock {
    began: EpochMillis,
    at: Instant,
}

impl Clock {
    fn now(self) -> EpochMillis {
        self.began.after(self.at.elapsed())
    }
}

impl BucketKeeper {
    /// Goes through the sharded buckets from the moment `now` on, from where the last repair stopped, until the
    /// end, 10,000 buckets or the `deadline`. Each write is on the condition of what was seen: a repair
    /// may run beside another, and stop anywhere.
    pub async fn repair(&self, now: EpochMillis, deadline: Instant) -> Repaired {
        let mut report = KeeperReport::default();
        let complete = match self.repair_all(now, deadline, &mut report).await {
            Err(CallError::Deadline) => Ok(false),
            complete => complete,
        };
        Repaired { report, complete }
    }

    async fn repair_all(
        &self,
        now: EpochMillis,
        deadline: Instant,
        report: &mut KeeperReport,
    ) -> Result<bool, CallError> {
        let clock = Clock { began: now, at: Instant::now() };
        let stopped = within(deadline, self.registry.stopped()).await?;
        let mut after = stopped.clone();
        let complete = loop {
            let page = match within(deadline, self.registry.page(after.as_deref())).await {
                Err(CallError::Deadline) => break false,
                page => page?,
            };
            self.repair_page(&page, clock, deadline, report).await;
            if Instant::now() >= deadline {
                break false;
            }
            after = page.next;
            if after.is_none() || report.buckets >= BUCKETS {
                break after.is_none();
            }
        };
        if after != stopped {
            within(deadline.max(Instant::now()) + STOP_TIMEOUT, self.registry.stop(after.as_deref())).await?;
        }
        Ok(complete)
    }

    async fn repair_page(&self, page: &Page, clock: Clock, deadline: Instant, report: &mut KeeperReport) {
        for error in &page.corrupt {
            report.refused += 1;
            tracing::error!(error = causes(error), "not a valid entry of the registry");
        }
        let repair_entry = |entry| async move { (entry, self.repair_entry(entry, clock, deadline).await) };
        for (entry, (repaired, result)) in concurrently(&page.entries, self.concurrency, repair_entry).await {
            report.buckets += 1;
            *report += &repaired;
            if let Err(error) = result {
                report.count_error(&entry.bucket, &error);
            }
        }
    }

    async fn repair_entry(
        &self,
        entry: &Entry,
        clock: Clock,
        deadline: Instant,
    ) -> (KeeperReport, Result<(), CallError>) {
        let mut report = KeeperReport::default();
        let deadline = deadline.min(Instant::now() + BUCKET_TIMEOUT);
        let result = within(deadline, Box::pin(self.repair_bucket(entry, clock, &mut report))).await;
        (report, result)
    }

    async fn repair_bucket(&self, entry: &Entry, clock: Clock, report: &mut KeeperReport) -> Result<(), StoreError> {
        let bucket = &entry.bucket;
        let glance = self.buckets.read(bucket, 0..entry.shards.get(), Consistency::Eventual).await?;
        report.shards += glance.states.len();
        for (shard, reason) in &glance.unfamiliar {
            report.count_unfamiliar(&bucket.at(*shard), *reason);
        }
        let now = clock.now();
        match glance.zero() {
            _ if glance.unfamiliar.contains_key(&Shard::ZERO) => return Ok(()),
            Some(zero) if zero.is_expired(now) => {
                report.expired += 1;
                return Ok(());
            }
            Some(zero) if zero.shards > ShardCount::ONE => {
                if !needs_repair(&glance, zero, now) {
                    return Ok(());
                }
            }
            _ => return self.drop_entry(entry, report).await,
        }
        // A refill needs an image as it is at a known moment, which only a consistent read returns.
        let at = clock.now();
        let mut shards = self.buckets.read(bucket, 0..entry.shards.get(), Consistency::Strong).await?;
        let Some(zero) = shards.zero() else { return Ok(()) };
        if shards.unfamiliar.is_empty()
            && (zero.shards > entry.shards || split::plan(&shards.states, zero.shards).is_some())
        {
            let known = zero.shards;
            self.register(bucket, zero).await?;
            let Some(complete) = self.complete(bucket, known, report).await? else {
                report.incomplete += 1;
                return Ok(());
            };
            shards = complete;
        }
        self.repair_shards(bucket, shards, at, report).await
    }

    async fn repair_shards(
        &self,
        bucket: &BucketKey<'static>,
        mut shards: Shards,
        at: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<(), StoreError> {
        let Some(zero) = shards.zero().cloned() else { return Ok(()) };
        let mut is_settled = shards.unfamiliar.is_empty();
        for (shard, mut state) in shards.states.clone() {
            let key = bucket.at(shard);
            if is_unsettled(&shards, &state) {
                report.waiting += 1;
                is_settled = false;
                continue;
            }
            if !self.align(&key, &zero, &mut state, at, report).await? {
                is_settled = false;
                continue;
            }
            let decision = refill::decide_idle(&state, at);
            if let Decision::Refill(refill) = &decision {
                is_settled &= self.apply_decision(&key, &state, &decision, report).await?;
                state = refill.applied_to(state);
            }
            shards.states.insert(shard, state);
        }
        if !is_settled {
            return Ok(());
        }
        for transfer in rebalance(&shards.states, at) {
            match self.buckets.move_tokens(bucket, &shards.states, &transfer).await? {
                WriteOutcome::Written => report.moved += 1,
                WriteOutcome::Lost => report.move_lost += 1,
            }
        }
        Ok(())
    }

    /// Removes the entry of a bucket that is gone or is not sharded, unless an eventual read was too old to tell.
    async fn drop_entry(&self, entry: &Entry, report: &mut KeeperReport) -> Result<(), StoreError> {
        let shards = self.buckets.read(&entry.bucket, 0..1, Consistency::Strong).await?;
        let is_sharded = shards.zero().is_some_and(|zero| zero.shards > ShardCount::ONE);
        if !is_sharded && shards.unfamiliar.is_empty() {
            self.registry.remove(entry).await?;
            report.dropped += 1;
        }
        Ok(())
    }

    /// Writes to a shard what shard 0 says, if they differ; whether it agrees now.
    async fn align(
        &self,
        key: &BucketKey<'_>,
        zero: &BucketState<'static>,
        state: &mut BucketState<'static>,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<bool, StoreError> {
        let Some(alignment) = repair::align(zero, state, now).filter(|_| key.shard != Shard::ZERO) else {
            return Ok(true);
        };
        match self.buckets.align(key, state, &alignment).await? {
            WriteOutcome::Written => {
                report.aligned += 1;
                repair::apply(&alignment, state);
                Ok(true)
            }
            WriteOutcome::Lost => {
                report.align_lost += 1;
                Ok(false)
            }
        }
    }
}

/// Whether a glance at the shards of a bucket shows anything to repair.
fn needs_repair(shards: &Shards, zero: &BucketState<'_>, now: EpochMillis) -> bool {
    let is_due = |(shard, state): (&Shard, &BucketState<'static>)| {
        matches!(refill::decide_idle(state, now), Decision::Refill(_))
            || (*shard != Shard::ZERO && repair::align(zero, state, now).is_some())
    };
    shards.states.iter().any(is_due)
        || (shards.unfamiliar.is_empty() && split::plan(&shards.states, zero.shards).is_some())
        || !rebalance(&shards.states, now).is_empty()
}
