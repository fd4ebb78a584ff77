//! An AWS endpoint that says yes to everything and counts what it is asked.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, header::CONTENT_TYPE},
    response::IntoResponse,
};

use super::local_server::LocalServer;

/// Number of calls by `X-Amz-Target`, like `DynamoDB_20120810.UpdateItem`.
pub type Calls = BTreeMap<String, u32>;

type Counter = Arc<Mutex<Calls>>;

/// The stub: `{}` is a complete answer of the JSON protocols' writes (an item not returned, a message
/// sent), so no call fails and none is retried.
#[derive(Debug)]
pub struct AwsStub {
    server: LocalServer,
    calls: Counter,
}

impl AwsStub {
    /// Starts the endpoint.
    ///
    /// # Errors
    /// If there is no port to be had.
    pub async fn start() -> anyhow::Result<Self> {
        let calls = Counter::default();
        let server = LocalServer::start(Router::new().fallback(answer).with_state(Arc::clone(&calls))).await?;
        Ok(Self { server, calls })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The calls since it was last asked.
    pub fn take_calls(&self) -> Calls {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn answer(State(calls): State<Counter>, method: Method, headers: HeaderMap, _body: Bytes) -> impl IntoResponse {
    let target = match headers.get("x-amz-target").map(|target| String::from_utf8_lossy(target.as_bytes())) {
        Some(target) => target.into_owned(),
        None => format!("{method} without a target"),
    };
    *calls.lock().unwrap_or_else(PoisonError::into_inner).entry(target).or_default() += 1;
    ([(CONTENT_TYPE, "application/x-amz-json-1.0")], "{}")
}
