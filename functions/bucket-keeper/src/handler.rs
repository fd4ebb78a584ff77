//! One batch: decode it, park poison, fold it by bucket, keep each bucket, answer.

use std::{collections::BTreeMap, num::NonZeroUsize};

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::Batch,
    buckets::{Buckets, Outcome},
    concurrent::for_each,
    dead_letters::DeadLetterQueue,
    error::{CallError, StoreError, causes},
    parking::{self, BatchError, Parked},
    registry::Registry,
    schema,
    stream::StreamEvent,
};
use tidegate_domain::{
    activity::{self, Activity},
    bucket::{BucketKey, Shard},
    pressure,
    refill::{self, Decision},
    sequence::SequenceNumber,
    state::{BucketImage, BucketState, ShardCount},
    time::EpochMillis,
};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use crate::report::Report;

/// The function: what it writes to, and its policy. It has no state of its own: what it does follows from the
/// images, the batch, the time and the policy, so any process may handle any batch.
#[derive(Debug)]
pub struct BucketKeeper {
    pub buckets: Buckets,
    /// The sharded ones among them.
    pub registry: Registry,
    /// Where records go that cannot be processed.
    pub dead_letters: Option<DeadLetterQueue>,
    /// When shards are doubled.
    pub pressure: pressure::Policy,
    /// How many buckets are kept at the same time.
    pub concurrency: NonZeroUsize,
    /// Whether the table belongs to Tidegate's stack.
    pub own_table: bool,
}

/// The most time for one refill. Later, it is of no use.
const REFILL_TIMEOUT: Duration = Duration::from_secs(2);

/// How one batch ended.
#[derive(Debug)]
pub struct Handled {
    pub report: Report,
    /// The lowest failed sequence number, if any: everything from there is delivered again.
    ///
    /// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).
    pub answer: Result<DynamoDbEventResponse, BatchError>,
}

/// A bucket, and what the batch shows of its shards.
struct Group<'a> {
    /// Shard 0's key.
    bucket: BucketKey<'a>,
    activities: Vec<Activity<'a>>,
}

impl BucketKeeper {
    /// Handles one batch at the moment `now`. What is not done by `deadline` is reported as failed. Each write is
    /// conditional on what was seen, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, now: EpochMillis, deadline: Instant) -> Handled {
        let batch = match Batch::<BucketImage<'_>>::decode(event) {
            Ok(batch) => batch,
            Err(error) => return Handled { report: Report::default(), answer: Err(error.into()) },
        };
        let mut report = Report {
            records: event.records.len(),
            not_ours: batch.not_ours,
            changes: batch.changes.len(),
            poison: batch.poison.len(),
            ..Report::default()
        };
        let activities = activity::fold(batch.changes);
        report.shards = activities.len();
        let groups = group(activities);
        // Keeping counts no usage, so it does not have to wait until poison is parked.
        let (parked, kept) = tokio::join!(
            parking::park_all(self.dead_letters.as_ref(), &batch.poison, deadline, self.concurrency),
            for_each((self, now), &groups, Self::keep, deadline, self.concurrency),
        );
        let Parked { parked, unparked } = parked;
        report.parked = parked;
        report.unparked = unparked.len();
        let mut failures: Vec<_> = unparked.into_iter().map(|failed_record| failed_record.sequence).collect();
        for (group, kept, result) in kept {
            report += &kept;
            if let Err(error) = result
                && report.count_error(&group.bucket, &error)
            {
                failures.push(group.first());
            }
        }
        Handled { report, answer: parking::answer(failures) }
    }

    async fn keep<'p, 'a>(
        (this, now): (&Self, EpochMillis),
        group: &'p Group<'a>,
        deadline: Instant,
    ) -> (&'p Group<'a>, Report, Result<(), CallError>) {
        let mut report = Report::default();
        let kept = timeout_at(deadline, Box::pin(this.keep_bucket(group, now, &mut report))).await;
        (group, report, kept.map_err(|_| CallError::Deadline).and_then(|kept| Ok(kept?)))
    }

    /// Refills come first: they are short, and a shard that has run dry shows up in no later batch. All refills of a bucket
    /// share one time, so that a throttled bucket of many shards does not block the others.
    async fn keep_bucket(&self, group: &Group<'_>, now: EpochMillis, report: &mut Report) -> Result<(), StoreError> {
        let until = Instant::now() + REFILL_TIMEOUT;
        for activity in &group.activities {
            if Instant::now() >= until {
                report.missed += 1;
                continue;
            }
            self.keep_shard(activity, now, report).await?;
        }
        if let Some(shards) = group.starving() {
            let work = async |report: &mut Report| self.complete_and_refill(&group.bucket, shards, now, report).await;
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
        report: &mut Report,
    ) -> Result<(), StoreError> {
        match &activity.image {
            BucketImage::Absent => report.gone += 1,
            BucketImage::Unfamiliar(reason) => report.count_unfamiliar(&activity.bucket, *reason),
            BucketImage::Plain(state) => {
                let decision = refill::decide(activity, state, now);
                self.carry_out(&activity.bucket, state, &decision, report).await?;
            }
        }
        Ok(())
    }

    /// Carries out a decision and returns whether it wrote. It gives up a refill after two seconds: clients can still
    /// credit what accrued, and waiting would delay all other buckets.
    pub(crate) async fn carry_out(
        &self,
        bucket: &BucketKey<'_>,
        state: &BucketState<'_>,
        decision: &Decision<'_>,
        report: &mut Report,
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
            Ok(Outcome::Written) => {
                report.refilled += 1;
                report.trimmed += usize::from(!refill.trims.is_empty());
                return Ok(true);
            }
            Ok(Outcome::Lost) => report.lost += 1,
            Err(error) => {
                report.missed += 1;
                tracing::warn!(bucket = schema::bucket_pk(bucket), error = causes(&error), "refill missed");
            }
        }
        Ok(false)
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
