//! The shards of one bucket: complete, and doubled under pressure.

use std::time::Duration;

use tidegate_aws::{
    buckets::{Freshness, Outcome, Shards},
    error::{CallError, StoreError, causes},
    registry::Entry,
    schema,
};
use tidegate_domain::{
    activity::Activity,
    bucket::{BucketKey, Shard},
    pressure::{self, Pressure, Spread, SpreadCheck},
    refill,
    sequence::SequenceNumber,
    split,
    state::{BucketState, ShardCount},
    time::EpochMillis,
};
use tokio::time::timeout;

use crate::{handler::BucketKeeper, report::Report};

/// The most time for one bucket's shards. A hot bucket whose transaction keeps losing must not hold up its stream
/// shard: the repair completes what is missing.
const SHARDS_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a transaction that lost a race is tried again with a new read.
const TRIES: usize = 8;

/// One batch in so many that shows shard 0 of a sharded bucket looks whether the bucket is registered: it may be
/// older than the keeper.
const LOOK_UP_EVERY: u64 = 64;

impl BucketKeeper {
    /// Completes the shards of a bucket whose count has changed, and doubles those of a hot one. What a registered
    /// bucket is still missing afterwards is left to the repair.
    pub(crate) async fn keep_shards(
        &self,
        zero: &Activity<'_>,
        state: &BucketState<'_>,
        now: EpochMillis,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let bucket = &zero.bucket;
        if state.shards > ShardCount::ONE && (zero.has_new_count || is_sampled(zero.last)) {
            let is_registered = self.register(bucket, state, now).await?;
            if zero.has_new_count || !is_registered {
                self.in_time(bucket, report, async |report| {
                    self.complete_and_refill(bucket, state.shards, now, report).await
                })
                .await?;
            }
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

    /// Works on the shards of a bucket for a limited time. What then is missing, or met an error that a retry may
    /// mend, is counted and left: to the repair, and to the next batch that shows the pressure.
    async fn in_time(
        &self,
        bucket: &BucketKey<'_>,
        report: &mut Report,
        work: impl AsyncFnOnce(&mut Report) -> Result<bool, StoreError>,
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
    pub(crate) async fn register(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        now: EpochMillis,
    ) -> Result<bool, StoreError> {
        let entry = self.registry.find(bucket).await?;
        if entry.is_some_and(|entry| entry.shards >= state.shards) {
            return Ok(true);
        }
        self.enter(bucket, state.shards, SpreadCheck::new(now, state, [])).await?;
        Ok(false)
    }

    async fn enter(&self, bucket: &BucketKey<'_>, shards: ShardCount, check: SpreadCheck) -> Result<(), StoreError> {
        let bucket = bucket.at(Shard::ZERO).into_owned();
        self.registry.enter(&Entry { bucket, shards, check: Some(check) }).await
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
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        if !self.writes_spread(bucket, state, now).await? {
            report.held += 1;
            return Ok(true);
        }
        self.enter(bucket, doubled, SpreadCheck::new(now, state, [])).await?;
        for _ in 0..TRIES {
            let Some(shards) = self.read_plain(bucket, state.shards, report).await? else { return Ok(true) };
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

    /// Whether the writes of a bucket spread over its shards now.
    async fn writes_spread(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        now: EpochMillis,
    ) -> Result<bool, StoreError> {
        if state.shards == ShardCount::ONE {
            return Ok(true);
        }
        let newest = self.buckets.read(bucket, state.shards.get() / 2..state.shards.get(), Freshness::Eventual).await?;
        let check = SpreadCheck::new(now, state, newest.states.values());
        let Some(entry) = self.registry.find(bucket).await? else {
            self.enter(bucket, state.shards, check).await?;
            return Ok(false);
        };
        match entry.check.map_or(Spread::Unknown, |earlier| check.spread_since(&earlier, state.shards)) {
            Spread::Even => return Ok(true),
            Spread::TooSoon => {}
            Spread::Uneven | Spread::Unknown => self.registry.replace_check(&entry, &check).await?,
        }
        Ok(false)
    }

    async fn complete_and_refill(
        &self,
        bucket: &BucketKey<'_>,
        known: ShardCount,
        now: EpochMillis,
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        let Some(shards) = self.complete(bucket, known, report).await? else { return Ok(false) };
        for (shard, state) in &shards.states {
            // The images are younger than `now`, at which the invocation began.
            let decision = refill::decide_idle(state, now);
            if matches!(decision, refill::Decision::Refill(_)) {
                self.carry_out(&bucket.at(*shard), state, &decision, report).await?;
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
        report: &mut Report,
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
        report: &mut Report,
    ) -> Result<Option<Shards>, StoreError> {
        let shards = self.buckets.read(bucket, 0..known.get(), Freshness::Consistent).await?;
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
        report: &mut Report,
    ) -> Result<Option<Shards>, StoreError> {
        let Some(plan) = split::plan(&shards.states, count) else { return Ok(Some(shards)) };
        if self.buckets.increase_shards(bucket, &shards, &plan).await? == Outcome::Lost {
            report.split_lost += 1;
            return Ok(None);
        }
        report.split += plan.splits.iter().map(|split| split.targets.len()).sum::<usize>();
        report.raised += plan.raises.len();
        split::apply(&plan, &mut shards.states);
        Ok(Some(shards))
    }
}

/// Whether a batch is the one in [`LOOK_UP_EVERY`] that looks into the registry: by its last sequence number, so that
/// a redelivered batch does the same.
fn is_sampled(last: SequenceNumber) -> bool {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(last) % LOOK_UP_EVERY == 0
}
