//! What one invocation did, in numbers.

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_aws::{
    error::{CallError, causes},
    schema,
};
use tidegate_domain::{bucket::BucketKey, refill::Decision, state::Unfamiliar};

/// The counts that are CloudWatch metrics: those of the alarms and the dashboard.
pub const METRICS: [&str; 5] = ["Refilled", "Lost", "Doubled", "Held", "Failed"];

tidegate_lambda::report! {
    /// The counts of one invocation, of a batch or of a repair.
    ///
    /// Every record is in exactly one of `not_ours`, `changes` and `poison`. Every shard of a batch is in exactly one
    /// of `unfamiliar`, `awaits_client`, `gone`, `enough`, `unprofitable`, `stale`, `expired`, `waiting`, `refilled`,
    /// `lost` and `missed`, unless its bucket is in `failed` or `refused`. Shards that are read to complete a bucket
    /// or to repair it count in `unfamiliar`, `awaits_client`, `refilled`, `lost` and `missed` as well.
    pub struct KeeperReport {
        /// Records delivered.
        records,
        /// Records of items that are not buckets: they cost no further work.
        not_ours,
        /// Changes of buckets.
        changes,
        /// Records that cannot be decoded.
        poison,
        /// Dead letters sent.
        parked,
        /// Dead letters that could not be sent.
        unparked,
        /// Bucket shards in the batch, or met by the repair.
        shards,
        /// Shards of buckets with rules that we do not fully understand: left to their clients.
        unfamiliar,
        /// Shards with a `vu`, which asks their clients for a pass that needs the configuration: left to them.
        awaits_client,
        /// Shards that were removed.
        gone,
        /// Shards whose stored tokens last.
        enough,
        /// Shards whose tokens are short, but for which a refill would cost more than it saves.
        unprofitable,
        /// Shards whose last record is too old to act on.
        stale,
        /// Shards that have expired.
        expired,
        /// Shards that hold more than their share, of buckets with several shards: trimmed when all shards are read.
        waiting,
        /// Shards that were refilled.
        refilled,
        /// Of these, shards that held too much of a limit and were trimmed.
        trimmed,
        /// Refills that lost a race to a client, a split or another refill: nothing was written.
        lost,
        /// Refills that the table did not take in time: the next batch or repair tries again.
        missed,
        /// Buckets that were given twice as many shards.
        doubled,
        /// Buckets under pressure whose writes do not spread: more shards would only shrink the limits.
        held,
        /// Buckets under pressure whose shares would become smaller than an acquire.
        indivisible,
        /// Buckets under pressure that have as many shards as they may have.
        at_limit,
        /// Doublings that lost a race.
        double_lost,
        /// Buckets whose number of shards is above 64 or not a power of two: their shards are not created.
        unsupported,
        /// Shards that were created by a split.
        split,
        /// Shards that did not split and learned of a new number of shards.
        raised,
        /// Transactions of splits that lost a race; they were tried again.
        split_lost,
        /// Buckets whose shards are not complete after several tries, or not in time: left to the repair.
        incomplete,
        /// Sharded buckets that the repair looked at.
        buckets,
        /// Shards to which shard 0's limits or expiry were written.
        aligned,
        /// Alignments that lost a race.
        align_lost,
        /// Moves of tokens to a dry shard.
        moved,
        /// Moves that lost a race.
        move_lost,
        /// Entries of buckets that are gone, or no longer sharded.
        dropped,
        /// Buckets for which a call will never succeed.
        refused,
        /// Buckets for which a call did not succeed: a batch is delivered again, the next repair tries again.
        failed,
    }
}

impl KeeperReport {
    /// Counts a decision by which nothing is written.
    pub(crate) fn count_idle(&mut self, decision: &Decision<'_>) {
        match decision {
            Decision::Refill(_) => {}
            Decision::Enough => self.enough += 1,
            Decision::Unprofitable => self.unprofitable += 1,
            Decision::Waiting => self.waiting += 1,
            Decision::Stale => self.stale += 1,
            Decision::Expired => self.expired += 1,
        }
    }

    /// Counts a shard that is left to its clients.
    pub(crate) fn count_unfamiliar(&mut self, bucket: &BucketKey<'_>, reason: Unfamiliar) {
        match reason {
            Unfamiliar::AwaitsClient => self.awaits_client += 1,
            _ => self.unfamiliar += 1,
        }
        tracing::debug!(bucket = schema::bucket_pk(bucket), ?reason, "left to its clients");
    }

    /// Counts a bucket for which a call failed; whether a retry may succeed.
    pub(crate) fn count_error(&mut self, bucket: &BucketKey<'_>, error: &CallError) -> bool {
        let bucket = schema::bucket_pk(bucket);
        if error.is_retryable() {
            self.failed += 1;
            tracing::warn!(bucket, error = causes(error), "bucket update failed, will be retried");
            return true;
        }
        self.refused += 1;
        tracing::error!(bucket, error = causes(error), "bucket update rejected");
        false
    }
}
