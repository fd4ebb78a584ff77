//! The shards of one bucket: refilled, completed, and doubled under pressure.

use std::time::Duration;

use tidegate_aws::{
    buckets::{Consistency, Shards, WriteOutcome},
    error::{CallError, StoreError, causes},
    registry::Entry,
    schema,
};
use tidegate_domain::{
    activity::Activity,
    bucket::{BucketKey, Shard},
    pressure::{self, Pressure, Spread, SpreadCheck},
    refill::{self, Decision},
    sequence::SequenceNumber,
    split,
    state::{BucketState, ShardCount},
    time::EpochMillis,
    tokens::Millitokens,
};
use tokio::time::timeout;

use crate::{BucketKeeper, report::KeeperReport};

/// The most time for one refill. A later refill no longer helps.
pub(crate) const REFILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The most time for one bucket's shards. A hot bucket whose transaction keeps losing must not block its stream shard:
/// the repair completes what is missing.
const SHARDS_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a transaction is tried, each time with a new read, before the next batch or the repair is left to do it. Each
/// try exposes the clients' writes to conflicts.
const TRIES: usize = 3;

/// One in this many batches that show shard 0 of a sharded bucket checks the registry, because the bucket may be older
/// than the keeper.
const LOOK_UP_EVERY: u64 = 64;

impl BucketKeeper {
    /// Applies a decision and returns whether it wrote. It gives up a refill after [`REFILL_TIMEOUT`]: clients can still
    /// credit what accrued, and waiting would delay all other buckets.
    pub(crate) async fn apply_decision(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        decision: &Decision<'_>,
        report: &mut KeeperReport,
    ) -> Result<bool, StoreError> {
        let Decision::Refill(refill) = decision else {
            report.count_idle(decision);
            return Ok(false);
        };
        let outcome = match timeout(REFILL_TIMEOUT, self.buckets.refill(bucket, state, refill)).await {
            Ok(Err(error)) if !error.is_retryable() => return Err(error),
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(CallError::from(error)),
            Err(_) => Err(CallError::Deadline),
        };
        match outcome {
            Ok(WriteOutcome::Written) => {
                report.refilled += 1;
                report.trimmed += usize::from(!refill.trims.is_empty());
                return Ok(true);
            }
            Ok(WriteOutcome::Lost) => report.lost += 1,
            Err(error) => {
                report.missed += 1;
                tracing::warn!(bucket = schema::bucket_pk(bucket), error = causes(&error), "refill missed");
            }
        }
        Ok(false)
    }

    /// Completes the shards of a bucket whose count has changed, and doubles those of a hot one. What a registered
    /// bucket is still missing afterwards is left to the repair.
    pub(crate) async fn keep_shards(
        &self,
        zero: &Activity<'_>,
        state: &BucketState<'_>,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<(), StoreError> {
        let bucket = &zero.bucket;
        if state.shards > ShardCount::ONE && (zero.has_new_count || is_sampled(zero.last)) {
            if zero.has_new_count {
                // The repair knows registered buckets only, so a failure here fails the batch.
                self.register(bucket, state).await?;
            }
            let work = async |report: &mut KeeperReport| {
                if !zero.has_new_count && self.register(bucket, state).await? {
                    return Ok(true);
                }
                self.complete_and_refill(bucket, state.shards, now, report).await
            };
            self.in_time(bucket, report, work).await?;
        }
        match pressure::measure(zero, state, now, &self.pressure) {
            Pressure::Bearable => Ok(()),
            Pressure::AtLimit => {
                report.at_limit += 1;
                Ok(())
            }
            Pressure::Indivisible => {
                report.indivisible += 1;
                Ok(())
            }
            Pressure::High(doubled) => {
                self.in_time(bucket, report, async |report| self.double(bucket, state, doubled, now, report).await)
                    .await
            }
        }
    }

    /// Works on a bucket's shards for at most [`SHARDS_TIMEOUT`]. After a timeout or a retryable error it counts the bucket
    /// as incomplete. The repair or the next batch continues.
    pub(crate) async fn in_time(
        &self,
        bucket: &BucketKey<'_>,
        report: &mut KeeperReport,
        work: impl AsyncFnOnce(&mut KeeperReport) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let error = match timeout(SHARDS_TIMEOUT, work(report)).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => None,
            Ok(Err(error)) if !error.is_retryable() => return Err(error),
            Ok(Err(error)) => Some(CallError::from(error)),
            Err(_) => Some(CallError::Deadline),
        };
        report.incomplete += 1;
        let error = error.as_ref().map(|error| causes(error));
        tracing::warn!(bucket = schema::bucket_pk(bucket), error, "shards left to the repair");
        Ok(())
    }

    /// Registers a sharded bucket for the repair; whether it was registered with as many shards.
    pub(crate) async fn register(&self, bucket: &BucketKey<'_>, state: &BucketState<'_>) -> Result<bool, StoreError> {
        let entry = self.registry.find(bucket).await?;
        if entry.is_some_and(|entry| entry.shards >= state.shards) {
            return Ok(true);
        }
        // How its writes spread is not known yet.
        self.enter(bucket, state.shards, None).await?;
        Ok(false)
    }

    async fn enter(
        &self,
        bucket: &BucketKey<'_>,
        shards: ShardCount,
        check: Option<SpreadCheck>,
    ) -> Result<(), StoreError> {
        let bucket = bucket.at(Shard::ZERO).into_owned();
        self.registry.enter(&Entry { bucket, shards, check }).await
    }

    /// Doubles the shards of a bucket in one transaction, if more of them would help; whether nothing is left to do.
    ///
    /// The registry entry is written first, so that the repair looks after the new shards in any case.
    async fn double(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        doubled: ShardCount,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<bool, StoreError> {
        let Some(check) = self.writes_spread(bucket, state, now).await? else {
            report.held += 1;
            return Ok(true);
        };
        // The next check counts the shards that are created now.
        let check = SpreadCheck { newest: Millitokens::default(), ..check };
        self.enter(bucket, doubled, Some(check)).await?;
        for _ in 0..TRIES {
            // The new shards may exist already: as those of an earlier bucket that have not expired yet.
            let Some(shards) = self.read_plain(bucket, doubled, report).await? else { return Ok(true) };
            if shards.zero().is_none_or(|zero| zero.shards != state.shards) {
                report.double_lost += 1;
                return Ok(true);
            }
            if self.increase(bucket, shards, doubled, report).await?.is_some() {
                report.doubled += 1;
                tracing::info!(bucket = schema::bucket_pk(bucket), shards = doubled.get(), "shards doubled");
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks how the writes of a bucket spread over its shards; the check, if they do.
    async fn writes_spread(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        now: EpochMillis,
    ) -> Result<Option<SpreadCheck>, StoreError> {
        let newest = state.shards.get() / 2..state.shards.get();
        if state.shards == ShardCount::ONE {
            return Ok(Some(SpreadCheck::new(now, state, [])));
        }
        let newest = self.buckets.read(bucket, newest, Consistency::Eventual).await?;
        let check = SpreadCheck::new(now, state, newest.states.values());
        let Some(entry) = self.registry.find(bucket).await? else {
            self.enter(bucket, state.shards, Some(check)).await?;
            return Ok(None);
        };
        match entry.check.map_or(Spread::Unknown, |earlier| check.spread_since(&earlier, state.shards)) {
            Spread::Even => return Ok(Some(check)),
            Spread::TooSoon => {}
            Spread::Uneven | Spread::Unknown => self.registry.replace_check(&entry, &check).await?,
        }
        Ok(None)
    }

    pub(crate) async fn complete_and_refill(
        &self,
        bucket: &BucketKey<'_>,
        known: ShardCount,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<bool, StoreError> {
        let Some(shards) = self.complete(bucket, known, report).await? else { return Ok(false) };
        for (shard, state) in &shards.states {
            if is_unsettled(&shards, state) {
                report.waiting += 1;
                continue;
            }
            // The images are younger than `now`, at which the invocation began.
            let decision = refill::decide_idle(state, now);
            if matches!(decision, Decision::Refill(_)) {
                self.apply_decision(&bucket.at(*shard), state, &decision, report).await?;
            }
        }
        Ok(true)
    }

    /// Creates the shards that a bucket is missing: `known` many, or more if clients were faster. The shards, if they
    /// are complete now; `None` if they are not, or if they are left to their clients.
    pub(crate) async fn complete(
        &self,
        bucket: &BucketKey<'_>,
        mut known: ShardCount,
        report: &mut KeeperReport,
    ) -> Result<Option<Shards>, StoreError> {
        for _ in 0..TRIES {
            if !split::is_supported(known) {
                report.unsupported += 1;
                return Ok(None);
            }
            let Some(shards) = self.read_plain(bucket, known, report).await? else { return Ok(None) };
            let Some(zero) = shards.zero() else { return Ok(None) };
            if zero.shards > known {
                known = zero.shards;
                continue;
            }
            let count = zero.shards;
            if let Some(shards) = self.increase(bucket, shards, count, report).await? {
                return Ok(Some(shards));
            }
        }
        Ok(None)
    }

    /// The shards of a bucket, unless one of them is left to its clients.
    async fn read_plain(
        &self,
        bucket: &BucketKey<'_>,
        known: ShardCount,
        report: &mut KeeperReport,
    ) -> Result<Option<Shards>, StoreError> {
        let shards = self.buckets.read(bucket, 0..known.get(), Consistency::Strong).await?;
        for (shard, reason) in &shards.unfamiliar {
            report.count_unfamiliar(&bucket.at(*shard), *reason);
        }
        Ok(shards.unfamiliar.is_empty().then_some(shards))
    }

    /// Writes what a bucket is missing until it has this many shards; the shards then, or `None` after a lost race.
    async fn increase(
        &self,
        bucket: &BucketKey<'_>,
        mut shards: Shards,
        count: ShardCount,
        report: &mut KeeperReport,
    ) -> Result<Option<Shards>, StoreError> {
        let Some(plan) = split::plan(&shards.states, count) else { return Ok(Some(shards)) };
        if self.buckets.increase_shards(bucket, &shards, &plan).await? == WriteOutcome::Lost {
            report.split_lost += 1;
            return Ok(None);
        }
        report.split += plan.splits.iter().map(|split| split.targets.len()).sum::<usize>();
        report.raised += plan.raises.len();
        split::apply(&plan, &mut shards.states);
        Ok(Some(shards))
    }
}

/// Whether a shard holds more than its share and must not be trimmed: one of its bucket's shards is left to its clients, or
/// the read, which is not atomic, saw a doubling on one shard only. Then it may still have to split.
pub(crate) fn is_unsettled(shards: &Shards, state: &BucketState<'_>) -> bool {
    let is_complete = shards.unfamiliar.is_empty() && shards.zero().is_some_and(|zero| zero.shards == state.shards);
    state.is_overfull() && !is_complete
}

/// Whether a batch is the one in [`LOOK_UP_EVERY`] that looks into the registry: by its last sequence number, so that
/// a redelivered batch does the same.
fn is_sampled(last: SequenceNumber) -> bool {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(last) % LOOK_UP_EVERY == 0
}
