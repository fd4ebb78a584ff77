//! A reservation, and the token that it becomes.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{
    FutureExt as _,
    future::{self, BoxFuture},
};
use tidegate_domain::{
    reservation::{FREED, RESERVED},
    slot::{SlotChange, SlotOutcome, SlotWrite},
    sweep::seconds,
    time::EpochMillis,
    token_limits::LimitKey,
};

use super::{error::TokenError, reserve::Shared, slot_cache::SlotCache, time};
use crate::{error::InvalidRequest, table_error::TableError};

/// The longest id of a resource, in bytes: it is a key of the index by resource.
///
/// AWS: [partition keys and sort keys](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys).
const LONGEST_RESOURCE_ID: usize = 2048;

/// The most attempts to exceed the fencing number of a free slot.
const FENCE_ATTEMPTS: u32 = 3;

/// A reserved token that is not bound yet. Made by [`Reservations::reserve`](super::Reservations::reserve).
///
/// It expires after five minutes. Dropping it frees the token in the background, unless [`bind`](Self::bind) was called.
#[derive(Debug)]
#[must_use = "dropping a reservation frees the token"]
pub struct Reservation {
    slot: HeldSlot,
    expires: i64,
    /// Whether `bind` was called, so that the resource may run.
    is_bind_called: bool,
    /// The resource that `bind` was called for.
    requested: Option<String>,
    is_freed: bool,
}

/// A token that is bound to a running resource. Made by [`Reservation::bind`].
///
/// Dropping it changes nothing. [`release`](Self::release) frees it, or `token-sweeper` when the resource has ended. Otherwise
/// it expires.
#[derive(Clone, Debug)]
pub struct Token {
    slot: HeldSlot,
    /// `None` if the token was made from its id.
    expires: Option<i64>,
}

/// A slot and the reservation that holds it.
#[derive(Clone)]
pub(super) struct HeldSlot {
    pub(super) shared: Arc<Shared>,
    pub(super) key: LimitKey,
    pub(super) known: Arc<SlotCache>,
    pub(super) number: u32,
    pub(super) id: String,
    pub(super) fence: i64,
}

impl Reservation {
    /// Binds the token to a running resource, such as an EMR cluster. The token expires `lifetime` from now, but not before
    /// the reservation would have.
    ///
    /// `token-sweeper` frees the token when the resource has ended. If the resource may run for longer than `lifetime`,
    /// call [`Token::renew`].
    ///
    /// The write begins when this function is called, and goes on if the future is dropped. From then on, dropping the
    /// reservation does not free the token, because the resource runs. After an error of the table, call it again with the
    /// same id: the token is bound once, with the first lifetime that was written.
    ///
    /// # Errors
    /// - [`TokenError::Lost`] if the reservation has expired, or expires within ten seconds: the resource runs without a
    ///   token, and should be stopped.
    /// - [`TokenError::Bound`] if it was called for another resource before.
    /// - [`TokenError::Invalid`] if the id is empty or has more than 2,048 bytes.
    /// - [`TokenError::Table`] if the table cannot be used.
    pub fn bind(
        &mut self,
        resource_id: impl Into<String>,
        lifetime: Duration,
    ) -> BoxFuture<'static, Result<Token, TokenError>> {
        self.is_bind_called = true;
        let slot = self.slot.clone();
        match self.requested(resource_id.into()) {
            Err(error) => future::ready(Err(error)).boxed(),
            Ok(resource) => {
                let binding = slot.hold(lifetime, Some((resource, self.expires)));
                async move { Ok(Token { expires: Some(binding.await?), slot }) }.boxed()
            }
        }
    }

    /// Checks the resource that `bind` is called for.
    fn requested(&mut self, requested: String) -> Result<String, TokenError> {
        if !(1..=LONGEST_RESOURCE_ID).contains(&requested.len()) {
            let (field, longest, expected) = ("resource id", LONGEST_RESOURCE_ID, "the id of a resource that runs");
            return Err(InvalidRequest::Name { field, value: requested, longest, expected }.into());
        }
        match &self.requested {
            Some(bound) if *bound != requested => Err(TokenError::Bound { bound: bound.clone(), requested }),
            _ => Ok(self.requested.insert(requested).clone()),
        }
    }

    /// Frees the token, and waits until that is written. After an error, it can be called again.
    ///
    /// After a call of [`bind`](Self::bind), call it only if the resource does not run.
    ///
    /// # Errors
    /// [`TokenError::Table`] if the table cannot be used. An unbound token expires after five minutes, a bound one after
    /// its lifetime.
    pub async fn release(&mut self) -> Result<(), TokenError> {
        Ok(self.free().await?)
    }

    pub(super) async fn free(&mut self) -> Result<(), TableError> {
        self.slot.free().await?;
        self.is_freed = true;
        Ok(())
    }

    /// Returns the id of the reservation, which its [token](Token::id) keeps.
    #[must_use]
    pub fn id(&self) -> String {
        self.slot.id()
    }

    /// Returns the fencing token: a number that rises each time the same slot is taken. With a limit of 1, it rises with each reservation of
    /// the account: a service that sees a lower number than before rejects the request of an earlier holder.
    ///
    /// After TTL or `token-sweeper` has deleted the slot, this relies on clocks that differ by less than the time for which
    /// the slot was held.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.slot.fence.unsigned_abs()
    }

    /// Returns when the reservation expires.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        time(self.expires)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_freed || self.is_bind_called {
            return;
        }
        let slot = self.slot.clone();
        let background = Arc::clone(&slot.shared.background);
        background.spawn(async move {
            if let Err(error) = slot.write_free().await {
                tracing::warn!(%error, "could not free a dropped reservation: it expires within five minutes");
            }
        });
    }
}

impl Token {
    /// Reads the id of a token.
    pub(super) fn find(shared: &Arc<Shared>, key: LimitKey, id: &str) -> Result<Self, InvalidRequest> {
        let invalid = || InvalidRequest::Name {
            field: "token id",
            value: id.to_owned(),
            longest: 64,
            expected: "an id from `Token::id`",
        };
        let mut parts = id.splitn(3, '.');
        let mut part = || parts.next().filter(|part| !part.is_empty()).ok_or_else(invalid);
        let (number, fence, reservation_id) = (part()?, part()?, part()?);
        let fence = fence.parse().ok().filter(|fence| *fence >= 0);
        let (Ok(number), Some(fence)) = (number.parse(), fence) else { return Err(invalid()) };
        let (shared, known) = (Arc::clone(shared), shared.known(&key));
        let slot = HeldSlot { shared, key, known, number, id: reservation_id.to_owned(), fence };
        Ok(Self { slot, expires: None })
    }

    /// Returns the token's id, by which [`Reservations::token`](super::Reservations::token) finds it in another process.
    #[must_use]
    pub fn id(&self) -> String {
        self.slot.id()
    }

    /// Extends the expiry to `lifetime` from now. It never shortens it. The write goes on if the future is dropped.
    ///
    /// # Errors
    /// - [`TokenError::Lost`] if the token was freed, has expired, or expires within ten seconds.
    /// - [`TokenError::Table`] if the table cannot be used. The token may be renewed; call it again.
    pub async fn renew(&mut self, lifetime: Duration) -> Result<(), TokenError> {
        self.expires = Some(self.slot.hold(lifetime, None).await?);
        Ok(())
    }

    /// Frees the token, because its resource has ended. If it is free already, nothing changes.
    ///
    /// # Errors
    /// [`TokenError::Table`] if the table cannot be used. The token may be free; call it again.
    pub async fn release(&self) -> Result<(), TokenError> {
        Ok(self.slot.free().await?)
    }

    /// Returns the [fencing number](Reservation::fence).
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.slot.fence.unsigned_abs()
    }

    /// Returns when the token expires. `None` if it was found by its id and not renewed since.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires.map(time)
    }
}

impl HeldSlot {
    fn id(&self) -> String {
        let Self { number, fence, id, .. } = self;
        format!("{number}.{fence}.{id}")
    }

    /// Takes the slot if it is free. If it is unknown whether that happened, frees the slot.
    pub(super) async fn take(mut self) -> Result<Option<Reservation>, TableError> {
        for _ in 0..FENCE_ATTEMPTS {
            let now = self.now();
            self.fence = self.fence.max(now.get());
            let change = SlotChange::Take { fence: self.fence, expires: seconds(now.after(RESERVED)) };
            match self.write(change).await {
                Ok(SlotOutcome::Done(expires)) => {
                    self.known.set_held(self.number, expires);
                    let reservation = self.into_reservation(expires);
                    // A response after all retries may be late. Dropping the reservation frees the slot.
                    return Ok((expires > seconds(reservation.slot.now())).then_some(reservation));
                }
                Ok(SlotOutcome::Held(expires)) => {
                    self.known.set_held(self.number, expires);
                    return Ok(None);
                }
                Ok(SlotOutcome::Fenced(least)) => self.fence = least.saturating_add(1),
                Ok(SlotOutcome::Lost | SlotOutcome::Bound(_)) => break,
                Err(error) => {
                    drop(self.into_reservation(0));
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn into_reservation(self, expires: i64) -> Reservation {
        Reservation { slot: self, expires, is_bind_called: false, requested: None, is_freed: false }
    }

    /// Holds the slot for this time from now on. If a resource is given, binds the slot to it, and holds it at least until
    /// a moment in epoch seconds. Returns the expiry.
    fn hold(
        &self,
        lifetime: Duration,
        bind: Option<(String, i64)>,
    ) -> impl Future<Output = Result<i64, TokenError>> + use<> {
        let slot = self.clone();
        let holding = async move {
            let expires = seconds(slot.now().after(lifetime));
            let change = match &bind {
                Some((resource, least)) => SlotChange::Bind { resource, expires: expires.max(*least) },
                None => SlotChange::Renew { expires },
            };
            match slot.write(change).await? {
                SlotOutcome::Done(expires) => {
                    slot.known.set_held(slot.number, expires);
                    Ok(expires)
                }
                SlotOutcome::Bound(bound) => {
                    let requested = bind.map(|(resource, _)| resource).unwrap_or_default();
                    Err(TokenError::Bound { bound, requested })
                }
                SlotOutcome::Held(_) | SlotOutcome::Fenced(_) | SlotOutcome::Lost => {
                    let LimitKey { resource, account } = slot.key;
                    Err(TokenError::Lost { resource, account })
                }
            }
        };
        let held = self.shared.in_background(holding);
        async move { held.await? }
    }

    fn free(&self) -> impl Future<Output = Result<(), TableError>> + use<> {
        let slot = self.clone();
        let freed = self.shared.in_background(async move { slot.write_free().await });
        async move { freed.await? }
    }

    async fn write_free(&self) -> Result<(), TableError> {
        let expires = seconds(self.now()) - i64::try_from(FREED.as_secs()).unwrap_or_default();
        if let SlotOutcome::Done(_) = self.write(SlotChange::Free { expires }).await? {
            self.known.set_free(self.number);
        }
        Ok(())
    }

    async fn write(&self, change: SlotChange<'_>) -> Result<SlotOutcome, TableError> {
        let write = SlotWrite { holder: &self.id, change };
        self.shared.write(&self.key, self.number, &write).await
    }

    fn now(&self) -> EpochMillis {
        self.shared.clock.moment().now
    }
}

impl fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, number, fence, .. } = self;
        f.debug_struct("Slot").field("key", key).field("number", number).field("fence", fence).finish_non_exhaustive()
    }
}
