//! A slot is an item that stands for one token of a limit. It has at most one holder.
//!
//! A client takes a free slot, binds it to the resource that it has started, renews it, and frees it. Every write has a
//! condition, [`Slot::allows`]. A write may be sent again after a lost response: [`Slot::explain`] tells whether it already
//! took effect, or the slot has changed.

/// A stored slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The id of the reservation that holds the slot.
    pub holder: Option<String>,
    /// The id of the resource that the token is bound to.
    pub resource: Option<String>,
    /// When the slot becomes free, in epoch **seconds**. `None` if the slot was never taken.
    pub expires: Option<i64>,
    /// Rises each time the slot is taken. 0 if the slot was never taken.
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
    /// The slot is held for longer, if the reservation still holds it. The expiry never moves back.
    Renew {
        /// The new expiry, in epoch seconds.
        expires: i64,
    },
    /// The slot becomes free, if the reservation still holds it. Its fencing number stays until the item is deleted.
    Free {
        /// The new expiry, in epoch seconds: a moment in the past, so that TTL deletes the item.
        expires: i64,
    },
}

/// The outcome of a write to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotOutcome {
    /// The change is in the table. Holds the expiry in epoch seconds.
    Done(i64),
    /// Another reservation holds the slot until this time in epoch seconds.
    Held(i64),
    /// The slot is free, but its fencing number, which this holds, is not below the new one.
    Fenced(i64),
    /// The reservation does not hold the slot.
    Lost,
    /// The reservation is bound to another resource.
    Bound(String),
}

impl Slot {
    /// Returns whether the slot is held at a moment in epoch seconds. Python clients count it until the same moment.
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
            SlotChange::Free { .. } => is_ours,
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
            SlotChange::Free { expires } => Self { holder: None, resource: None, expires: Some(expires), ..self },
        }
    }

    /// Returns the outcome of a write whose condition failed on this slot. An earlier attempt of the same write may have
    /// happened.
    #[must_use]
    pub fn explain(&self, write: &SlotWrite<'_>, now: i64) -> SlotOutcome {
        let is_ours = self.holder.as_deref() == Some(write.holder);
        match (write.change, self.expires.filter(|_| self.is_held(now))) {
            (SlotChange::Take { .. }, Some(until)) if is_ours => SlotOutcome::Done(until),
            (SlotChange::Take { .. }, Some(until)) => SlotOutcome::Held(until),
            (SlotChange::Take { .. }, None) => SlotOutcome::Fenced(self.fence),
            (SlotChange::Bind { resource, .. }, Some(until)) if is_ours => match &self.resource {
                Some(bound) if bound != resource => SlotOutcome::Bound(bound.clone()),
                _ => SlotOutcome::Done(until),
            },
            (SlotChange::Renew { .. }, Some(until)) if is_ours => SlotOutcome::Done(until),
            (SlotChange::Bind { .. } | SlotChange::Renew { .. } | SlotChange::Free { .. }, _) => SlotOutcome::Lost,
        }
    }
}
