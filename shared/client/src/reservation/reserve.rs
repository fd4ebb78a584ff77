//! How a token is reserved: count the other clients' tokens, take a free slot, and count again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use quick_cache::sync::Cache;
use tidegate_aws::{
    error::StoreError,
    slots::{Coordinate, Slots},
};
use tidegate_domain::{
    reservation::{HIGHEST_LIMIT, Occupancy, RESERVED, probes},
    slot::{SlotChange, SlotOutcome, SlotWrite},
    sweep::seconds,
};
use tokio::{runtime::Handle, time::Instant};

use super::{
    error::{Denied, ReserveError},
    known::Known,
    token::Reservation,
};
use crate::{
    background::Background,
    clock::Clock,
    error::TableError,
    token_limits::{Holder, LimitCache},
};

/// How many accounts' slots are remembered.
const CAPACITY: usize = 10_000;

/// How often a request reads all slots, while other clients take those that were free.
const READS: u32 = 16;

/// The shortest and the longest time between two attempts of a request that waits.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often a slot is tried that is free and has a fencing number from a clock that is ahead.
const FENCE_ATTEMPTS: u32 = 3;

/// What all clones of a client share.
pub(super) struct Shared {
    pub(super) slots: Slots,
    limits: LimitCache,
    margin: Option<u32>,
    owner: Option<String>,
    pub(super) clock: Clock,
    pub(super) background: Arc<Background>,
    known: Cache<Holder, Arc<Known>>,
}

pub(super) fn coordinate(holder: &Holder) -> Coordinate<'_> {
    Coordinate { resource: &holder.resource, account: &holder.account }
}

impl Shared {
    pub(super) fn new(
        slots: Slots,
        limits: LimitCache,
        margin: Option<u32>,
        owner: Option<String>,
        clock: Clock,
        runtime: Handle,
    ) -> Arc<Self> {
        let (background, known) = (Background::new(runtime), Cache::new(CAPACITY));
        Arc::new(Self { slots, limits, margin, owner, clock, background, known })
    }

    /// Reserves a token, and waits for one until the deadline.
    pub(super) async fn reserve_until(
        self: &Arc<Self>,
        holder: &Holder,
        deadline: Option<Instant>,
    ) -> Result<Reservation, ReserveError> {
        let mut backoff = BACKOFF.0;
        loop {
            let reserved = self.reserve(holder).await;
            let Some(deadline) = deadline.filter(|_| matches!(reserved, Err(ReserveError::Denied(_)))) else {
                return reserved;
            };
            // At least half of the backoff, so that callers that were denied together do not come back together.
            let wait = backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
            let is_over = Instant::now() + wait > deadline;
            if is_over || tokio::time::timeout_at(deadline, self.clock.sleep(wait)).await.is_err() {
                return reserved;
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    async fn reserve(self: &Arc<Self>, holder: &Holder) -> Result<Reservation, ReserveError> {
        let limit = self.limit(holder).await?;
        let known = self.known(holder);
        let (margin, mut held) = (self.margin.unwrap_or(0), u64::from(limit));
        let mut usable = self.usable(holder, &known, limit).await?;
        let mut probes = if self.margin.is_some() { 1 } else { probes(limit) };
        for _ in 0..READS {
            while probes > 0
                && let Some(slot) = known.claim(usable, self.now())
            {
                if let Some(reservation) = self.take(holder, &known, slot).await? {
                    return self.confirm(holder, &known, reservation, usable, limit).await;
                }
                probes -= 1;
            }
            let all = self.count(holder, &known, 0).await?;
            held = all.held().unwrap_or(held);
            if held + u64::from(margin) >= limit.into() {
                break;
            }
            (usable, probes) = (all.usable(limit, margin).unwrap_or(0), 1);
        }
        Err(ReserveError::Denied(Denied { held, limit: limit.into() }))
    }

    async fn limit(&self, holder: &Holder) -> Result<u32, ReserveError> {
        let Holder { resource, account } = holder.clone();
        match self.limits.get(holder).await?.map(|limit| limit.tokens) {
            None => Err(ReserveError::UnknownLimit { resource, account }),
            Some(0) => Err(ReserveError::Blocked { resource, account }),
            Some(tokens) => Ok(u32::try_from(tokens).unwrap_or(u32::MAX).min(HIGHEST_LIMIT)),
        }
    }

    /// Returns how many slots may be taken now. Beside Python clients, the count is made for this request.
    async fn usable(&self, holder: &Holder, known: &Known, limit: u32) -> Result<u32, TableError> {
        let elapsed = self.clock.moment().elapsed;
        if self.margin.is_none()
            && let Some(usable) = known.usable(limit, elapsed)
        {
            return Ok(usable);
        }
        let margin = self.margin.unwrap_or(0);
        let mut from = known.from(limit);
        let mut reads = 0;
        let usable = loop {
            let occupancy = self.count(holder, known, from).await?;
            if let Some(usable) = occupancy.usable(limit, margin) {
                break usable;
            }
            // If the second read does not suffice either, the third one shows all slots.
            reads += 1;
            from = if reads == 1 { occupancy.next_from(limit, margin) } else { 0 };
        };
        known.set_usable(limit, usable, elapsed);
        Ok(usable)
    }

    /// Counts the tokens of all clients, and shows the slots from `from` on.
    async fn count(&self, holder: &Holder, known: &Known, from: u32) -> Result<Arc<Occupancy>, TableError> {
        let count = async { self.slots.occupancy(coordinate(holder), from, self.clock.moment().now).await };
        known.count(from, count).await.map_err(|error| TableError::new(self.slots.table(), error))
    }

    /// Takes a slot if it is free. The write goes on if the caller goes away; then the slot is freed again.
    async fn take(
        self: &Arc<Self>,
        holder: &Holder,
        known: &Arc<Known>,
        slot: u32,
    ) -> Result<Option<Reservation>, TableError> {
        let (shared, holder, known) = (Arc::clone(self), holder.clone(), Arc::clone(known));
        let taking = async move {
            let taken = shared.write_take(&holder, slot).await;
            let expires = match &taken {
                Ok(Taken::Ours { expires, .. } | Taken::Held(expires)) => Some(*expires),
                Err(_) => None,
            };
            known.settle(slot, expires);
            Ok(match taken? {
                Taken::Ours { id, fence, expires } => {
                    Some(Reservation::new(shared, holder, known, slot, id, fence, expires))
                }
                Taken::Held(_) => None,
            })
        };
        self.in_background(taking).await?
    }

    /// Writes in a task of its own, so that it happens even if the caller goes away.
    pub(super) async fn in_background<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, TableError> {
        let ended = |error| StoreError::Unavailable { operation: "UpdateItem", source: Box::new(error) };
        self.background.run(task).await.map_err(|error| TableError::new(self.slots.table(), ended(error)))
    }

    async fn write_take(&self, holder: &Holder, slot: u32) -> Result<Taken, TableError> {
        let id = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut fence = 0;
        for _ in 0..FENCE_ATTEMPTS {
            let now = self.clock.moment().now;
            fence = fence.max(now.get());
            let change = SlotChange::Take { fence, expires: seconds(now.after(RESERVED)) };
            match self.write(holder, slot, &SlotWrite { holder: &id, change }).await? {
                SlotOutcome::Done(Some(expires)) => return Ok(Taken::Ours { id, fence, expires }),
                SlotOutcome::Fenced(least) => fence = least.saturating_add(1),
                SlotOutcome::Held(expires) => return Ok(Taken::Held(expires)),
                SlotOutcome::Done(None) | SlotOutcome::Lost | SlotOutcome::Bound(_) => break,
            }
        }
        Ok(Taken::Held(0))
    }

    pub(super) async fn write(
        &self,
        holder: &Holder,
        slot: u32,
        write: &SlotWrite<'_>,
    ) -> Result<SlotOutcome, TableError> {
        let now = self.clock.moment().now;
        let written = self.slots.write(coordinate(holder), slot, write, self.owner.as_deref(), now).await;
        written.map_err(|error| TableError::new(self.slots.table(), error))
    }

    /// Counts again, because a Python client may have added a token between the count and the write. Gives the token
    /// back if the limit is exceeded.
    async fn confirm(
        &self,
        holder: &Holder,
        known: &Known,
        reservation: Reservation,
        usable: u32,
        limit: u32,
    ) -> Result<Reservation, ReserveError> {
        if self.margin.is_none() {
            return Ok(reservation);
        }
        let mut occupancy = self.count(holder, known, usable).await?;
        if occupancy.exceeds(limit).is_none() {
            occupancy = self.count(holder, known, 0).await?;
        }
        if occupancy.exceeds(limit) != Some(true) {
            return Ok(reservation);
        }
        let held = occupancy.held().unwrap_or_else(|| u64::from(limit) + 1);
        reservation.withdraw().await?;
        Err(ReserveError::Denied(Denied { held, limit: limit.into() }))
    }

    pub(super) fn known(&self, holder: &Holder) -> Arc<Known> {
        let Ok(known) = self.known.get_or_insert_with(holder, || Ok::<_, Infallible>(Arc::default()));
        known
    }

    /// The present moment in epoch seconds.
    fn now(&self) -> i64 {
        seconds(self.clock.moment().now)
    }
}

/// What became of the write that takes a slot.
enum Taken {
    Ours {
        id: String,
        fence: i64,
        expires: i64,
    },
    /// Another reservation holds it until this time, in epoch seconds.
    Held(i64),
}
