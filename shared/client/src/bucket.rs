//! What a limiter knows of one bucket: its shards, and the requests that wait for a write to one of them.

use std::{
    collections::BTreeMap,
    mem,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tidegate_aws::bucket_item::BucketItem;
use tidegate_domain::{
    admission::{self, Amounts, Outcome, Shortage},
    bucket::{Entity, Limit, Shard},
    state::{BucketImage, BucketState, ShardCount, Unfamiliar},
};

use crate::{
    clock::Moment,
    core::{Core, Name},
    error::AcquireError,
    give::GiveRequest,
    lane::{self, TakeRequest},
};

/// How long a denial may follow from an image.
const DENIAL_LIFETIME: Duration = Duration::from_secs(1);

pub(crate) struct Bucket {
    pub(crate) name: Name,
    shards: Mutex<Shards>,
    /// Callers that wait for tokens try in turn, in the order of their arrival.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// One task at a time changes the number of shards.
    pub(crate) resize: tokio::sync::Mutex<()>,
}

struct Shards {
    /// How many shards the bucket has, as far as is known.
    count: u32,
    /// The entity to which consumption cascades, as far as is known.
    parent: Option<Entity<'static>>,
    lanes: BTreeMap<Shard, Lane>,
    /// When an item was last compared with the configuration, as [`Moment::elapsed`].
    compared_at: Option<Duration>,
    /// When the local rate is as if nothing had been admitted: see [`Bucket::admit_locally`].
    local_idle_at: Duration,
}

/// One shard: at most one write is under way, and the requests that arrive meanwhile wait for the next one.
#[derive(Default)]
struct Lane {
    takes: Vec<TakeRequest>,
    gives: Vec<GiveRequest>,
    is_writing: bool,
    seen: Option<Arc<Seen>>,
}

/// An item, and the time at which it was read, as [`Moment::elapsed`].
pub(crate) struct Seen {
    pub(crate) item: BucketItem,
    pub(crate) at: Duration,
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

/// Returns the state of an item if the rules of a plain token bucket apply to it. A `vu` of 0, which an
/// operator's change leaves, only asks for a refill that clamps the tokens.
pub(crate) fn plain(item: &BucketItem) -> Option<&BucketState<'static>> {
    let is_plain = !item.is_disabled
        && !item.is_soft
        && item.bypass_until.is_none()
        && item.valid_until.is_none_or(|until| until == 0);
    item.image.plain().filter(|_| is_plain)
}

impl Seen {
    /// Returns whether a denial may follow from it.
    pub(crate) fn is_recent(&self, moment: Moment) -> bool {
        self.item.valid_until.is_none() && moment.elapsed.saturating_sub(self.at) <= DENIAL_LIFETIME
    }
}

impl Bucket {
    pub(crate) fn new(name: Name) -> Self {
        let shards =
            Shards { count: 1, parent: None, lanes: BTreeMap::new(), compared_at: None, local_idle_at: Duration::ZERO };
        Self {
            name,
            shards: Mutex::new(shards),
            turn: tokio::sync::Mutex::default(),
            resize: tokio::sync::Mutex::default(),
        }
    }

    /// The entity to which consumption cascades, as far as is known.
    pub(crate) fn parent(&self) -> Option<Entity<'static>> {
        self.lock().parent.clone()
    }

    /// The number of shards, as far as is known.
    pub(crate) fn count(&self) -> u32 {
        self.lock().count
    }

    /// Stores the shard count of shard 0.
    pub(crate) fn learn(&self, count: ShardCount) {
        self.lock().count = count.get();
    }

    /// Returns whether the item should be compared with the configuration again. The first time, it was created by it or
    /// was written by other clients a moment ago.
    pub(crate) fn is_comparison_due(&self, moment: Moment, interval: Duration) -> bool {
        let compared_at = *self.lock().compared_at.get_or_insert(moment.elapsed);
        moment.elapsed.saturating_sub(compared_at) >= interval
    }

    pub(crate) fn compared(&self, moment: Moment) {
        self.lock().compared_at = Some(moment.elapsed);
    }

    /// Admits at most `per_second` acquires per second, and as many at once, without the table: the generic cell rate
    /// algorithm. Otherwise returns how long to wait.
    pub(crate) fn admit_locally(&self, per_second: NonZeroU32, moment: Moment) -> Result<(), Duration> {
        let interval = Duration::from_secs(1) / per_second.get();
        let mut shards = self.lock();
        let idle_at = shards.local_idle_at.max(moment.elapsed) + interval;
        let wait = idle_at.saturating_sub(moment.elapsed + Duration::from_secs(1));
        if wait > Duration::ZERO {
            return Err(wait);
        }
        shards.local_idle_at = idle_at;
        Ok(())
    }

    /// Draws a shard for a request, but none of `tried`, and none that is known to deny it. Busy shards are drawn last.
    pub(crate) fn choose(&self, amounts: &Amounts<'static>, tried: &[Shard], busy: &[Shard], moment: Moment) -> Choice {
        let shards = self.lock();
        let all = (0..shards.count).map(Shard::new).filter(|shard| !tried.contains(shard));
        let mut denials = Vec::new();
        let mut open = Vec::new();
        for shard in all {
            match shards.lanes.get(&shard).and_then(|lane| known_denial(lane, amounts, moment)) {
                Some(denial) => denials.push(denial),
                None => open.push(shard),
            }
        }
        let idle: Vec<_> = open.iter().filter(|shard| !busy.contains(shard)).copied().collect();
        if let Some(shard) = fastrand::choice(if idle.is_empty() { &open } else { &idle }) {
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
        let is_idle = {
            let mut shards = self.lock();
            let lane = shards.lanes.entry(shard).or_default();
            push(lane);
            !mem::replace(&mut lane.is_writing, true)
        };
        // A runtime that shuts down drops the task at once, which needs the lock.
        if is_idle {
            core.background.spawn(lane::run(core, self, shard));
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

    /// Gives up all requests of a shard, because its writer has panicked or its runtime has shut down.
    pub(crate) fn abandon(&self, shard: Shard) {
        let lane = self.lock().lanes.get_mut(&shard).map(mem::take);
        // The replies are dropped without the lock: a grant among them takes it.
        drop(lane);
    }

    pub(crate) fn seen(&self, shard: Shard) -> Option<Arc<Seen>> {
        self.lock().lanes.get(&shard)?.seen.clone()
    }

    /// Returns the states of all shards, if each was seen a moment ago and is plain.
    pub(crate) fn recent_states(&self, moment: Moment) -> Option<BTreeMap<Shard, BucketState<'static>>> {
        let shards = self.lock();
        let state = |shard: Shard| {
            let seen = shards.lanes.get(&shard)?.seen.as_ref().filter(|seen| seen.is_recent(moment))?;
            Some((shard, plain(&seen.item).filter(|state| !state.is_expired(moment.now))?.clone()))
        };
        (0..shards.count).map(|shard| state(Shard::new(shard))).collect()
    }

    /// Remembers an item that a call returned which began at `moment`.
    pub(crate) fn observe(&self, shard: Shard, item: BucketItem, moment: Moment) -> Arc<Seen> {
        let seen = Arc::new(Seen { item, at: moment.elapsed });
        let mut shards = self.lock();
        if let Some(state) = seen.item.image.plain() {
            let count = state.shards.get();
            // Shard 0 is the truth; an expired bucket that was created again has one shard.
            shards.count = if shard == Shard::ZERO { count } else { shards.count.max(count) };
        }
        shards.parent = seen.item.owner.cascades_to().cloned();
        shards.lanes.entry(shard).or_default().seen = Some(Arc::clone(&seen));
        seen
    }

    /// Forgets what was seen of a shard. Without shard 0, there is no bucket.
    pub(crate) fn forget(&self, shard: Shard) {
        let mut shards = self.lock();
        if let Some(lane) = shards.lanes.get_mut(&shard) {
            lane.seen = None;
        }
        if shard == Shard::ZERO {
            shards.count = 1;
        }
    }

    /// Returns why a refill of this item cannot help, if it is no plain token bucket.
    pub(crate) fn obstacle(&self, item: &BucketItem) -> Option<AcquireError> {
        let attribute = match &item.image {
            _ if item.is_disabled => return Some(self.disabled()),
            _ if item.bypass_until.is_some() => "bypass",
            _ if item.is_soft => "soft",
            _ if item.valid_until.is_some_and(|until| until > 0) => "vu",
            BucketImage::Plain(_) | BucketImage::Absent => return None,
            BucketImage::Unfamiliar(reason) => match reason {
                Unfamiliar::Schedule => "sched",
                Unfamiliar::Quota => "a quota",
                Unfamiliar::NoRefill => "a limit that refills nothing",
                Unfamiliar::SwitchedOff => "disabled",
                Unfamiliar::Incomplete => "an incomplete limit",
                Unfamiliar::OutOfRange => "a number out of range",
                Unfamiliar::AwaitsClient => "vu",
            },
        };
        Some(self.unsupported(attribute))
    }

    pub(crate) fn disabled(&self) -> AcquireError {
        let Name { entity, resource } = &self.name;
        AcquireError::Disabled { entity: entity.to_string(), resource: resource.to_string() }
    }

    pub(crate) fn not_configured(&self) -> AcquireError {
        let Name { entity, resource } = &self.name;
        AcquireError::NotConfigured { entity: entity.to_string(), resource: resource.to_string() }
    }

    pub(crate) fn unknown(&self, limit: &Limit<'_>) -> AcquireError {
        let Name { entity, resource } = &self.name;
        let (limit, entity, resource) = (limit.to_string(), entity.to_string(), resource.to_string());
        AcquireError::UnknownLimit { limit, entity, resource }
    }

    pub(crate) fn unsupported(&self, attribute: &str) -> AcquireError {
        let Name { entity, resource } = &self.name;
        let (attribute, entity, resource) = (attribute.to_owned(), entity.to_string(), resource.to_string());
        AcquireError::Unsupported { attribute, entity, resource }
    }

    fn lock(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a shard denies a request, if that follows from what was seen of it a moment ago. Write units come back within
/// milliseconds, so they are asked for.
fn known_denial(lane: &Lane, amounts: &Amounts<'static>, moment: Moment) -> Option<Vec<Shortage<'static>>> {
    let seen = lane.seen.as_ref().filter(|seen| seen.is_recent(moment))?;
    let state = plain(&seen.item).filter(|state| !state.is_expired(moment.now))?;
    match admission::outcome(state, amounts, moment.now) {
        Outcome::Denied(shortages) if shortages.iter().any(|shortage| !shortage.limit.is_write_units()) => {
            Some(shortages)
        }
        _ => None,
    }
}
