//! Reserves a token: counts the other clients' tokens, takes a free slot, and counts again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use quick_cache::sync::Cache;
use tidegate_aws::{
    error::StoreError,
    slots::{Coordinate, Slots},
};
use tidegate_domain::{
    reservation::{HIGHEST_LIMIT, LONGEST_WRITE, Occupancy, probes},
    slot::{SlotChange, SlotOutcome, SlotWrite},
    sweep::seconds,
    token_limits::LimitKey,
};
use tokio::{runtime::Handle, time::Instant};

use super::{
    error::{ReservationDenied, ReserveError},
    slot_cache::{Claim, SlotCache},
    token::{HeldSlot, Reservation},
};
use crate::{
    background::Background, clock::Clock, error::Contended, limit_cache::LimitCache, operation_ids::random_id,
    table_error::TableError,
};

/// How many accounts' slots are remembered.
const CAPACITY: usize = 10_000;

/// The maximum number of full counts per request. Further counts are needed only while other clients take the free slots.
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
    known: Cache<LimitKey, Arc<SlotCache>>,
}

pub(super) fn coordinate(key: &LimitKey) -> Coordinate<'_> {
    Coordinate { resource: &key.resource, account: &key.account }
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
        key: &LimitKey,
        deadline: Option<Instant>,
    ) -> Result<Reservation, ReserveError> {
        let Some(deadline) = deadline else { return self.reserve(key).await };
        let mut denied = None;
        let mut backoff = BACKOFF.0;
        loop {
            let attempt = async {
                // Callers that wait share their denials, so that they do not all read the same slots.
                match (&denied, self.known_denial(key).await?) {
                    (Some(_), Some(denied)) => Err(denied.into()),
                    _ => self.reserve(key).await,
                }
            };
            match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Err(ReserveError::Denied(again))) => {
                    // At least half of the backoff, so that callers that were denied together do not come back together.
                    let wait = backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
                    if tokio::time::timeout_at(deadline, self.clock.sleep(wait)).await.is_err() {
                        return Err(again.into());
                    }
                    denied = Some(again);
                }
                Ok(reserved) => return reserved,
                Err(_) => return Err(denied.map_or(ReserveError::TimedOut, ReserveError::Denied)),
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    async fn known_denial(&self, key: &LimitKey) -> Result<Option<ReservationDenied>, ReserveError> {
        let limit = self.limit(key).await?;
        let held = self.known(key).denied(limit, self.clock.moment().elapsed);
        Ok(held.map(|held| ReservationDenied { held, limit: limit.into() }))
    }

    async fn reserve(self: &Arc<Self>, key: &LimitKey) -> Result<Reservation, ReserveError> {
        let limit = self.limit(key).await?;
        let known = self.known(key);
        let margin = self.margin_of(limit);
        let is_full = |counted: &Occupancy| counted.held().is_some_and(|held| held + u64::from(margin) >= limit.into());
        let (mut usable, mut counted) = self.usable(key, &known, limit).await?;
        let mut probes = if self.margin.is_some() { 1 } else { probes(limit) };
        for _ in 0..COUNTS {
            let (claim_ended, failures) = (known.claim_ended(), known.failures());
            while probes > 0
                && let Some(claim) = known.claim(usable, self.now())
            {
                if let Some(reservation) = self.take(key, &known, claim).await? {
                    return self.confirm(key, &known, reservation, usable, limit).await;
                }
                probes -= 1;
            }
            let elapsed = self.clock.moment().elapsed;
            let counted = counted.take().filter(|counted| is_full(counted));
            if counted.is_none() && probes > 0 && known.has_claims() {
                // Other callers of this process are about to take the last free slots.
                claim_ended.await;
                known.failure_since(failures).map_or(Ok(()), Err)?;
            }
            let all = match counted {
                Some(all) => all,
                None => self.count(key, &known, 0).await?,
            };
            if is_full(&all) {
                let held = all.held().unwrap_or_default();
                known.set_denial(limit, held, elapsed);
                return Err(ReservationDenied { held, limit: limit.into() }.into());
            }
            known.clear_denial();
            (usable, probes) = (all.usable(limit, margin).unwrap_or(0), 1);
        }
        let contended = Box::new(Contended(COUNTS));
        Err(self.failed(StoreError::Unavailable { operation: "UpdateItem", source: contended }).into())
    }

    /// Returns the margin, reduced so that at least one token of the limit can be taken.
    fn margin_of(&self, limit: u32) -> u32 {
        self.margin.unwrap_or(0).min(limit.saturating_sub(1))
    }

    async fn limit(&self, key: &LimitKey) -> Result<u32, ReserveError> {
        let LimitKey { resource, account } = key.clone();
        match self.limits.get(key).await?.map(|limit| limit.tokens) {
            None => Err(ReserveError::UnknownLimit { resource, account }),
            Some(0) => Err(ReserveError::Blocked { resource, account }),
            Some(tokens) => Ok(u32::try_from(tokens).unwrap_or(u32::MAX).min(HIGHEST_LIMIT)),
        }
    }

    /// Returns how many slots may be taken now, with the count that shows it. Beside Python clients, the count is made for
    /// this request.
    async fn usable(
        &self,
        key: &LimitKey,
        known: &SlotCache,
        limit: u32,
    ) -> Result<(u32, Option<Arc<Occupancy>>), TableError> {
        let elapsed = self.clock.moment().elapsed;
        if self.margin.is_none()
            && let Some(usable) = known.usable(limit, elapsed)
        {
            return Ok((usable, None));
        }
        let margin = self.margin_of(limit);
        let mut from = known.count_start(limit);
        let mut reads = 0;
        let (usable, counted) = loop {
            let occupancy = self.count(key, known, from).await?;
            if let Some(usable) = occupancy.usable(limit, margin) {
                break (usable, occupancy);
            }
            // If the second read does not suffice either, the third one shows all slots.
            reads += 1;
            from = if reads == 1 { occupancy.next_from(limit, margin) } else { 0 };
        };
        if counted.held().is_some_and(|held| held + u64::from(margin) < limit.into()) {
            known.clear_denial();
        }
        known.set_usable(limit, usable, elapsed);
        Ok((usable, Some(counted)))
    }

    /// Counts the tokens of all clients, and shows the slots from `from` on.
    async fn count(&self, key: &LimitKey, known: &SlotCache, from: u32) -> Result<Arc<Occupancy>, TableError> {
        let count = async {
            let counted = self.slots.occupancy(coordinate(key), from, self.clock.moment().now).await;
            counted.map_err(|error| self.failed(error))
        };
        known.count(from, count).await
    }

    /// Takes a slot if it is free. The write goes on if the caller goes away; then the slot is freed again.
    async fn take(
        self: &Arc<Self>,
        key: &LimitKey,
        known: &Arc<SlotCache>,
        claim: Claim,
    ) -> Result<Option<Reservation>, TableError> {
        let slot = HeldSlot {
            shared: Arc::clone(self),
            key: key.clone(),
            known: Arc::clone(known),
            number: claim.slot,
            id: random_id(),
            fence: 0,
        };
        let taking = async move {
            let taken = slot.take().await;
            if let Err(error) = &taken {
                claim.fail(error.clone());
            }
            drop(claim);
            taken
        };
        self.in_background(taking).await?
    }

    /// Starts a write in a task of its own at once. It continues if the caller is dropped.
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
        key: &LimitKey,
        slot: u32,
        write: &SlotWrite<'_>,
    ) -> Result<SlotOutcome, TableError> {
        let now = match write.change {
            SlotChange::Take { .. } | SlotChange::Free { .. } => self.clock.moment().now,
            // The SDK repeats the call, and must not revive a slot that has expired meanwhile.
            SlotChange::Bind { .. } | SlotChange::Renew { .. } => self.clock.moment().now.after(LONGEST_WRITE),
        };
        let written = self.slots.write(coordinate(key), slot, write, self.owner.as_deref(), now).await;
        written.map_err(|error| self.failed(error))
    }

    /// Counts again, because a Python client may have added a token between the count and the write. Gives the token
    /// back if the limit is exceeded.
    async fn confirm(
        &self,
        key: &LimitKey,
        known: &SlotCache,
        mut reservation: Reservation,
        usable: u32,
        limit: u32,
    ) -> Result<Reservation, ReserveError> {
        if self.margin.is_none() {
            return Ok(reservation);
        }
        let mut occupancy = self.count(key, known, usable).await?;
        if occupancy.exceeds(limit).is_none() {
            occupancy = self.count(key, known, 0).await?;
        }
        if occupancy.exceeds(limit) != Some(true) {
            return Ok(reservation);
        }
        reservation.free().await?;
        // Without the token that was given back.
        let held = occupancy.held().map_or(limit.into(), |held| held - 1);
        Err(ReservationDenied { held, limit: limit.into() }.into())
    }

    pub(super) fn failed(&self, error: StoreError) -> TableError {
        TableError::new(self.slots.table(), error)
    }

    pub(super) fn known(&self, key: &LimitKey) -> Arc<SlotCache> {
        let Ok(known) = self.known.get_or_insert_with(key, || Ok::<_, Infallible>(Arc::default()));
        known
    }

    /// The present moment in epoch seconds.
    fn now(&self) -> i64 {
        seconds(self.clock.moment().now)
    }
}
