//! The shards of one bucket: doubled under pressure, and split until all of them are there.

use tidegate_aws::{
    buckets::{Freshness, Outcome, Shards},
    error::StoreError,
    registry::Entry,
};
use tidegate_domain::{
    activity::Activity,
    bucket::{BucketKey, Shard},
    pressure::{self, Pressure},
    split::{self, Step},
    state::{BucketState, ShardCount},
};

use crate::{handler::BucketKeeper, report::Report};

/// How often the splits of a bucket are begun anew after a lost race, before the repair is left with them.
const TRIES: usize = 8;

impl BucketKeeper {
    /// Completes the shards of a bucket of which a batch shows shard 0, and doubles them if it is hot. What
    /// the shards are afterwards, if they had to be read.
    pub(crate) async fn complete(
        &self,
        zero: &Activity<'_>,
        state: &BucketState<'_>,
        report: &mut Report,
    ) -> Result<Option<Shards>, StoreError> {
        let bucket = &zero.bucket;
        let mut fresh = None;
        if !self.memory.is_settled(bucket, state.shards) {
            fresh = self.settle(bucket, state.shards, None, report).await?;
            if fresh.is_none() {
                return Ok(None);
            }
        }
        match pressure::measure(zero, state, &self.pressure) {
            Pressure::Bearable => {}
            Pressure::AtLimit => report.at_limit += 1,
            Pressure::High(shards) => {
                if !self.would_help(bucket, state).await? {
                    report.held += 1;
                } else if self.buckets.spread(bucket, state, shards).await? == Outcome::Lost {
                    report.double_lost += 1;
                } else {
                    report.doubled += 1;
                    tracing::info!(bucket = tidegate_aws::schema::bucket_pk(bucket), ?shards, "shards doubled");
                    fresh = self.settle(bucket, shards, None, report).await?;
                }
            }
        }
        Ok(fresh)
    }

    /// Whether the writes of a bucket spread over the shards that it got last.
    async fn would_help(&self, bucket: &BucketKey<'_>, state: &BucketState<'_>) -> Result<bool, StoreError> {
        if state.shards == ShardCount::ONE {
            return Ok(true);
        }
        let Some(entry) = self.registry.find(bucket).await? else {
            // It was dropped, perhaps with an earlier bucket: the next batch enters this one.
            self.memory.unsettle(bucket);
            return Ok(false);
        };
        let newest = state.shards.get() / 2..state.shards.get();
        let newest = self.buckets.read(bucket, newest, Freshness::Eventual).await?;
        let spreads = pressure::spreads(newest.states.values(), entry.written, pressure::written(state));
        Ok(spreads && newest.unfamiliar.is_none())
    }

    /// Splits a bucket until all of its shards are there: `known` many, or more if clients were faster. The
    /// shards, if they are complete now; `None` if they are not, or not ours.
    ///
    /// The bucket is entered into the registry first, so that the repair finishes what a crash leaves.
    pub(crate) async fn settle(
        &self,
        bucket: &BucketKey<'_>,
        known: ShardCount,
        entry: Option<&Entry>,
        report: &mut Report,
    ) -> Result<Option<Shards>, StoreError> {
        let mut known = known;
        for _ in 0..TRIES {
            if !split::is_tree(known) {
                report.misshapen += 1;
                return Ok(None);
            }
            let mut shards = self.buckets.read(bucket, 0..known.get(), Freshness::Consistent).await?;
            if shards.unfamiliar.is_some() {
                report.unfamiliar += 1;
                return Ok(None);
            }
            let Some(zero) = shards.zero() else { return Ok(None) };
            if zero.shards > known {
                known = zero.shards;
                continue;
            }
            if zero.shards > ShardCount::ONE && entry.is_none_or(|entry| entry.shards < zero.shards) {
                let bucket = bucket.at(Shard::ZERO).into_owned();
                let written = pressure::written(zero);
                self.registry.enter(&Entry { bucket, shards: zero.shards, written }).await?;
            }
            if self.take_steps(bucket, &mut shards, report).await? {
                if let Some(zero) = shards.zero() {
                    self.memory.settle(bucket, zero.shards);
                }
                return Ok(Some(shards));
            }
        }
        report.unsettled += 1;
        Ok(None)
    }

    /// Takes the steps that are missing; whether all could be taken.
    pub(crate) async fn take_steps(
        &self,
        bucket: &BucketKey<'_>,
        shards: &mut Shards,
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        while let Some(step) = split::next(&shards.states) {
            let outcome = match &step {
                Step::Split(split) => self.buckets.split(bucket, shards, split).await?,
                Step::Raise { shard, shards: count } => match shards.states.get(shard) {
                    Some(state) => self.buckets.raise(&bucket.at(*shard), state, *count).await?,
                    None => Outcome::Lost,
                },
            };
            match (outcome, &step) {
                (Outcome::Lost, _) => {
                    report.step_lost += 1;
                    return Ok(false);
                }
                (Outcome::Written, Step::Split(_)) => report.split += 1,
                (Outcome::Written, Step::Raise { .. }) => report.raised += 1,
            }
            split::apply(&step, &mut shards.states);
        }
        Ok(true)
    }
}
