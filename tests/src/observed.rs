//! The HTTP client that meets faults, watched: it counts calls, and holds those at which something else is
//! to happen first.

use std::{collections::BTreeMap, mem, sync::Arc};

use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
    runtime_components::RuntimeComponents,
};
use serde_json::Value;
use tidegate_sandbox::faults::FaultyHttp;
use tokio::sync::watch;

/// The same client, watched. Clones share what is counted and held.
#[derive(Clone, Debug)]
pub struct ObservedHttp {
    inner: FaultyHttp,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: BTreeMap<String, usize>,
    /// Half read units.
    read: usize,
    /// Calls of this operation wait.
    held: Option<&'static str>,
    /// Whether there is one that does.
    waits: bool,
}

impl ObservedHttp {
    /// Watches this client.
    pub fn new(inner: FaultyHttp) -> Self {
        Self { inner, seen: Arc::default() }
    }

    /// How many calls of each operation there were since this was asked last, all attempts counted.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        let mut calls = BTreeMap::new();
        self.seen.send_modify(|seen| calls = mem::take(&mut seen.calls));
        calls
    }

    /// The read units of all calls so far that name their items, which are taken to be of at most four kilobytes.
    ///
    /// AWS: [read operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption).
    pub fn read_units(&self) -> usize {
        self.seen.borrow().read / 2
    }

    /// Lets calls of this operation wait, like `DeleteItem`, until they are released.
    pub fn hold(&self, operation: &'static str) {
        self.seen.send_modify(|seen| seen.held = Some(operation));
    }

    /// Waits for a call that waits.
    pub async fn held(&self) {
        // It fails when the sender is gone, and `self` holds that.
        let _ = self.seen.subscribe().wait_for(|seen| seen.waits).await;
    }

    /// Lets all calls go on.
    pub fn release(&self) {
        self.seen.send_modify(|seen| (seen.held, seen.waits) = (None, false));
    }
}

impl HttpClient for ObservedHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(ObservedConnector { inner, seen: Arc::clone(&self.seen) })
    }
}

#[derive(Clone, Debug)]
struct ObservedConnector {
    inner: SharedHttpConnector,
    seen: Arc<watch::Sender<Seen>>,
}

impl HttpConnector for ObservedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { inner, seen } = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").and_then(|target| target.rsplit_once('.'));
            let operation = target.map_or_else(String::new, |(_, operation)| operation.to_owned());
            let read = half_read_units(&operation, &request);
            seen.send_modify(|seen| {
                seen.read += read;
                seen.waits |= seen.held == Some(operation.as_str());
                *seen.calls.entry(operation.clone()).or_default() += 1;
            });
            // It fails when the sender is gone, and this holds it.
            let _ = seen.subscribe().wait_for(|seen| seen.held != Some(operation.as_str())).await;
            inner.call(request).await
        })
    }
}

fn half_read_units(operation: &str, request: &HttpRequest) -> usize {
    let body = || request.body().bytes().and_then(|body| serde_json::from_slice::<Value>(body).ok());
    let units =
        |of: &Value| of["Keys"].as_array().map_or(1, Vec::len) * if of["ConsistentRead"] == true { 2 } else { 1 };
    match operation {
        "GetItem" => body().map_or(0, |get| units(&get)),
        "BatchGetItem" => {
            body().and_then(|get| Some(get["RequestItems"].as_object()?.values().map(units).sum())).unwrap_or_default()
        }
        _ => 0,
    }
}
