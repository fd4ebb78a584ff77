//! The repair: what no stream record tells of. It goes through the registry of sharded buckets, creates
//! shards that are missing, tells shards what shard 0 says, refills those that have run dry, and removes the
//! entries of buckets that are gone.

use std::time::Duration;

use tidegate_aws::{
    buckets::{Freshness, Outcome, Shards},
    concurrent::for_each,
    error::{CallError, StoreError, causes},
    registry::{Entry, Page},
    schema,
};
use tidegate_domain::{
    bucket::{BucketKey, Shard},
    level::Level,
    refill, repair as law, split,
    state::{BucketState, ShardCount},
    time::EpochMillis,
};
use tokio::time::{Instant, timeout_at};

use crate::{handler::BucketKeeper, report::Report};

/// The most buckets that one repair looks at; the next one goes on behind them.
const BUCKETS: usize = 10_000;

/// The most time for one bucket: a busy partition must not keep the repair from the others.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time for keeping where the repair stopped, behind the deadline.
const TO_STOP: Duration = Duration::from_millis(300);

/// What a repair came to.
#[derive(Debug)]
pub struct Repaired {
    /// What was done.
    pub report: Report,
    /// Whether the repair came to the end of the registry. If not, the next one goes on. An error if the
    /// registry could not be read, or did not take where the repair stopped.
    pub complete: Result<bool, CallError>,
}

/// The time of day, as it goes on from the beginning of a repair: what is found later was found later.
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
        let mut report = Report::default();
        let complete = match self.repair_all(now, deadline, &mut report).await {
            Err(CallError::Deadline) => Ok(false),
            complete => complete,
        };
        Repaired { report, complete }
    }

    async fn repair_all(&self, now: EpochMillis, deadline: Instant, report: &mut Report) -> Result<bool, CallError> {
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
            within(deadline.max(Instant::now()) + TO_STOP, self.registry.stop(after.as_deref())).await?;
        }
        Ok(complete)
    }

    async fn repair_page(&self, page: &Page, clock: Clock, deadline: Instant, report: &mut Report) {
        for error in &page.corrupt {
            report.refused += 1;
            tracing::error!(error = causes(error), "no entry of the registry");
        }
        let repaired = for_each((self, clock), &page.entries, Self::repair_entry, deadline, self.concurrency).await;
        for (entry, repaired, result) in repaired {
            report.buckets += 1;
            *report += &repaired;
            let bucket = schema::bucket_pk(&entry.bucket);
            match result {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {
                    report.failed += 1;
                    tracing::warn!(bucket, error = causes(&error), "repair failed");
                }
                Err(error) => {
                    report.refused += 1;
                    tracing::error!(bucket, error = causes(&error), "repair refused");
                }
            }
        }
    }

    async fn repair_entry<'p>(
        (this, clock): (&Self, Clock),
        entry: &'p Entry,
        deadline: Instant,
    ) -> (&'p Entry, Report, Result<(), CallError>) {
        let mut report = Report::default();
        let deadline = deadline.min(Instant::now() + PATIENCE);
        let result = within(deadline, Box::pin(this.repair_bucket(entry, clock, &mut report))).await;
        (entry, report, result)
    }

    async fn repair_bucket(&self, entry: &Entry, clock: Clock, report: &mut Report) -> Result<(), StoreError> {
        let bucket = &entry.bucket;
        let mut shards = self.buckets.read(bucket, 0..entry.shards.get(), Freshness::Eventual).await?;
        let is_sharded = |shards: &Shards| shards.zero().is_some_and(|zero| zero.shards > ShardCount::ONE);
        if !is_sharded(&shards) && shards.unfamiliar.is_none() {
            // It may be younger than an eventual read.
            shards = self.buckets.read(bucket, 0..1, Freshness::Consistent).await?;
            if !is_sharded(&shards) && shards.unfamiliar.is_none() {
                self.memory.unsettle(bucket);
                self.registry.remove(entry).await?;
                report.dropped += 1;
                return Ok(());
            }
        }
        if shards.unfamiliar.is_some() {
            report.unfamiliar += 1;
            return Ok(());
        }
        let Some(zero) = shards.zero().cloned() else { return Ok(()) };
        if zero.is_expired(clock.now()) {
            report.expired += 1;
            return Ok(());
        }
        if zero.shards > entry.shards || split::next(&shards.states).is_some() {
            match self.settle(bucket, zero.shards, Some(entry), report).await? {
                Some(settled) => shards = settled,
                None => return Ok(()),
            }
        }
        let Some(zero) = shards.zero().cloned() else { return Ok(()) };
        for (shard, state) in shards.states {
            report.shards += 1;
            let key = bucket.at(shard);
            if let Some(state) = self.align(&key, &zero, state, clock.now(), report).await? {
                self.refill_idle(&key, &state, clock.now(), report).await?;
            }
        }
        Ok(())
    }

    /// Tells a shard what shard 0 says; what the shard is then, unless that is not known.
    async fn align(
        &self,
        key: &BucketKey<'_>,
        zero: &BucketState<'static>,
        mut state: BucketState<'static>,
        now: EpochMillis,
        report: &mut Report,
    ) -> Result<Option<BucketState<'static>>, StoreError> {
        if key.shard == Shard::ZERO {
            return Ok(Some(state));
        }
        let Some(alignment) = law::align(zero, &state, now) else { return Ok(Some(state)) };
        match self.buckets.align(key, &state, &alignment).await? {
            Outcome::Written => {
                report.aligned += 1;
                law::apply(&alignment, &mut state);
                Ok(Some(state))
            }
            Outcome::Lost => {
                report.align_lost += 1;
                Ok(None)
            }
        }
    }

    async fn refill_idle(
        &self,
        key: &BucketKey<'static>,
        state: &BucketState<'static>,
        now: EpochMillis,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let level = Level::found(self.memory.find(key, state, now).into_iter().flatten(), state, now);
        let decision = refill::decide_idle(&level, now, &self.refill);
        if self.carry_out(key, state, &decision, report).await?
            && let refill::Decision::Refill(refill) = decision
        {
            self.memory.find(key, &refill.applied_to(state.clone()), now);
        }
        Ok(())
    }
}

/// Makes a call within the deadline.
async fn within<T>(deadline: Instant, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, CallError> {
    timeout_at(deadline, call).await.map_err(|_| CallError::Deadline).and_then(|done| Ok(done?))
}
