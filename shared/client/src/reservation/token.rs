//! A token that is reserved, and then bound to a resource.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tidegate_domain::{
    slot::{SlotChange, SlotOutcome, SlotWrite},
    sweep::seconds,
};

use super::{error::ReservationError, known::Known, reserve::Shared, time};
use crate::{
    error::{InvalidRequest, TableError},
    token_limits::Holder,
};

/// The longest id of a resource, in bytes: it is a key of the index by resource.
///
/// AWS: [partition keys and sort keys](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-partition-sort-keys).
const LONGEST_RESOURCE_ID: usize = 2048;

/// A token without a resource. Made by [`Reservations::reserve`](super::Reservations::reserve).
///
/// It expires after five minutes. Dropping it frees the token in the background, unless [`bind`](Self::bind) was called.
#[derive(Debug)]
#[must_use = "dropping a reservation frees the token"]
pub struct Reservation {
    slot: HeldSlot,
    expires: i64,
    /// The resource of the first call of `bind`, which may have succeeded.
    requested: Option<String>,
    is_released: bool,
}

/// A token that is bound to a resource that runs. Made by [`Reservation::bind`].
///
/// Dropping it changes nothing: it is freed by [`release`](Self::release), by `token-sweeper` when the resource has ended,
/// or at its expiry.
#[derive(Clone, Debug)]
pub struct Token {
    slot: HeldSlot,
    /// `None` if the token was made from its id.
    expires: Option<i64>,
}

/// A slot and the reservation that holds it.
#[derive(Clone)]
struct HeldSlot {
    shared: Arc<Shared>,
    holder: Holder,
    known: Arc<Known>,
    number: u32,
    id: String,
    fence: i64,
}

impl Reservation {
    pub(super) fn new(
        shared: Arc<Shared>,
        holder: Holder,
        known: Arc<Known>,
        number: u32,
        id: String,
        fence: i64,
        expires: i64,
    ) -> Self {
        let slot = HeldSlot { shared, holder, known, number, id, fence };
        Self { slot, expires, requested: None, is_released: false }
    }

    /// Makes the reservation the token of a resource that runs, such as an EMR cluster, for at most this time.
    ///
    /// `token-sweeper` frees the token when the resource has ended. If the resource may run for longer than `lifetime`,
    /// call [`Token::renew`].
    ///
    /// Call it again with the same id after an error of the table, or if its future was dropped: the token is bound once.
    /// From the first call on, dropping the reservation does not free it, because the resource may run.
    ///
    /// # Errors
    /// - [`ReservationError::Lost`] if the reservation has expired: the resource runs without a token, and should be
    ///   stopped.
    /// - [`ReservationError::Bound`] if it was called for another resource before.
    /// - [`ReservationError::Invalid`] if the id is empty or has more than 2,048 bytes.
    /// - [`ReservationError::Table`] if the table cannot be used.
    pub async fn bind(
        &mut self,
        resource_id: impl Into<String>,
        lifetime: Duration,
    ) -> Result<Token, ReservationError> {
        let requested = resource_id.into();
        if !(1..=LONGEST_RESOURCE_ID).contains(&requested.len()) {
            let (field, longest, expected) = ("resource id", LONGEST_RESOURCE_ID, "the id of a resource that runs");
            return Err(InvalidRequest::Name { field, value: requested, longest, expected }.into());
        }
        let bound = self.requested.get_or_insert_with(|| requested.clone()).clone();
        if bound != requested {
            return Err(ReservationError::Bound { bound, requested });
        }
        let expires = self.slot.hold(lifetime, Some(requested)).await?;
        Ok(Token { slot: self.slot.clone(), expires: Some(expires) })
    }

    /// Frees the token, and waits until that is written.
    ///
    /// After a call of [`bind`](Self::bind), call it only if the resource does not run.
    ///
    /// # Errors
    /// [`ReservationError::Table`] if the table cannot be used. The token expires after five minutes.
    pub async fn release(mut self) -> Result<(), ReservationError> {
        self.is_released = true;
        Ok(self.slot.free().await?)
    }

    /// Frees a token that was taken beyond the limit.
    pub(super) async fn withdraw(mut self) -> Result<(), TableError> {
        self.is_released = true;
        self.slot.free().await
    }

    /// Returns the id of the reservation, which its [token](Token::id) keeps.
    #[must_use]
    pub fn id(&self) -> String {
        self.slot.id()
    }

    /// Returns a number that is higher than those of all earlier holders of the same token, if the clocks of all clients differ by
    /// less than the time for which it was held. A service that sees a lower number than before rejects the request of an
    /// earlier holder.
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
        if self.is_released || self.requested.is_some() {
            return;
        }
        let slot = self.slot.clone();
        let background = Arc::clone(&slot.shared.background);
        background.spawn(async move {
            if let Err(error) = slot.write_free().await {
                tracing::warn!(%error, "a dropped reservation was not freed: it expires after five minutes");
            }
        });
    }
}

impl Token {
    /// Reads the id of a token.
    pub(super) fn find(shared: &Arc<Shared>, holder: Holder, id: &str) -> Result<Self, InvalidRequest> {
        let invalid = || InvalidRequest::Name {
            field: "token id",
            value: id.to_owned(),
            longest: 64,
            expected: "an id from `Token::id`",
        };
        let mut parts = id.splitn(3, '.');
        let mut part = || parts.next().filter(|part| !part.is_empty()).ok_or_else(invalid);
        let (number, fence, holder_id) = (part()?, part()?, part()?);
        let (Ok(number), Ok(fence)) = (number.parse(), fence.parse()) else { return Err(invalid()) };
        let (shared, known) = (Arc::clone(shared), shared.known(&holder));
        let slot = HeldSlot { shared, holder, known, number, id: holder_id.to_owned(), fence };
        Ok(Self { slot, expires: None })
    }

    /// Returns the token's id, by which [`Reservations::token`](super::Reservations::token) finds it in another process.
    #[must_use]
    pub fn id(&self) -> String {
        self.slot.id()
    }

    /// Holds the token for this time from now on, if it would expire before. It is never held for less than before.
    ///
    /// # Errors
    /// - [`ReservationError::Lost`] if the token has expired or was freed.
    /// - [`ReservationError::Table`] if the table cannot be used. The token may be renewed; call it again.
    pub async fn renew(&mut self, lifetime: Duration) -> Result<(), ReservationError> {
        self.expires = Some(self.slot.hold(lifetime, None).await?);
        Ok(())
    }

    /// Frees the token, because its resource has ended. If it was freed already, nothing changes.
    ///
    /// # Errors
    /// [`ReservationError::Table`] if the table cannot be used. The token may be free; call it again.
    pub async fn release(&self) -> Result<(), ReservationError> {
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

    /// Holds the slot for this time from now on. Returns the expiry. If a resource is given, the slot is bound to it.
    async fn hold(&self, lifetime: Duration, resource: Option<String>) -> Result<i64, ReservationError> {
        let slot = self.clone();
        let holding = async move {
            let expires = seconds(slot.shared.clock.moment().now.after(lifetime));
            let change = match &resource {
                Some(resource) => SlotChange::Bind { resource, expires },
                None => SlotChange::Renew { expires },
            };
            match slot.write(change).await? {
                SlotOutcome::Done(expires) => {
                    slot.known.settle(slot.number, expires);
                    Ok(expires.unwrap_or_default())
                }
                SlotOutcome::Bound(bound) => {
                    Err(ReservationError::Bound { bound, requested: resource.unwrap_or_default() })
                }
                SlotOutcome::Held(_) | SlotOutcome::Fenced(_) | SlotOutcome::Lost => {
                    let Holder { resource, account } = slot.holder;
                    Err(ReservationError::Lost { resource, account })
                }
            }
        };
        self.shared.in_background(holding).await?
    }

    async fn free(&self) -> Result<(), TableError> {
        let slot = self.clone();
        self.shared.in_background(async move { slot.write_free().await }).await?
    }

    async fn write_free(&self) -> Result<(), TableError> {
        self.write(SlotChange::Free).await?;
        self.known.settle(self.number, None);
        Ok(())
    }

    async fn write(&self, change: SlotChange<'_>) -> Result<SlotOutcome, TableError> {
        let write = SlotWrite { holder: &self.id, change };
        self.shared.write(&self.holder, self.number, &write).await
    }
}

impl fmt::Debug for HeldSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, number, fence, .. } = self;
        f.debug_struct("Slot")
            .field("holder", holder)
            .field("number", number)
            .field("fence", fence)
            .finish_non_exhaustive()
    }
}
