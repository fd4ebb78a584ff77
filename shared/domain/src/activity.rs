//! Activity: the last image of each bucket shard in a batch of changes, and the demand on it.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::{
    bucket::{BucketChange, BucketKey, Limit},
    sequence::SequenceNumber,
    state::{BucketImage, BucketState, ShardCount},
    time::EpochMillis,
    tokens::Millitokens,
};

/// What a batch of changes shows about one bucket shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity<'a> {
    /// The shard.
    pub bucket: BucketKey<'a>,
    /// The sequence number of the shard's first record in the batch.
    pub first: SequenceNumber,
    /// The sequence number of the shard's last record in the batch.
    pub last: SequenceNumber,
    /// When the first record was created, in whole seconds on AWS.
    ///
    /// AWS: [`ApproximateCreationDateTime`](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html).
    pub first_created: EpochMillis,
    /// When the last record was created, which is the time of the image.
    pub created: EpochMillis,
    /// The item after the last record.
    pub image: BucketImage<'a>,
    /// The consumption while the bucket had its current number of shards, by limit.
    pub demand: BTreeMap<Limit<'a>, Demand>,
    /// Whether the stored number of shards changed, or the shard was created as one of several.
    pub has_new_count: bool,
}

/// The consumption of a limit in a batch.
///
/// Creation times are whole seconds, so a rate is known for whole seconds only. A batch that contains only a part of a
/// second shows a lower rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Net consumption in the busiest second; at least zero.
    busiest: i64,
    /// The busiest second, since the epoch.
    busiest_at: i64,
    consumed: i64,
    /// Records with consumption.
    records: u32,
    /// The most that one record consumed; at least zero.
    largest: i64,
    /// In epoch seconds.
    current: i64,
    in_current: i64,
}

/// Folds a batch into the activity of each bucket shard in it, in the order in which the shards first appear. A
/// record that the batch contains twice counts once.
#[must_use]
pub fn fold<'a>(changes: Vec<BucketChange<'a, BucketImage<'a>>>) -> Vec<Activity<'a>> {
    let mut places: HashMap<BucketKey<'a>, usize> = HashMap::new();
    let mut activities: Vec<Activity<'a>> = Vec::new();
    for change in changes {
        if let Some(place) = places.get(&change.bucket) {
            activities[*place].add(change);
        } else {
            places.insert(change.bucket.clone(), activities.len());
            activities.push(Activity::of(change));
        }
    }
    activities
}

impl<'a> Activity<'a> {
    fn of(change: BucketChange<'a, BucketImage<'a>>) -> Self {
        let mut activity = Self {
            bucket: change.bucket,
            first: change.sequence,
            last: change.sequence,
            first_created: change.created,
            created: change.created,
            image: BucketImage::Absent,
            demand: BTreeMap::new(),
            has_new_count: false,
        };
        activity.count(&change.old, change.new, change.created);
        activity
    }

    fn add(&mut self, change: BucketChange<'a, BucketImage<'a>>) {
        if change.sequence <= self.last {
            return;
        }
        (self.last, self.created) = (change.sequence, change.created);
        self.count(&change.old, change.new, change.created);
    }

    fn count(&mut self, old: &BucketImage<'a>, new: BucketImage<'a>, created: EpochMillis) {
        if let BucketImage::Plain(after) = &new {
            let before = old.plain();
            let is_known = !matches!(old, BucketImage::Unfamiliar(_));
            // Earlier demand was measured with another number of shards.
            if is_known && before.map_or(ShardCount::ONE, |before| before.shards) != after.shards {
                self.has_new_count = true;
                self.demand.clear();
            }
            // An item counts consumption since its creation. Without the old image, the new consumption is unknown.
            if is_known {
                self.count_demand(before, after, created);
            }
        }
        self.image = new;
    }

    fn count_demand(&mut self, before: Option<&BucketState<'a>>, after: &BucketState<'a>, created: EpochMillis) {
        for (limit, state) in &after.limits {
            let before = before.and_then(|before| before.limits.get(limit)).map_or(0, |state| state.consumed.get());
            let consumed = state.consumed.get().saturating_sub(before);
            if consumed != 0 {
                self.demand.entry(limit.clone()).or_default().add(consumed, created.get() / 1000);
            }
        }
    }
}

impl Demand {
    fn add(&mut self, consumed: i64, second: i64) {
        // Clocks of storage nodes differ: a late record counts in the current second.
        if second > self.current {
            self.current = second;
            self.in_current = 0;
        }
        self.in_current = self.in_current.saturating_add(consumed);
        self.consumed = self.consumed.saturating_add(consumed);
        self.records += 1;
        self.largest = self.largest.max(consumed);
        if self.in_current > self.busiest {
            (self.busiest, self.busiest_at) = (self.in_current, self.current);
        }
    }

    /// Returns the start of the busiest second.
    #[must_use]
    pub fn busiest_at(&self) -> EpochMillis {
        EpochMillis::new(self.busiest_at.saturating_mul(1000)).unwrap_or(EpochMillis::EPOCH)
    }

    /// Returns the consumption in the busiest second.
    #[must_use]
    pub const fn a_second(&self) -> Millitokens {
        Millitokens::new(self.busiest)
    }

    /// Returns the consumption in this time at the rate of the busiest second.
    #[must_use]
    pub fn within(&self, time: Duration) -> Millitokens {
        let millis = i128::try_from(time.as_millis()).unwrap_or(i128::MAX);
        let consumed = i128::from(self.busiest).saturating_mul(millis) / 1000;
        Millitokens::new(i64::try_from(consumed).unwrap_or(i64::MAX))
    }

    /// Returns the average consumption of a record.
    #[must_use]
    pub fn mean(&self) -> Millitokens {
        Millitokens::new(self.consumed / i64::from(self.records.max(1)))
    }

    /// Returns the highest consumption of one record.
    #[must_use]
    pub const fn largest(&self) -> Millitokens {
        Millitokens::new(self.largest)
    }
}
