//! What a limiter knows of one bucket: its shards, and the requests that wait for a write to one of them.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_aws::acquires::BucketItem;
use tidegate_domain::{
    admission::{self, Amounts, Outcome, Shortage},
    bucket::{Entity, Shard},
    state::{BucketState, ShardCount},
    time::EpochMillis,
};

use crate::{
    core::{Core, Name},
    lane::{self, GiveRequest, TakeRequest},
};

/// For how long a denial follows from an image.
const DENIAL_LIFETIME: Duration = Duration::from_secs(1);

pub(crate) struct Bucket {
    pub(crate) name: Name,
    shards: Mutex<Shards>,
    /// Callers that wait for tokens try in turn, in the order of their arrival.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

struct Shards {
    /// How many shards the bucket has, as far as is known.
    count: u32,
    /// The entity to which consumption cascades, as far as is known.
    parent: Option<Entity<'static>>,
    lanes: BTreeMap<Shard, Lane>,
}

/// One shard: at most one write is under way, and the requests that arrive meanwhile wait for the next one.
#[derive(Default)]
struct Lane {
    takes: Vec<TakeRequest>,
    gives: Vec<GiveRequest>,
    is_writing: bool,
    seen: Option<Arc<Seen>>,
}

/// An item, and when it was so.
pub(crate) struct Seen {
    pub(crate) item: BucketItem,
    pub(crate) at: EpochMillis,
}

/// The requests of the next write.
pub(crate) struct Batch {
    pub(crate) takes: Vec<TakeRequest>,
    pub(crate) gives: Vec<GiveRequest>,
}

/// Where to try a request.
pub(crate) enum Choice {
    Shard(Shard),
    /// Every shard denies it, by what is known of them.
    AllDry(Vec<Shortage<'static>>),
}

impl Seen {
    /// The item's state, if the rules of a plain token bucket apply to it. A `vu` of 0 only asks for a pass that clamps.
    pub(crate) fn plain(&self) -> Option<&BucketState<'static>> {
        let item = &self.item;
        let is_plain = !item.is_disabled
            && !item.is_soft
            && item.bypass_until.is_none()
            && item.valid_until.is_none_or(|until| until == 0);
        item.image.plain().filter(|_| is_plain)
    }

    /// Whether a denial may follow from it at `now`.
    pub(crate) fn is_recent(&self, now: EpochMillis) -> bool {
        self.item.valid_until.is_none() && now.since(self.at) <= DENIAL_LIFETIME
    }
}

impl Bucket {
    pub(crate) fn new(name: Name) -> Self {
        let shards = Shards { count: 1, parent: None, lanes: BTreeMap::new() };
        Self { name, shards: Mutex::new(shards), turn: tokio::sync::Mutex::default() }
    }

    /// The entity to which consumption cascades, as far as is known.
    pub(crate) fn parent(&self) -> Option<Entity<'static>> {
        self.lock().parent.clone()
    }

    pub(crate) fn count(&self) -> u32 {
        self.lock().count
    }

    /// Remembers that the bucket has so many shards. The number only grows.
    pub(crate) fn learn(&self, count: ShardCount) {
        let mut shards = self.lock();
        shards.count = shards.count.max(count.get());
    }

    /// Draws a shard for a request, but none of `tried`, and none that is known to deny it.
    pub(crate) fn choose(&self, amounts: &Amounts<'static>, tried: &[Shard], now: EpochMillis) -> Choice {
        let shards = self.lock();
        let all = (0..shards.count).map(Shard::new).filter(|shard| !tried.contains(shard));
        let mut denials = Vec::new();
        let mut open = Vec::new();
        for shard in all {
            match shards.lanes.get(&shard).and_then(|lane| known_denial(lane, amounts, now)) {
                Some(denial) => denials.push(denial),
                None => open.push(shard),
            }
        }
        if let Some(shard) = fastrand::choice(&open) {
            return Choice::Shard(*shard);
        }
        let wait = |denial: &Vec<Shortage<'_>>| denial.iter().map(|shortage| shortage.remedy).max();
        Choice::AllDry(denials.into_iter().min_by_key(wait).unwrap_or_default())
    }

    /// Lets a request wait for the next write to a shard.
    pub(crate) fn take(self: &Arc<Self>, core: &Arc<Core>, shard: Shard, request: TakeRequest) {
        self.enqueue(core, shard, |lane| lane.takes.push(request));
    }

    /// Lets an adjustment wait for the next write to a shard.
    pub(crate) fn give(self: &Arc<Self>, core: &Arc<Core>, shard: Shard, request: GiveRequest) {
        self.enqueue(core, shard, |lane| lane.gives.push(request));
    }

    fn enqueue(self: &Arc<Self>, core: &Arc<Core>, shard: Shard, push: impl FnOnce(&mut Lane)) {
        let mut shards = self.lock();
        let lane = shards.lanes.entry(shard).or_default();
        push(lane);
        if !mem::replace(&mut lane.is_writing, true) {
            core.spawn(lane::run(Arc::clone(core), Arc::clone(self), shard));
        }
    }

    /// Takes all requests that wait for a shard. Without any, the shard has no writer any more.
    pub(crate) fn next(&self, shard: Shard) -> Option<Batch> {
        let mut shards = self.lock();
        let lane = shards.lanes.get_mut(&shard)?;
        let batch = Batch { takes: mem::take(&mut lane.takes), gives: mem::take(&mut lane.gives) };
        lane.is_writing = !batch.takes.is_empty() || !batch.gives.is_empty();
        lane.is_writing.then_some(batch)
    }

    /// Gives up all requests of a shard, because its writer has panicked.
    pub(crate) fn abandon(&self, shard: Shard) {
        let mut shards = self.lock();
        if let Some(lane) = shards.lanes.get_mut(&shard) {
            *lane = Lane::default();
        }
    }

    pub(crate) fn seen(&self, shard: Shard) -> Option<Arc<Seen>> {
        self.lock().lanes.get(&shard)?.seen.clone()
    }

    /// Remembers an item that a call returned which began at `at`.
    pub(crate) fn observe(&self, shard: Shard, item: BucketItem, at: EpochMillis) -> Arc<Seen> {
        let seen = Arc::new(Seen { item, at });
        let mut shards = self.lock();
        if let Some(state) = seen.item.image.plain() {
            shards.count = shards.count.max(state.shards.get());
        }
        shards.parent.clone_from(&seen.item.parent);
        shards.lanes.entry(shard).or_default().seen = Some(Arc::clone(&seen));
        seen
    }

    /// Forgets an item that does not exist. Without shard 0, there is no bucket.
    pub(crate) fn forget(&self, shard: Shard) {
        let mut shards = self.lock();
        if let Some(lane) = shards.lanes.get_mut(&shard) {
            lane.seen = None;
        }
        if shard == Shard::ZERO {
            shards.count = 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a shard denies a request, if that follows from what was seen of it a moment ago. Write units come back within
/// milliseconds, so they are asked for.
fn known_denial(lane: &Lane, amounts: &Amounts<'static>, now: EpochMillis) -> Option<Vec<Shortage<'static>>> {
    let seen = lane.seen.as_ref().filter(|seen| seen.is_recent(now))?;
    let state = seen.plain().filter(|state| !state.is_expired(now))?;
    match admission::decide(state, std::slice::from_ref(amounts), now).outcomes.pop()? {
        Outcome::Denied(shortages) if shortages.iter().any(|shortage| !shortage.limit.is_write_units()) => {
            Some(shortages)
        }
        _ => None,
    }
}
