//! Reserves a token: counts the other clients' tokens, takes a free slot, and counts again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use quick_cache::sync::Cache;
use tidegate_aws::{
    error::StoreError,
    slots::{Coordinate, Slots},
};
use tidegate_domain::{
    reservation::{HIGHEST_LIMIT, Occupancy, probes},
    slot::{SlotOutcome, SlotWrite},
    sweep::seconds,
};
use tokio::{runtime::Handle, time::Instant};

use super::{
    error::{ReservationDenied, ReserveError},
    known::{Claim, Known},
    token::{HeldSlot, Reservation},
};
use crate::{
    background::Background,
    clock::Clock,
    error::TableError,
    token_limits::{Holder, LimitCache},
};

/// How many accounts' slots are remembered.
const CAPACITY: usize = 10_000;

/// The most full counts of one request, while other clients take the free slots.
const COUNTS: u32 = 16;

/// The shortest and the longest time between two attempts of a request that waits.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
        let Some(deadline) = deadline else { return self.reserve(holder).await };
        let mut denied = None;
        let mut backoff = BACKOFF.0;
        loop {
            let attempt = async {
                // Callers that wait share their denials, so that they do not all read the same slots.
                match (&denied, self.known_denial(holder).await?) {
                    (Some(_), Some(denied)) => Err(denied.into()),
                    _ => self.reserve(holder).await,
                }
            };
            match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Err(ReserveError::Denied(again))) => denied = Some(again),
                Ok(reserved) => return reserved,
                Err(_) => return Err(denied.map_or(ReserveError::TimedOut, ReserveError::Denied)),
            }
            // At least half of the backoff, so that callers that were denied together do not come back together.
            let wait = backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
            drop(tokio::time::timeout_at(deadline, self.clock.sleep(wait)).await);
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    async fn known_denial(&self, holder: &Holder) -> Result<Option<ReservationDenied>, ReserveError> {
        let limit = self.limit(holder).await?;
        let held = self.known(holder).denied(limit, self.clock.moment().elapsed);
        Ok(held.map(|held| ReservationDenied { held, limit: limit.into() }))
    }

    async fn reserve(self: &Arc<Self>, holder: &Holder) -> Result<Reservation, ReserveError> {
        let limit = self.limit(holder).await?;
        let known = self.known(holder);
        let margin = self.margin_of(limit);
        let mut held = u64::from(limit);
        let (mut usable, mut counted) = self.usable(holder, &known, limit).await?;
        let mut probes = if self.margin.is_some() { 1 } else { probes(limit) };
        for _ in 0..COUNTS {
            let settled = known.settled();
            while probes > 0
                && let Some(claim) = known.claim(usable, self.now())
            {
                if let Some(reservation) = self.take(holder, &known, claim).await? {
                    return self.confirm(holder, &known, reservation, usable, limit).await;
                }
                probes -= 1;
            }
            if probes > 0 && known.has_claims() {
                // Other callers of this process are about to take the last free slots.
                settled.await;
            }
            let elapsed = self.clock.moment().elapsed;
            let all = match counted.take().filter(|counted| counted.from == 0) {
                Some(all) => all,
                None => self.count(holder, &known, 0).await?,
            };
            held = all.held().unwrap_or(held);
            if held + u64::from(margin) >= limit.into() {
                known.set_denied(limit, held, elapsed);
                break;
            }
            known.set_granted();
            (usable, probes) = (all.usable(limit, margin).unwrap_or(0), 1);
        }
        Err(ReservationDenied { held, limit: limit.into() }.into())
    }

    /// Returns how many tokens of a limit stay free for Python clients: not all of them.
    fn margin_of(&self, limit: u32) -> u32 {
        self.margin.unwrap_or(0).min(limit.saturating_sub(1))
    }

    async fn limit(&self, holder: &Holder) -> Result<u32, ReserveError> {
        let Holder { resource, account } = holder.clone();
        match self.limits.get(holder).await?.map(|limit| limit.tokens) {
            None => Err(ReserveError::UnknownLimit { resource, account }),
            Some(0) => Err(ReserveError::Blocked { resource, account }),
            Some(tokens) => Ok(u32::try_from(tokens).unwrap_or(u32::MAX).min(HIGHEST_LIMIT)),
        }
    }

    /// Returns how many slots may be taken now, with the count that shows it. Beside Python clients, the count is made for
    /// this request.
    async fn usable(
        &self,
        holder: &Holder,
        known: &Known,
        limit: u32,
    ) -> Result<(u32, Option<Arc<Occupancy>>), TableError> {
        let elapsed = self.clock.moment().elapsed;
        if self.margin.is_none()
            && let Some(usable) = known.usable(limit, elapsed)
        {
            return Ok((usable, None));
        }
        let margin = self.margin_of(limit);
        let mut from = known.from(limit);
        let mut reads = 0;
        let (usable, counted) = loop {
            let occupancy = self.count(holder, known, from).await?;
            if let Some(usable) = occupancy.usable(limit, margin) {
                break (usable, occupancy);
            }
            // If the second read does not suffice either, the third one shows all slots.
            reads += 1;
            from = if reads == 1 { occupancy.next_from(limit, margin) } else { 0 };
        };
        known.set_usable(limit, usable, elapsed);
        Ok((usable, Some(counted)))
    }

    /// Counts the tokens of all clients, and shows the slots from `from` on.
    async fn count(&self, holder: &Holder, known: &Known, from: u32) -> Result<Arc<Occupancy>, TableError> {
        let count = async {
            let counted = self.slots.occupancy(coordinate(holder), from, self.clock.moment().now).await;
            counted.map_err(|error| TableError::new(self.slots.table(), error))
        };
        known.count(from, count).await
    }

    /// Takes a slot if it is free. The write goes on if the caller goes away; then the slot is freed again.
    async fn take(
        self: &Arc<Self>,
        holder: &Holder,
        known: &Arc<Known>,
        claim: Claim,
    ) -> Result<Option<Reservation>, TableError> {
        let slot = HeldSlot {
            shared: Arc::clone(self),
            holder: holder.clone(),
            known: Arc::clone(known),
            number: claim.slot,
            id: format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)),
            fence: 0,
        };
        let taking = async move {
            let taken = slot.take().await;
            drop(claim);
            taken
        };
        self.in_background(taking).await?
    }

    /// Writes in a task of its own, so that it happens even if the caller goes away.
    /// It starts at once.
    pub(super) fn in_background<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, TableError>> {
        let table = self.slots.table().to_owned();
        let ended = |error| StoreError::Unavailable { operation: "UpdateItem", source: Box::new(error) };
        self.background.run(task).map_err(move |error| TableError::new(&table, ended(error))).boxed()
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
        mut reservation: Reservation,
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
        reservation.free().await?;
        Err(ReservationDenied { held: limit.into(), limit: limit.into() }.into())
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
