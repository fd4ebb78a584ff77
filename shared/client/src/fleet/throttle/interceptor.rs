//! The interceptor of an SDK client: it estimates what a call costs, and settles by the answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, RuntimeComponents, StalledStreamProtectionConfig,
        interceptors::{
            AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut,
            BeforeTransmitInterceptorContextMut,
        },
        timeout::TimeoutConfig,
    },
    error::BoxError,
};
use aws_smithy_runtime_api::client::{
    interceptors::dyn_dispatch_hint, orchestrator::HttpResponse, stalled_stream_protection,
};
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use tidegate_domain::throttle::Units;

use super::{
    charge::{Charge, Prepaid, Slot},
    connector::Ticket,
    gate::Gate,
    operations::{self, Call},
};

/// The longest time for which a call waits for its turn after it was signed. The SDK renews credentials that expire within five
/// to ten seconds, so those of a call that waits do not expire.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The errors of calls that consume no capacity: DynamoDB throttled them, or refused them before it looked at the table.
///
/// AWS: [errors](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html#Programming.Errors.MessagesAndCodes).
const FREE_ERRORS: [&str; 10] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "AccessDeniedException",
    "ResourceNotFoundException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
];

/// Prepares the charge of each attempt, and settles it by the response. The [connector](super::connector) charges.
#[derive(Debug)]
pub(super) struct ThrottleInterceptor(Arc<Gate>);

impl ThrottleInterceptor {
    pub(super) fn new(gate: &Arc<Gate>) -> Self {
        Self(Arc::clone(gate))
    }
}

/// A call that a throttle charges.
#[derive(Debug)]
pub(super) struct ChargedCall {
    pub(super) gate: Arc<Gate>,
    pub(super) call: Call,
    /// The charge of the current attempt.
    pub(super) slot: Slot,
    /// Whether the response to the current attempt has been counted.
    is_settled: AtomicBool,
}

/// The call in the configuration of its operation.
#[derive(Debug)]
struct Charged(Arc<ChargedCall>);

impl Storable for Charged {
    type Storer = StoreReplace<Self>;
}

#[dyn_dispatch_hint]
impl Intercept for ThrottleInterceptor {
    fn name(&self) -> &'static str {
        "tidegate::Throttle"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(call) = operations::call(context.input_mut()) {
            let gate = Arc::clone(&self.0);
            let charged = ChargedCall { gate, call, slot: Slot::default(), is_settled: AtomicBool::new(false) };
            // The SDK would end a call that sends nothing for so long.
            let stalled = config.load::<StalledStreamProtectionConfig>().cloned();
            config.interceptor_state().store_put(Charged(Arc::new(charged)));
            if let Some(stalled) = stalled {
                let grace = stalled.grace_period().saturating_add(LONGEST_WAIT);
                config
                    .interceptor_state()
                    .store_put(stalled_stream_protection::Builder::from(stalled).grace_period(grace).build());
            }
        }
        Ok(())
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(charged) = self.charged(config) else { return Ok(()) };
        // The same throttle may have been added to a client twice.
        let ticket = context.request().extension::<Ticket>();
        if ticket.is_some_and(|ticket| Arc::ptr_eq(&ticket.charged, charged)) {
            return Ok(());
        }
        // This drops the charge of an earlier attempt. It is kept if the attempt was sent.
        charged
            .slot
            .replace(config.load::<Prepaid>().and_then(|prepaid| prepaid.take(&charged.gate, charged.call.kind)));
        charged.is_settled.store(false, Ordering::Relaxed);
        let ticket = Ticket { charged: Arc::clone(charged), longest_wait: longest_wait(config) };
        context.request_mut().add_extension(ticket);
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(charged) = self.charged(config) else { return Ok(()) };
        // The same throttle may have been added to a client twice.
        if charged.is_settled.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let ChargedCall { gate, call, slot, .. } = &**charged;
        // A call with an HTTP client of its own has bypassed the connector.
        let charge = slot.take().map_or_else(|| Charge::late(gate, call.kind, gate.estimate(call)), Charge::kept);
        match context.output_or_error() {
            Ok(output) => {
                if let Some(consumed) = operations::consumed(output, call.kind) {
                    charge.settle(consumed.own);
                    if consumed.other > Units::default() {
                        gate.settle(call.kind.other(), Units::default(), consumed.other);
                    } else {
                        gate.learn(call, consumed.own);
                    }
                }
            }
            Err(_) if is_free(context.response()) => charge.settle(Units::default()),
            Err(_) => {}
        }
        Ok(())
    }
}

impl ThrottleInterceptor {
    /// Returns the call if this throttle charges it, and not another one that was added to the client later.
    fn charged<'a>(&self, config: &'a ConfigBag) -> Option<&'a Arc<ChargedCall>> {
        config.load::<Charged>().map(|Charged(call)| call).filter(|call| Arc::ptr_eq(&self.0, &call.gate))
    }
}

/// How long an attempt may wait: half of the time after which the SDK would end it.
pub(super) fn longest_wait(config: &ConfigBag) -> Duration {
    let attempt = config.load::<TimeoutConfig>().and_then(TimeoutConfig::operation_attempt_timeout);
    attempt.map_or(LONGEST_WAIT, |timeout| LONGEST_WAIT.min(timeout / 2))
}

/// Whether a call that failed has surely consumed no capacity.
fn is_free(response: &HttpResponse) -> bool {
    error_type(response.body().bytes().unwrap_or_default()).is_some_and(|error| FREE_ERRORS.contains(&error))
}

/// The type of an error: the part of `__type` behind the `#`. Within an item, `__type` would be an object and no text, and quotes
/// within texts are escaped.
pub(super) fn error_type(body: &[u8]) -> Option<&str> {
    let body = std::str::from_utf8(body).ok()?;
    let (_, value) = body.split_once("\"__type\":\"").or_else(|| body.split_once("\"__type\": \""))?;
    let (value, _) = value.split_once('"')?;
    Some(value.rsplit_once('#').map_or(value, |(_, name)| name))
}
