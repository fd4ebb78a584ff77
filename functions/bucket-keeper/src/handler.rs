//! One invocation: a batch, or a repair. A batch is decoded, its poison parked, its changes folded by bucket, each bucket
//! kept, and the failures answered.

use std::collections::BTreeMap;

use tidegate_aws::{
    batch::{self, Batch, Parked, answer, park_all},
    concurrent::{concurrently, within},
    error::{CallError, StoreError},
    stream::StreamEvent,
};
use tidegate_domain::{
    activity::{self, Activity},
    bucket::{BucketKey, Shard},
    refill,
    sequence::SequenceNumber,
    state::{BucketImage, BucketState, ShardCount},
    time::EpochMillis,
};
use tidegate_lambda::process::{Diagnostic, Invocation, diagnostic};
use tokio::time::Instant;

use crate::{
    BucketKeeper,
    event::{Answer, Event},
    report::KeeperReport,
    shards::REFILL_TIMEOUT,
};

pub type Handled = batch::Handled<KeeperReport>;

/// A bucket, and what the batch shows of its shards.
struct Group<'a> {
    /// Shard 0's key.
    bucket: BucketKey<'a>,
    activities: Vec<Activity<'a>>,
}

impl BucketKeeper {
    /// Does what the event asks for, and writes the metrics.
    pub async fn invoke(&self, invocation: Invocation<'_, Event>) -> Result<Answer, Diagnostic> {
        let (event, now, deadline, emitter) = invocation.into_parts();
        match event {
            Event::Batch(batch) => {
                let handled = Box::pin(self.handle(&batch, now, deadline)).await;
                emitter.emit("batch", handled.report);
                handled.answer.map(Answer::Batch).map_err(|error| diagnostic("BatchError", &error))
            }
            Event::Repair => {
                let version = within(deadline, Box::pin(self.registry.enter_version(self.own_table))).await;
                let repaired = Box::pin(self.repair(now, deadline)).await;
                let buckets = repaired.report.buckets;
                emitter.emit("repair", repaired.report);
                let complete = repaired.complete.map_err(|error| diagnostic("RepairError", &error))?;
                if version.map_err(|error| diagnostic("VersionError", &error))? {
                    tracing::info!("wrote the version record");
                }
                Ok(Answer::Repair { buckets, complete })
            }
        }
    }

    /// Handles one batch at the moment `now`. What is not done by `deadline` is reported as failed. Each write is
    /// conditional on what was seen, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, now: EpochMillis, deadline: Instant) -> Handled {
        let batch = match Batch::<BucketImage<'_>>::decode(event) {
            Ok(batch) => batch,
            Err(error) => return Handled { report: KeeperReport::default(), answer: Err(error.into()) },
        };
        let mut report = KeeperReport {
            records: event.records.len(),
            not_ours: batch.not_ours,
            changes: batch.changes.len(),
            poison: batch.poison.len(),
            ..KeeperReport::default()
        };
        let activities = activity::fold(batch.changes);
        report.shards = activities.len();
        let groups = group(activities);
        let keep = |group| async move { (group, self.keep(group, now, deadline).await) };
        // Keeping counts no usage, so it does not have to wait until poison is parked.
        let (Parked { parked, unparked }, kept) = tokio::join!(
            park_all(self.dead_letters.as_ref(), &batch.poison, deadline, self.concurrency),
            concurrently(&groups, self.concurrency, keep),
        );
        report.parked = parked;
        report.unparked = unparked.len();
        let mut failures: Vec<_> = unparked.into_iter().map(|failed_record| failed_record.sequence).collect();
        for (group, (kept, result)) in kept {
            report += &kept;
            if let Err(error) = result
                && report.count_error(&group.bucket, &error)
            {
                failures.push(group.first());
            }
        }
        Handled { report, answer: answer(failures) }
    }

    async fn keep(
        &self,
        group: &Group<'_>,
        now: EpochMillis,
        deadline: Instant,
    ) -> (KeeperReport, Result<(), CallError>) {
        let mut report = KeeperReport::default();
        let kept = within(deadline, Box::pin(self.keep_bucket(group, now, &mut report))).await;
        (report, kept)
    }

    /// Refills come first: they are short, and a shard that has run dry shows up in no later batch. No refill of a bucket
    /// starts after two seconds, so that a throttled bucket of many shards does not block the others.
    async fn keep_bucket(
        &self,
        group: &Group<'_>,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<(), StoreError> {
        let until = Instant::now() + REFILL_TIMEOUT;
        for activity in &group.activities {
            if Instant::now() >= until {
                report.missed += 1;
                continue;
            }
            self.keep_shard(activity, now, report).await?;
        }
        if let Some(shards) = group.starving() {
            let work =
                async |report: &mut KeeperReport| self.complete_and_refill(&group.bucket, shards, now, report).await;
            self.in_time(&group.bucket, report, work).await?;
        }
        match group.zero() {
            Some((zero, state)) => self.keep_shards(zero, state, now, report).await,
            None => Ok(()),
        }
    }

    async fn keep_shard(
        &self,
        activity: &Activity<'_>,
        now: EpochMillis,
        report: &mut KeeperReport,
    ) -> Result<(), StoreError> {
        match &activity.image {
            BucketImage::Absent => report.gone += 1,
            BucketImage::Unfamiliar(reason) => report.count_unfamiliar(&activity.bucket, *reason),
            BucketImage::Plain(state) => {
                let decision = refill::decide(activity, state, now);
                self.apply_decision(&activity.bucket, state, &decision, report).await?;
            }
        }
        Ok(())
    }
}

/// The activities by bucket, in the order in which the buckets first appear.
fn group(activities: Vec<Activity<'_>>) -> Vec<Group<'_>> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for activity in activities {
        let bucket = activity.bucket.at(Shard::ZERO);
        let place = *places.entry(bucket.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group { bucket, activities: Vec::new() });
        }
        groups[place].activities.push(activity);
    }
    groups
}

impl<'a> Group<'a> {
    /// Shard 0, if the batch shows it and it is a plain bucket.
    fn zero(&self) -> Option<(&Activity<'a>, &BucketState<'a>)> {
        let zero = self.activities.iter().find(|activity| activity.bucket.shard == Shard::ZERO)?;
        Some((zero, zero.image.plain()?))
    }

    /// The number of shards, if one of them holds more than its share and little of its write units. Only a read of all
    /// shards tells whether it may be refilled, and clients of 0.10 to 0.12 double the shards when they run out.
    fn starving(&self) -> Option<ShardCount> {
        let states = self.activities.iter().filter_map(|activity| activity.image.plain());
        let is_low = |state: &BucketState<'_>| {
            let units = state.write_units();
            units.is_some_and(|units| units.tokens.get() < units.terms.capacity.get() / 4)
        };
        let mut starving =
            states.filter(|state| state.shards > ShardCount::ONE && state.is_overfull() && is_low(state));
        starving.next().map(|state| state.shards)
    }

    fn first(&self) -> Option<SequenceNumber> {
        self.activities.iter().map(|activity| activity.first).min()
    }
}
