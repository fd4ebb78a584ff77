//! The keeper's process: what it remembers, and what it still has to write.

use std::collections::BTreeMap;

use tidegate_domain::{
    activity::{self, Activity, Trail},
    bucket::{BucketKey, Limit, Shard},
    level::Level,
    recent::Recent,
    refill::{self, Decision, Policy, Refill},
    repair,
    sightings::Sightings,
    split::{self, Step},
    state::ShardCount,
    tokens::Millitokens,
};

use crate::model::{State, World, Write, key, time};

pub type Items = BTreeMap<Shard, State>;

/// How much of its work the keeper gets done at once; the rest comes later, or never.
#[derive(Clone, Copy, Debug)]
pub struct Luck {
    /// Steps of a split.
    pub steps: usize,
    /// Whether refills are written at once.
    pub refills: bool,
}

impl Luck {
    pub const GOOD: Self = Self { steps: usize::MAX, refills: true };
}

/// A write under way, and what the repair remembers once it is done.
pub type UnderWay = (Write, Option<State>);

pub struct Keeper {
    pub policy: Policy,
    pub followed: Recent<BucketKey<'static>, Trail<'static>>,
    pub found: Sightings,
    pub settled: Option<ShardCount>,
    /// Writes under way.
    pub writes: Vec<UnderWay>,
}

impl Keeper {
    pub fn new(min_interval: u32, min_credit: i64) -> Self {
        Self {
            policy: Policy { horizon: 4000, min_credit: Millitokens::new(min_credit), min_interval },
            followed: Recent::new(64),
            found: Sightings::new(64),
            settled: None,
            writes: Vec::new(),
        }
    }

    /// The process ends; what it sent goes on.
    pub fn forget(&mut self) {
        (self.followed, self.found, self.settled) = (Recent::new(64), Sightings::new(64), None);
    }

    /// A batch of records comes in, the first `again` of them not for the first time.
    pub fn deliver(&mut self, world: &mut World, records: usize, again: usize, luck: Luck) {
        let batch = world.read(records, again);
        let activities = activity::fold(batch, |bucket| self.followed.get(bucket).cloned());
        let is_overfull = |activity: &&Activity<'static>| activity.image.plain().is_some_and(State::is_overfull);
        let (overfull, others): (Vec<_>, Vec<_>) = activities.iter().partition(is_overfull);
        for activity in others {
            self.keep(world, activity, None, luck);
        }
        let zero = activities.iter().find(|activity| activity.bucket.shard == Shard::ZERO);
        let fresh = match zero.and_then(|zero| zero.image.plain()) {
            Some(zero) if zero.shards > ShardCount::ONE && self.settled != Some(zero.shards) => {
                self.settle(world, luck)
            }
            _ => None,
        };
        for activity in overfull {
            self.keep(world, activity, fresh.as_ref(), luck);
        }
        for activity in &activities {
            if let Some(trail) = activity.trail() {
                self.followed.put(activity.bucket.clone(), trail);
            }
        }
    }

    fn keep(&mut self, world: &mut World, activity: &Activity<'static>, fresh: Option<&Items>, luck: Luck) {
        let Activity { bucket, level: Some(level), demand, has_split, .. } = activity else { return };
        let level = match fresh.and_then(|fresh| fresh.get(&bucket.shard)) {
            Some(state) => Level::found([level.clone()], state, time(world.now)),
            None => level.clone(),
        };
        let state = level.seen();
        let is_settled = state.shards == ShardCount::ONE || self.settled == Some(state.shards);
        if bucket.shard == Shard::ZERO && state.is_overfull() && !is_settled {
            return;
        }
        let decision = if demand.is_empty() && *has_split {
            refill::decide_idle(&level, time(world.now), &self.policy)
        } else {
            refill::decide(&level, demand, time(world.now), &self.policy)
        };
        if let Decision::Refill(refill) = decision {
            self.check(&refill, state, world.now);
            let write = Write::Refill { shard: bucket.shard, seen: state.clone(), refill };
            self.start(world, (write, None), luck.refills);
        }
    }

    /// What is true of every refill that is planned.
    fn check(&self, refill: &Refill<'_>, seen: &State, now: i64) {
        let Policy { min_credit, min_interval, .. } = self.policy;
        assert!(now - seen.last_refill.get() >= i64::from(min_interval), "too soon");
        assert!(seen.last_refill < refill.until && refill.until <= time(now), "neither now nor before");
        assert!(refill.credits.values().all(|credit| *credit > Millitokens::default()), "a credit of nothing");
        let is_filled = |(limit, credit): (&Limit<'_>, &Millitokens)| {
            let state = &seen.limits[limit];
            state.tokens.get() + credit.get() == seen.share(limit, state).capacity.get()
        };
        let is_worth_it = refill.credits.values().any(|credit| *credit >= min_credit);
        assert!(is_worth_it || !refill.trims.is_empty() || refill.credits.iter().any(is_filled), "too little");
    }

    /// Reads all shards and takes the steps that are missing; the shards, if all are done.
    pub fn settle(&mut self, world: &mut World, luck: Luck) -> Option<Items> {
        let mut items = world.items.clone();
        let mut taken = 0;
        while let Some(step) = split::next(&items) {
            let write = match &step {
                Step::Split(split) => Write::Split { donor: items[&split.donor].clone(), split: split.clone() },
                Step::Raise { shard, shards } => Write::Raise { shard: *shard, shards: *shards },
            };
            if !self.start(world, (write, None), taken < luck.steps) {
                return None;
            }
            split::apply(&step, &mut items);
            taken += 1;
        }
        self.settled = items.get(&Shard::ZERO).map(|zero| zero.shards);
        Some(items)
    }

    /// The repair; how many writes it made or began.
    pub fn repair(&mut self, world: &mut World, luck: Luck) -> usize {
        let before = world.stream.len() + self.writes.len();
        let mut items = world.items.clone();
        if split::next(&items).is_some() {
            match self.settle(world, luck) {
                Some(settled) => items = settled,
                None => return 1,
            }
        }
        let Some(zero) = items.get(&Shard::ZERO).cloned() else { return 0 };
        for (shard, mut state) in items {
            let alignment = (shard != Shard::ZERO).then(|| repair::align(&zero, &state, time(world.now))).flatten();
            if let Some(alignment) = alignment {
                repair::apply(&alignment, &mut state);
                if !self.start(world, (Write::Align { shard, alignment }, None), luck.steps > 0) {
                    continue;
                }
            }
            let (key, now) = (key(shard), time(world.now));
            let followed = self.followed.get(&key).map(|trail| trail.level().clone());
            let level =
                Level::found([followed, Some(self.found.see(&key, &state, now))].into_iter().flatten(), &state, now);
            let decision = refill::decide_idle(&level, now, &self.policy);
            if let Decision::Refill(refill) = decision {
                self.check(&refill, &state, world.now);
                let after = refill.applied_to(state.clone());
                let write = Write::Refill { shard, seen: state, refill };
                self.start(world, (write, Some(after)), luck.refills);
            }
        }
        world.stream.len() + self.writes.len() - before
    }

    /// Begins a write: done now, or left for later. Whether it is done.
    fn start(&mut self, world: &mut World, under_way: UnderWay, now: bool) -> bool {
        self.writes.push(under_way);
        now && self.write(world, self.writes.len() - 1, false)
    }

    /// Carries out a write that is under way, which may come again.
    pub fn write(&mut self, world: &mut World, at: usize, again: bool) -> bool {
        let under_way = self.writes.swap_remove(at);
        let is_written = world.apply(&under_way.0);
        if let ((Write::Refill { shard, .. }, Some(after)), true) = (&under_way, is_written) {
            self.found.see(&key(*shard), after, time(world.now));
        }
        if again {
            self.writes.push(under_way);
        }
        is_written
    }
}
