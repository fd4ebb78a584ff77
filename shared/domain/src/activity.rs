//! Activity: what a batch of changes shows of each bucket shard, and how much its callers want.

use std::collections::{BTreeMap, HashMap};

use crate::{
    bucket::{BucketChange, BucketKey, Limit},
    level::Level,
    sequence::SequenceNumber,
    state::{BucketImage, BucketState},
    time::EpochMillis,
    tokens::Millitokens,
};

/// What a batch shows of one bucket shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity<'a> {
    /// The shard.
    pub bucket: BucketKey<'a>,
    /// The first of its records in the batch.
    pub first: SequenceNumber,
    /// The last of its records in the batch.
    pub last: SequenceNumber,
    /// When the last of them was made, in whole seconds on AWS.
    pub seen: EpochMillis,
    /// What the last of them shows.
    pub image: BucketImage<'a>,
    /// What has accrued and is not in the tokens of that image; `None` unless the bucket is a plain one.
    pub level: Option<Level<'a>>,
    /// What was consumed while the bucket had as many shards as it has now, by limit.
    pub demand: BTreeMap<Limit<'a>, Demand>,
}

/// What was consumed of a limit in a batch.
///
/// Creation times are whole seconds, so a rate is known for whole seconds only: a batch that holds a
/// second whole tells the rate of that second, and one that holds a part of it tells less, never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Net consumption in the busiest second; at least zero.
    busiest: i64,
    consumed: i64,
    /// Records with consumption.
    records: u32,
    /// In epoch seconds.
    first: i64,
    current: i64,
    in_current: i64,
}

/// Folds a batch to the activity of each bucket shard in it, in the order in which the shards first
/// appear. A record that is in the batch twice counts once. `recall` knows the level of a shard as earlier
/// batches left it, if anybody does.
#[must_use]
pub fn fold<'a>(
    changes: Vec<BucketChange<'a, BucketImage<'a>>>,
    mut recall: impl FnMut(&BucketKey<'a>) -> Option<Level<'a>>,
) -> Vec<Activity<'a>> {
    let mut places: HashMap<BucketKey<'a>, usize> = HashMap::new();
    let mut activities: Vec<Activity<'a>> = Vec::new();
    for change in changes {
        if let Some(place) = places.get(&change.bucket) {
            activities[*place].go_on(change);
        } else {
            places.insert(change.bucket.clone(), activities.len());
            let level = recall(&change.bucket);
            activities.push(Activity::start(change, level));
        }
    }
    activities
}

impl<'a> Activity<'a> {
    fn start(change: BucketChange<'a, BucketImage<'a>>, level: Option<Level<'a>>) -> Self {
        let BucketChange { bucket, sequence, created, old, new, .. } = change;
        let mut activity = Self {
            bucket,
            first: sequence,
            last: sequence,
            seen: created,
            image: BucketImage::Absent,
            level,
            demand: BTreeMap::new(),
        };
        activity.take(&old, new, created);
        activity
    }

    fn go_on(&mut self, change: BucketChange<'a, BucketImage<'a>>) {
        if change.sequence <= self.last {
            return;
        }
        self.last = change.sequence;
        self.seen = change.created;
        self.take(&change.old, change.new, change.created);
    }

    fn take(&mut self, old: &BucketImage<'a>, new: BucketImage<'a>, created: EpochMillis) {
        let level = self.level.take();
        if let Some(after) = new.plain() {
            let before = old.plain();
            self.level = Some(match (before, level) {
                (Some(before), Some(level)) => level.follow(before, after, created),
                (Some(before), None) => Level::first(before, after, created),
                (None, _) => Level::created(after.clone(), self.bucket.shard, created),
            });
            // With more shards, each is written less: what came before tells nothing of it.
            if before.is_some_and(|before| before.shards != after.shards) {
                self.demand.clear();
            }
            self.count(before, after, created);
        }
        self.image = new;
    }

    fn count(&mut self, before: Option<&BucketState<'a>>, after: &BucketState<'a>, created: EpochMillis) {
        for (limit, state) in &after.limits {
            let before = before.and_then(|before| before.limits.get(limit)).map_or(0, |state| state.consumed.get());
            let consumed = state.consumed.get().saturating_sub(before);
            if consumed == 0 {
                continue;
            }
            let second = created.get() / 1000;
            match self.demand.get_mut(limit) {
                Some(demand) => demand.add(consumed, second),
                None => {
                    self.demand.insert(limit.clone(), Demand::new(consumed, second));
                }
            }
        }
    }
}

impl Demand {
    fn new(consumed: i64, second: i64) -> Self {
        let mut demand = Self { busiest: 0, consumed: 0, records: 0, first: second, current: second, in_current: 0 };
        demand.add(consumed, second);
        demand
    }

    fn add(&mut self, consumed: i64, second: i64) {
        // Clocks of storage nodes differ: what comes late belongs to the second that is counted now.
        if second > self.current {
            self.current = second;
            self.in_current = 0;
        }
        self.in_current = self.in_current.saturating_add(consumed);
        self.consumed = self.consumed.saturating_add(consumed);
        self.records += 1;
        self.busiest = self.busiest.max(self.in_current);
    }

    /// What is consumed in a second, going by the busiest one.
    #[must_use]
    pub const fn a_second(&self) -> Millitokens {
        Millitokens::new(self.busiest)
    }

    /// What is consumed in a second on average, over all seconds that the batch touches.
    #[must_use]
    pub const fn a_second_on_average(&self) -> Millitokens {
        Millitokens::new(self.consumed / (self.current - self.first + 1))
    }

    /// What is consumed in so many milliseconds, going by the busiest second.
    #[must_use]
    pub fn within(&self, millis: u32) -> Millitokens {
        let consumed = i128::from(self.busiest) * i128::from(millis) / 1000;
        Millitokens::new(i64::try_from(consumed).unwrap_or(i64::MAX))
    }

    /// What one record consumed on average.
    #[must_use]
    pub fn mean(&self) -> Millitokens {
        Millitokens::new(self.consumed / i64::from(self.records.max(1)))
    }
}
