//! Activity: what a batch of changes shows of each bucket shard, and how much its callers want.

use std::collections::{BTreeMap, HashMap};

use crate::{
    bucket::{BucketChange, BucketKey, Limit},
    level::Level,
    sequence::SequenceNumber,
    state::{BucketImage, BucketState, ShardCount},
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
    /// The last of its records that is known.
    last: Option<SequenceNumber>,
    /// When that was made, in whole seconds on AWS.
    pub seen: EpochMillis,
    /// What it shows.
    pub image: BucketImage<'a>,
    /// What has accrued and is not in the tokens of that image; `None` unless the bucket is a plain one.
    pub level: Option<Level<'a>>,
    /// What was consumed while the bucket had as many shards as it has now, by limit.
    pub demand: BTreeMap<Limit<'a>, Demand>,
    /// Whether the batch shows that the shard learnt of more shards, or is one of them.
    pub has_split: bool,
}

/// What is remembered of a bucket shard from one batch to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail<'a> {
    /// The last record that is in it, and when that was made.
    last: SequenceNumber,
    seen: EpochMillis,
    level: Level<'a>,
    /// Of each limit, what was consumed in the second in which the batch ended.
    demand: BTreeMap<Limit<'a>, Demand>,
}

/// What was consumed of a limit in a batch.
///
/// Creation times are whole seconds, so a rate is known for whole seconds only: batches that hold a second
/// whole tell the rate of that second, and those that hold a part of it tell less, never more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Net consumption in the busiest second; at least zero.
    busiest: i64,
    consumed: i64,
    /// Records with consumption.
    records: u32,
    /// In epoch seconds.
    current: i64,
    in_current: i64,
}

/// Folds a batch to the activity of each bucket shard in it, in the order in which the shards first
/// appear. `recall` knows the trail of a shard as earlier batches left it, if anybody does. A record counts once
/// that is in the batch twice, or is in the trail.
#[must_use]
pub fn fold<'a>(
    changes: Vec<BucketChange<'a, BucketImage<'a>>>,
    mut recall: impl FnMut(&BucketKey<'a>) -> Option<Trail<'a>>,
) -> Vec<Activity<'a>> {
    let mut places: HashMap<BucketKey<'a>, usize> = HashMap::new();
    let mut activities: Vec<Activity<'a>> = Vec::new();
    for change in changes {
        if let Some(place) = places.get(&change.bucket) {
            activities[*place].go_on(change);
        } else {
            places.insert(change.bucket.clone(), activities.len());
            let mut activity = Activity::start(&change, recall(&change.bucket));
            activity.go_on(change);
            activities.push(activity);
        }
    }
    activities
}

impl<'a> Trail<'a> {
    /// The level that the batch left.
    #[must_use]
    pub const fn level(&self) -> &Level<'a> {
        &self.level
    }

    /// The same trail, borrowing from nothing.
    #[must_use]
    pub fn into_owned(self) -> Trail<'static> {
        let demand = self.demand.into_iter().map(|(limit, demand)| (limit.into_owned(), demand)).collect();
        Trail { last: self.last, seen: self.seen, level: self.level.into_owned(), demand }
    }
}

impl<'a> Activity<'a> {
    /// What the trail shows, before the first change.
    fn start(change: &BucketChange<'a, BucketImage<'a>>, trail: Option<Trail<'a>>) -> Self {
        let mut activity = Self {
            bucket: change.bucket.clone(),
            first: change.sequence,
            last: None,
            seen: change.created,
            image: BucketImage::Absent,
            level: None,
            demand: BTreeMap::new(),
            has_split: false,
        };
        if let Some(Trail { last, seen, level, demand }) = trail {
            activity.image = BucketImage::Plain(level.seen().clone());
            (activity.last, activity.seen, activity.level, activity.demand) = (Some(last), seen, Some(level), demand);
        }
        activity
    }

    fn go_on(&mut self, change: BucketChange<'a, BucketImage<'a>>) {
        if self.last.is_some_and(|last| change.sequence <= last) {
            return;
        }
        self.last = Some(change.sequence);
        self.seen = change.created;
        self.take(&change.old, change.new, change.created);
    }

    /// What is to be remembered of the shard for the next batch; nothing, unless the bucket is a plain one.
    #[must_use]
    pub fn trail(&self) -> Option<Trail<'a>> {
        let demand = self.demand.iter().map(|(limit, demand)| (limit.clone(), demand.carried()));
        Some(Trail { last: self.last?, seen: self.seen, level: self.level.clone()?, demand: demand.collect() })
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
            if before.is_none_or(|before| before.shards != after.shards) {
                self.has_split = after.shards > ShardCount::ONE;
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
        let mut demand = Self { busiest: 0, consumed: 0, records: 0, current: second, in_current: 0 };
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

    /// The demand at the beginning of the next batch, which may go on in the same second.
    const fn carried(self) -> Self {
        Self { busiest: 0, consumed: 0, records: 0, ..self }
    }

    /// What is consumed in a second, going by the busiest one.
    #[must_use]
    pub const fn a_second(&self) -> Millitokens {
        Millitokens::new(self.busiest)
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
