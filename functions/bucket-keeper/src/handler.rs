//! The function, and one batch: decode, park, fold, keep each bucket, answer.

use std::{collections::BTreeMap, num::NonZeroUsize};

use aws_lambda_events::streams::DynamoDbEventResponse;
use tidegate_aws::{
    batch::Batch,
    buckets::{Buckets, Outcome, Shards},
    concurrent::for_each,
    dead_letters::DeadLetterQueue,
    error::{CallError, StoreError, causes},
    parking::{self, Parked, Unreportable},
    registry::Registry,
    schema,
    stream::StreamEvent,
};
use tidegate_domain::{
    activity::{self, Activity},
    bucket::{BucketKey, Shard},
    level::Level,
    pressure,
    refill::{self, Decision},
    sequence::SequenceNumber,
    state::{BucketImage, BucketState},
    time::EpochMillis,
};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use crate::{memory::Memory, report::Report};

/// The function: what it writes to, and by which policies.
#[derive(Debug)]
pub struct BucketKeeper {
    /// The buckets.
    pub buckets: Buckets,
    /// Which of them are sharded.
    pub registry: Registry,
    /// Where records go that cannot be processed.
    pub dead_letters: Option<DeadLetterQueue>,
    /// When a refill is worth its write.
    pub refill: refill::Policy,
    /// When shards are doubled.
    pub pressure: pressure::Policy,
    /// How many buckets are kept at the same time.
    pub concurrency: NonZeroUsize,
    /// What is remembered from one invocation to the next.
    pub memory: Memory,
}

/// The most time for one refill: later, it is of no use.
const PATIENCE: Duration = Duration::from_secs(2);

/// What one batch came to.
#[derive(Debug)]
pub struct Handled {
    /// What was done.
    pub report: Report,
    /// The lowest failed sequence number, if any: everything from there is delivered again.
    ///
    /// AWS: [partial batch responses](https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html).
    pub answer: Result<DynamoDbEventResponse, Unreportable>,
}

/// A bucket, and what the batch shows of its shards.
struct Group<'a> {
    /// Shard 0's key.
    bucket: BucketKey<'a>,
    activities: Vec<Activity<'a>>,
}

impl BucketKeeper {
    /// Handles one batch at the moment `now`. What is not done by `deadline` is reported as failed. Each
    /// write is on the condition of what was seen, so any redelivery is safe, also after a crash.
    pub async fn handle(&self, event: &StreamEvent, now: EpochMillis, deadline: Instant) -> Handled {
        let batch = Batch::<BucketImage<'_>>::decode(event);
        let mut report = Report {
            records: event.records.len(),
            not_ours: batch.not_ours,
            changes: batch.changes.len(),
            poison: batch.poison.len(),
            ..Report::default()
        };
        let activities = activity::fold(batch.changes, |bucket| self.memory.recall(bucket));
        report.shards = activities.len();
        let groups = group(activities);
        // Nothing is counted here, so nothing need wait for a record to be parked.
        let (parked, kept) = tokio::join!(
            parking::park_all(self.dead_letters.as_ref(), &batch.poison, deadline, self.concurrency),
            for_each((self, now), &groups, Self::keep, deadline, self.concurrency),
        );
        let Parked { parked, unparked } = parked;
        report.parked = parked;
        report.unparked = unparked.len();
        let mut failures: Vec<_> = unparked.into_iter().map(|parcel| parcel.sequence).collect();
        for (group, kept, result) in kept {
            report += &kept;
            let bucket = schema::bucket_pk(&group.bucket);
            match result {
                Ok(()) => self.remember(group),
                // What is not remembered counts when it comes again.
                Err(error) if error.is_retryable() => {
                    report.failed += 1;
                    tracing::warn!(bucket, error = causes(&error), "keeping failed");
                    failures.push(group.first());
                }
                Err(error) => {
                    report.refused += 1;
                    tracing::error!(bucket, error = causes(&error), "keeping refused");
                    self.remember(group);
                }
            }
        }
        Handled { report, answer: parking::answer(failures) }
    }

    fn remember(&self, group: &Group<'_>) {
        for activity in &group.activities {
            if let Some(trail) = activity.trail() {
                self.memory.follow(activity.bucket.clone().into_owned(), trail.into_owned());
            }
        }
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

    /// Refills come first: they are short, and a shard that has run dry shows up in no later batch. But what
    /// holds too much waits for the splits, since it may have to give half of it.
    async fn keep_bucket(&self, group: &Group<'_>, now: EpochMillis, report: &mut Report) -> Result<(), StoreError> {
        let is_overfull = |activity: &&Activity<'_>| activity.image.plain().is_some_and(BucketState::is_overfull);
        let (overfull, others): (Vec<_>, Vec<_>) = group.activities.iter().partition(is_overfull);
        for activity in others {
            self.keep_shard(activity, None, now, report).await?;
        }
        let fresh = match group.zero() {
            Some((zero, state)) => self.complete(zero, state, report).await?,
            None => None,
        };
        for activity in overfull {
            self.keep_shard(activity, fresh.as_ref(), now, report).await?;
        }
        Ok(())
    }

    async fn keep_shard(
        &self,
        activity: &Activity<'_>,
        fresh: Option<&Shards>,
        now: EpochMillis,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let Activity { bucket, image, level, demand, has_split, .. } = activity;
        let level = match (image, level) {
            (BucketImage::Unfamiliar(reason), _) => {
                report.unfamiliar += 1;
                tracing::debug!(bucket = schema::bucket_pk(bucket), ?reason, "left to its clients");
                return Ok(());
            }
            (BucketImage::Plain(_), Some(level)) => level,
            (BucketImage::Absent | BucketImage::Plain(_), _) => {
                report.gone += 1;
                return Ok(());
            }
        };
        let level = match fresh.and_then(|fresh| fresh.states.get(&bucket.shard)) {
            Some(state) => Level::found([level.clone()], state, now),
            None => level.clone(),
        };
        let state = level.seen();
        if state.is_overfull() && bucket.shard == Shard::ZERO && !self.memory.is_settled(bucket, state.shards) {
            report.waiting += 1;
            return Ok(());
        }
        let decision = if demand.is_empty() && *has_split {
            // Whoever draws from a shard that has run dry changes nothing in it, so this may be its last record.
            refill::decide_idle(&level, now, &self.refill)
        } else {
            refill::decide(&level, demand, now, &self.refill)
        };
        self.carry_out(bucket, state, &decision, report).await.map(drop)
    }

    /// Carries out a decision on a shard; whether anything was written. A refill that the table does not take
    /// in time is missed: nothing is lost by it, since what has accrued still counts, and to hold up the
    /// stream for it would keep all others dry.
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
        let outcome = match timeout(PATIENCE, self.buckets.refill(bucket, state, refill)).await {
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
    /// Shard 0, if the batch shows it and it is ours to write.
    fn zero(&self) -> Option<(&Activity<'a>, &BucketState<'a>)> {
        let zero = self.activities.iter().find(|activity| activity.bucket.shard == Shard::ZERO)?;
        Some((zero, zero.image.plain()?))
    }

    fn first(&self) -> Option<SequenceNumber> {
        self.activities.iter().map(|activity| activity.first).min()
    }
}
