//! Slots: items that each stand for one token of a limit, and have one holder at most.
//!
//! A client takes a free slot, binds it to the resource that it has started, renews it, and frees it. Every write has a
//! condition, [`Slot::allows`]. A write may be sent again after a lost response: [`Slot::explain`] tells a write that has
//! already happened from one that came too late.

/// A slot as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The id of the reservation that holds the slot.
    pub holder: Option<String>,
    /// The id of the resource that the token is bound to.
    pub resource: Option<String>,
    /// When the slot becomes free, in epoch **seconds**. `None` if it is free.
    pub expires: Option<i64>,
    /// Rises each time the slot is taken. 0 if it never was.
    pub fence: i64,
}

/// A write to a slot. Each is made for one reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWrite<'a> {
    /// The id of the reservation; never used twice.
    pub holder: &'a str,
    /// What changes.
    pub change: SlotChange<'a>,
}

/// What a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange<'a> {
    /// The reservation takes the slot, if it is free.
    Take {
        /// The fencing number, above that of all earlier holders.
        fence: i64,
        /// The new expiry, in epoch seconds.
        expires: i64,
    },
    /// The reservation becomes the token of a resource, if it still holds the slot and is not bound.
    Bind {
        /// The id of the resource.
        resource: &'a str,
        /// The new expiry, in epoch seconds.
        expires: i64,
    },
    /// The slot is held for longer, if it is still held. It is never held for less.
    Renew {
        /// The new expiry, in epoch seconds.
        expires: i64,
    },
    /// The slot becomes free, if the reservation still holds it. Its fencing number stays.
    Free,
}

/// The outcome of a write to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// The slot is as the write wants it, until this time in epoch seconds. A free slot has none.
    Done(Option<i64>),
    /// Another reservation holds the slot until this time in epoch seconds.
    Held(i64),
    /// The slot is free, but a fencing number must be above this one.
    Fenced(i64),
    /// The reservation does not hold the slot any more.
    Lost,
    /// The reservation is bound to another resource.
    Bound(String),
}

impl Slot {
    /// Returns whether the slot is held at a moment in epoch seconds. Other clients count it as long.
    #[must_use]
    pub fn is_held(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires > now)
    }

    /// Returns whether the condition of a write holds at a moment in epoch seconds.
    #[must_use]
    pub fn allows(&self, write: &SlotWrite<'_>, now: i64) -> bool {
        let is_ours = self.holder.as_deref() == Some(write.holder);
        match write.change {
            SlotChange::Take { fence, .. } => !self.is_held(now) && self.fence < fence,
            SlotChange::Bind { .. } => is_ours && self.is_held(now) && self.resource.is_none(),
            SlotChange::Renew { expires } => {
                is_ours && self.is_held(now) && self.expires.is_some_and(|until| until < expires)
            }
            SlotChange::Free => is_ours,
        }
    }

    /// Returns the slot after a write.
    #[must_use]
    pub fn after(self, write: &SlotWrite<'_>) -> Self {
        match write.change {
            SlotChange::Take { fence, expires } => {
                Self { holder: Some(write.holder.to_owned()), resource: None, expires: Some(expires), fence }
            }
            SlotChange::Bind { resource, expires } => {
                Self { resource: Some(resource.to_owned()), expires: Some(expires), ..self }
            }
            SlotChange::Renew { expires } => Self { expires: Some(expires), ..self },
            SlotChange::Free => Self { holder: None, resource: None, expires: None, ..self },
        }
    }

    /// Returns the outcome of a write whose condition failed on this slot. An earlier attempt of the same write may have
    /// happened.
    #[must_use]
    pub fn explain(&self, write: &SlotWrite<'_>, now: i64) -> SlotOutcome {
        let is_ours = self.holder.as_deref() == Some(write.holder);
        match (write.change, self.expires.filter(|_| self.is_held(now))) {
            (SlotChange::Free, _) => SlotOutcome::Done(None),
            (SlotChange::Take { .. }, Some(until)) if is_ours => SlotOutcome::Done(Some(until)),
            (SlotChange::Take { .. }, Some(until)) => SlotOutcome::Held(until),
            (SlotChange::Take { .. }, None) => SlotOutcome::Fenced(self.fence),
            (SlotChange::Bind { resource, .. }, Some(until)) if is_ours => match &self.resource {
                Some(bound) if bound != resource => SlotOutcome::Bound(bound.clone()),
                _ => SlotOutcome::Done(Some(until)),
            },
            (SlotChange::Renew { .. }, Some(until)) if is_ours => SlotOutcome::Done(Some(until)),
            (SlotChange::Bind { .. } | SlotChange::Renew { .. }, _) => SlotOutcome::Lost,
        }
    }
}
