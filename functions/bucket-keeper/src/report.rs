//! What one invocation did, in numbers.

use metrique::{unit::Count, unit_of_work::metrics};
use tidegate_domain::refill::Decision;

tidegate_lambda::report! {
    /// The counts of one invocation, of a batch or of a repair.
    ///
    /// Every record is in exactly one of `not_ours`, `changes` and `poison`. Every shard of a batch is
    /// in exactly one of `unfamiliar`, `gone`, `enough`, `too_soon`, `expired`, `waiting`, `refilled`,
    /// `lost` and `missed`, unless its bucket is in `failed` or `refused`. A repair counts a bucket that is
    /// unfamiliar or has expired once, and none of its shards; so does a batch whose splits are given up
    /// because another shard is unfamiliar.
    pub struct Report {
        /// Records delivered.
        records,
        /// Records of items that are no buckets: they cost no further work.
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
        /// Shards that were removed.
        gone,
        /// Shards whose tokens last, or that have too little to get: a write would save none.
        enough,
        /// Shards that somebody refilled just now.
        too_soon,
        /// Shards that have expired.
        expired,
        /// Shards that hold too much, of buckets whose split is not complete.
        waiting,
        /// Shards that were refilled.
        refilled,
        /// Of these, shards that held too much of a limit and were trimmed.
        trimmed,
        /// Refills that lost a race to a client, a split or another refill: nothing was written.
        lost,
        /// Refills that the table did not take in time: the next batch or repair comes back to them.
        missed,
        /// Buckets that were given twice as many shards.
        doubled,
        /// Buckets under pressure whose writes do not spread: more shards would only shrink the limits.
        held,
        /// Buckets under pressure that have as many shards as they may have.
        at_limit,
        /// Doublings that lost a race.
        double_lost,
        /// Buckets whose number of shards is no power of two, or beyond all bounds: their shards are not created.
        misshapen,
        /// Shards that were split.
        split,
        /// Shards that learnt of a new number of shards.
        raised,
        /// Splits and raises that lost a race; they were tried again.
        step_lost,
        /// Buckets whose shards are not complete, after several tries: the repair comes back to them.
        unsettled,
        /// Sharded buckets that the repair looked at.
        buckets,
        /// Shards that were told shard 0's limits or expiry.
        aligned,
        /// Alignments that lost a race.
        align_lost,
        /// Entries of buckets that are gone, or no longer sharded.
        dropped,
        /// Buckets for which a call will never succeed.
        refused,
        /// Buckets for which a call did not succeed: a batch comes again, the repair comes back.
        failed,
    }
}

impl Report {
    /// Counts a decision by which nothing is written.
    pub(crate) fn count_idle(&mut self, decision: &Decision<'_>) {
        match decision {
            Decision::Refill(_) => {}
            Decision::Enough => self.enough += 1,
            Decision::TooSoon => self.too_soon += 1,
            Decision::Expired => self.expired += 1,
        }
    }
}
