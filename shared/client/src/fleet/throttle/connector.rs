//! The HTTP client of an SDK client: it waits for the turn of each call.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    config::{
        BehaviorVersion, ConfigBag, HttpClient, RuntimeComponents, RuntimeComponentsBuilder, SharedHttpClient,
        http::HttpRequest,
    },
    error::{BoxError, ConnectorError},
};
use aws_smithy_runtime::client::defaults::default_http_client_plugin_v2;
use aws_smithy_runtime_api::client::{
    connector_metadata::ConnectorMetadata,
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    runtime_plugin::RuntimePlugin as _,
};
use aws_smithy_types::retry::ErrorKind;
use tidegate_domain::throttle::{CapacityKind, Units};
use tokio::time::timeout;

use super::interceptor::ChargedCall;

/// A call has waited for its turn for too long. The SDK retries it like a throttling error of DynamoDB.
///
/// If all attempts of a call end like this, it fails with `SdkError::DispatchFailure`, and this is the source of that error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the throttle admitted no {kind} of {units} capacity units within {waited:?}", units = units.get())]
pub struct Throttled {
    kind: CapacityKind,
    units: Units,
    waited: Duration,
}

impl Throttled {
    /// Returns the time for which the last attempt has waited.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }
}

/// What the interceptor passes to the connector, in the extensions of a request.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    /// Holds a charge already if the call is prepaid.
    pub(super) charged: Arc<ChargedCall>,
    /// How long the attempt may wait.
    pub(super) longest_wait: Duration,
}

impl Ticket {
    /// Leaves the charge of the attempt in the slot if it does not have to wait. Returns whether that is so.
    fn admit_now(&self) -> bool {
        let ChargedCall { gate, call, slot, .. } = &*self.charged;
        let charge = slot.take().or_else(|| gate.charge_now(call.kind, gate.estimate(call)));
        let Some(charge) = charge else { return false };
        slot.put(charge.kept());
        true
    }

    /// Waits for the turn of the attempt, and leaves its charge in the slot.
    async fn admitted(self) -> Result<(), Throttled> {
        let ChargedCall { gate, call, slot, .. } = &*self.charged;
        let (kind, units) = (call.kind, gate.estimate(call));
        let charge = timeout(self.longest_wait, gate.charge(kind, units)).await;
        let charge = charge.map_err(|_| Throttled { kind, units, waited: self.longest_wait })?;
        slot.put(charge.kept());
        Ok(())
    }
}

/// An HTTP client whose calls wait for their turns.
#[derive(Debug)]
pub(super) struct ThrottledHttp(SharedHttpClient);

impl ThrottledHttp {
    pub(super) fn shared(inner: SharedHttpClient) -> SharedHttpClient {
        SharedHttpClient::new(Self(inner))
    }
}

/// Returns the HTTP client that the SDK uses by default.
pub(super) fn default_http() -> Option<SharedHttpClient> {
    let plugin = default_http_client_plugin_v2(BehaviorVersion::latest())?;
    plugin.runtime_components(&RuntimeComponentsBuilder::new("tidegate")).http_client()
}

impl HttpClient for ThrottledHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(ThrottledConnector(self.0.http_connector(settings, components)))
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.validate_base_client_config(components, config)
    }

    fn validate_final_config(&self, components: &RuntimeComponents, config: &ConfigBag) -> Result<(), BoxError> {
        self.0.validate_final_config(components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

#[derive(Debug)]
struct ThrottledConnector(SharedHttpConnector);

impl HttpConnector for ThrottledConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Some(ticket) = request.extension::<Ticket>().cloned() else { return self.0.call(request) };
        if ticket.admit_now() {
            return self.0.call(request);
        }
        let inner = self.0.clone();
        HttpConnectorFuture::new(async move {
            let admitted = ticket.admitted().await;
            admitted.map_err(|throttled| ConnectorError::other(throttled.into(), Some(ErrorKind::ThrottlingError)))?;
            inner.call(request).await
        })
    }
}
