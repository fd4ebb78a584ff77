//! What a call has paid.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents,
        interceptors::{BeforeSerializationInterceptorContextMut, BeforeTransmitInterceptorContextRef},
    },
    error::BoxError,
};
use aws_smithy_runtime_api::client::interceptors::dyn_dispatch_hint;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use tidegate_domain::throttle::{CapacityKind, Units};

use super::{InvalidUnits, checked, gate::Gate};

/// Units that were charged for a call. When it is dropped, the charge is corrected to what is known to be consumed.
#[derive(Debug)]
pub(super) struct Charge {
    gate: Arc<Gate>,
    kind: CapacityKind,
    charged: Units,
    consumed: Units,
}

impl Charge {
    pub(super) fn new(gate: &Arc<Gate>, kind: CapacityKind, charged: Units) -> Self {
        Self { gate: Arc::clone(gate), kind, charged, consumed: Units::default() }
    }

    /// The charge of a call that was sent without one.
    pub(super) fn late(gate: &Arc<Gate>, kind: CapacityKind, consumed: Units) -> Self {
        let mut charge = Self::new(gate, kind, Units::default());
        charge.consumed = consumed;
        charge
    }

    /// Keeps the charge, because the call is sent now.
    pub(super) fn kept(mut self) -> Self {
        self.consumed = self.charged;
        self
    }

    /// Corrects the charge.
    pub(super) fn settle(mut self, consumed: Units) {
        self.consumed = consumed;
    }

    fn is_for(&self, gate: &Arc<Gate>, kind: CapacityKind) -> bool {
        Arc::ptr_eq(&self.gate, gate) && self.kind == kind
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.gate.settle(self.kind, self.charged, self.consumed);
    }
}

/// The charge of an attempt, which the parts of an SDK client pass on to each other.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<Charge>>);

impl Slot {
    pub(super) fn put(&self, charge: Charge) {
        self.replace(Some(charge));
    }

    pub(super) fn replace(&self, charge: Option<Charge>) {
        let before = mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), charge);
        drop(before);
    }

    pub(super) fn take(&self) -> Option<Charge> {
        self.take_if(|_| true)
    }

    fn take_if(&self, is_wanted: impl FnOnce(&mut Charge) -> bool) -> Option<Charge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_wanted)
    }
}

/// Permission to send a call, from [`Throttle::admit`](super::Throttle::admit). The call is paid already.
///
/// - It is an SDK interceptor. Attach it to a call of a [`client`](super::Throttle::client) of the same throttle: the first
///   attempt does not wait. Retries wait. An admission of another throttle, or of
///   the other kind, stays charged.
/// - After a call of any other client, [`settle`](Self::settle) it.
/// - If it is dropped without one of these, the throttle gets everything back.
#[derive(Debug)]
#[must_use = "an admission that is dropped gives everything back"]
pub struct Admission(Arc<Slot>);

impl Admission {
    pub(super) fn new(charge: Charge) -> Self {
        let slot = Slot::default();
        slot.put(charge);
        Self(Arc::new(slot))
    }

    /// Corrects the charge to the capacity units that a call has consumed.
    ///
    /// # Errors
    /// [`InvalidUnits`] if it is not a number from 0 to 10 million. The charge stays as it was.
    ///
    /// # Example
    ///
    /// ```
    /// # use tidegate::fleet::{Cost, InvalidUnits, Throttle};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), InvalidUnits> {
    /// let throttle = Throttle::fixed(500.0, 100.0)?;
    /// let admission = throttle.admit(Cost::write(2.0)?).await;
    /// // ... the call consumes three units ...
    /// admission.settle(3.0)?;
    /// assert_eq!(throttle.usage().writes.consumed, 3.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle(self, consumed: f64) -> Result<(), InvalidUnits> {
        let Some(charge) = self.0.take().map(Charge::kept) else { return Ok(()) };
        charge.settle(checked("consumed capacity", consumed)?);
        Ok(())
    }
}

/// The admission of an operation.
#[derive(Debug)]
pub(super) struct Prepaid(Arc<Slot>);

impl Prepaid {
    /// Returns the charge if it is of the same throttle and of the right kind.
    pub(super) fn take(&self, gate: &Arc<Gate>, kind: CapacityKind) -> Option<Charge> {
        self.0.take_if(|charge| charge.is_for(gate, kind))
    }
}

impl Storable for Prepaid {
    type Storer = StoreReplace<Self>;
}

#[dyn_dispatch_hint]
impl Intercept for Admission {
    fn name(&self) -> &'static str {
        "tidegate::Admission"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // No throttled client has taken the charge, so the call stays charged.
        drop(self.0.take().map(Charge::kept));
        Ok(())
    }

    fn modify_before_serialization(
        &self,
        _context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        config.interceptor_state().store_put(Prepaid(Arc::clone(&self.0)));
        Ok(())
    }
}
