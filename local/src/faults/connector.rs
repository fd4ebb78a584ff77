//! The HTTP client that meets faults.

use std::{
    io::{self, ErrorKind},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
    },
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::{body::SdkBody, byte_stream::ByteStream};
use http::StatusCode;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::Value;
use tokio::sync::watch;

use super::{Fault, FaultCounts, FaultRates};

/// Of all throttling, the part that is a `ThrottlingException`: tables that are paid by the request
/// answer so now and then.
const THROTTLING_EXCEPTIONS: f64 = 0.25;

/// The SDK's HTTP client, with faults. Clones share faults, counts and crash.
///
/// It takes `http://` and `https://` endpoints. Unlike the SDK's own default, it has no regard for
/// `HTTP_PROXY`: a proxy does not reach this machine's loopback.
#[derive(Clone, Debug)]
pub struct FaultyHttp {
    inner: SharedHttpClient,
    faults: Arc<Faults>,
}

impl FaultyHttp {
    /// A client with faults at these rates, or with none at rates of 0. A seed makes the same faults
    /// again, as long as there is one call at a time.
    #[must_use]
    pub fn new(rates: FaultRates, seed: u64) -> Self {
        let inner = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        let state = State {
            draws: StdRng::seed_from_u64(seed),
            counts: FaultCounts::default(),
            updates: 0,
            write_units: 0,
            half_read_units: 0,
            crash_in: None,
        };
        let faults = Faults { rates, state: Mutex::new(state), crashed: watch::Sender::new(false) };
        Self { inner, faults: Arc::new(faults) }
    }

    /// The faults so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.faults.state().counts
    }

    /// The `UpdateItem` calls so far that the service has done and answered, whether or not the client
    /// was told. Not among them is one that the client gave up, by a timeout or with a killed invocation.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.faults.state().updates
    }

    /// The write units of the table that the calls so far have cost, done or refused by their condition: one
    /// a write, two an item of a transaction. Items are taken to be no larger than a kilobyte; what the
    /// indexes take is not counted.
    ///
    /// AWS: [write operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption).
    #[must_use]
    pub fn write_units(&self) -> u64 {
        self.faults.state().write_units
    }

    /// Half the read units that the calls so far have cost: one for an item that is read eventually consistently, two
    /// for one that is read consistently. An item, and the result of a query, is taken to be no larger than 4 KB.
    ///
    /// AWS: [read operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption).
    #[must_use]
    pub fn half_read_units(&self) -> u64 {
        self.faults.state().half_read_units
    }

    /// Lets the client's process die when the service has done this many more writes: the last one's
    /// answer does not arrive, nor does that of any call that is under way or made later. With 0, the
    /// process dies now.
    ///
    /// Writes that are under way at the time may still be done, as in life.
    pub fn crash_after(&self, writes: usize) {
        let mut state = self.faults.state();
        state.crash_in = Some(writes);
        self.faults.crash_if_due(&mut state);
    }

    /// Waits for the crash. Whoever plays the process is to drop its invocation then.
    pub async fn crashed(&self) {
        // It fails when the sender is gone, and `self` holds that.
        let _ = self.faults.crashed.subscribe().wait_for(|crashed| *crashed).await;
    }

    /// A new process: calls arrive again, and no crash is due. A call that still hangs, because nobody
    /// dropped it with its invocation, ends as on a dropped connection.
    pub fn heal(&self) {
        let mut state = self.faults.state();
        state.crash_in = None;
        self.faults.crashed.send_replace(false);
    }
}

impl HttpClient for FaultyHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(FaultyConnector { inner, faults: Arc::clone(&self.faults) })
    }
}

#[derive(Clone, Debug)]
struct FaultyConnector {
    inner: SharedHttpConnector,
    faults: Arc<Faults>,
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { inner, faults } = self.clone();
        HttpConnectorFuture::new(async move {
            faults.alive().await?;
            let answer = if let Some(write) = Write::of(&request) {
                faults.write(write, &inner, request).await
            } else {
                faults.state().half_read_units += half_read_units(&request);
                inner.call(request).await
            };
            faults.alive().await?;
            answer
        })
    }
}

#[derive(Debug)]
struct Faults {
    rates: FaultRates,
    state: Mutex<State>,
    /// Changed under the lock of `state` only.
    crashed: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    draws: StdRng,
    counts: FaultCounts,
    updates: u64,
    write_units: u64,
    half_read_units: u64,
    crash_in: Option<usize>,
}

impl Faults {
    async fn write(
        &self,
        write: Write,
        inner: &SharedHttpConnector,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let fault = self.draw();
        if let Some(fault) = fault.filter(|fault| !fault.is_after_write()) {
            self.state().counts.add(fault);
            return self.answer(fault);
        }
        let mut answer = inner.call(request).await?;
        if !answer.status().is_success() {
            if is_condition_failed(&mut answer).await? {
                self.state().write_units += write.units;
            }
            // Nothing was written: an "after" fault would not be one.
            return Ok(answer);
        }
        self.done(&write, fault);
        fault.map_or(Ok(answer), |fault| self.answer(fault))
    }

    fn draw(&self) -> Option<Fault> {
        let drawn = self.state().draws.random();
        self.rates.fault(drawn)
    }

    fn done(&self, write: &Write, fault: Option<Fault>) {
        let mut state = self.state();
        if let Some(fault) = fault {
            state.counts.add(fault);
        }
        state.updates += u64::from(write.is_update);
        state.write_units += write.units;
        state.crash_in = state.crash_in.map(|writes| writes.saturating_sub(1));
        self.crash_if_due(&mut state);
    }

    fn answer(&self, fault: Fault) -> Result<HttpResponse, ConnectorError> {
        match fault {
            Fault::Throttled if self.state().draws.random_bool(THROTTLING_EXCEPTIONS) => Ok(error(
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.availability#ThrottlingException",
                "Throughput exceeds the current capacity of your table or index.",
            )),
            Fault::Throttled => Ok(error(
                StatusCode::BAD_REQUEST,
                "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                "The level of configured provisioned throughput for the table was exceeded.",
            )),
            Fault::InternalBefore | Fault::InternalAfter => Ok(error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "com.amazonaws.dynamodb.v20120810#InternalServerError",
                "Internal server error",
            )),
            Fault::DroppedBefore | Fault::DroppedAfter => Err(dropped()),
        }
    }

    fn crash_if_due(&self, state: &mut State) {
        if state.crash_in == Some(0) {
            state.crash_in = None;
            self.crashed.send_replace(true);
        }
    }

    /// Hangs in a dead process.
    async fn alive(&self) -> Result<(), ConnectorError> {
        let crashed = *self.crashed.borrow();
        if !crashed {
            return Ok(());
        }
        // It fails when the sender is gone, and `self` holds that.
        let _ = self.crashed.subscribe().wait_for(|crashed| !crashed).await;
        Err(dropped())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that can meet faults.
struct Write {
    is_update: bool,
    /// What it costs, done or refused by its condition.
    units: u64,
}

impl Write {
    fn of(request: &HttpRequest) -> Option<Self> {
        let (_, operation) = request.headers().get("x-amz-target")?.rsplit_once('.')?;
        match operation {
            "UpdateItem" => Some(Self { is_update: true, units: 1 }),
            "PutItem" | "DeleteItem" => Some(Self { is_update: false, units: 1 }),
            "TransactWriteItems" => Some(Self { is_update: false, units: 2 * items(request) }),
            _ => None,
        }
    }
}

/// The number of items in a transaction.
fn items(transaction: &HttpRequest) -> u64 {
    body(transaction).get("TransactItems").and_then(Value::as_array).map_or(0, |items| items.len() as u64)
}

/// Half the read units that a call costs.
fn half_read_units(request: &HttpRequest) -> u64 {
    let each = |read: &Value| if read["ConsistentRead"] == true { 2 } else { 1 };
    let target = request.headers().get("x-amz-target").and_then(|target| target.rsplit_once('.'));
    match target.map_or("", |(_, operation)| operation) {
        "GetItem" | "Query" => each(&body(request)),
        "BatchGetItem" => {
            let body = body(request);
            let tables = body["RequestItems"].as_object().into_iter().flat_map(|tables| tables.values());
            tables.map(|table| each(table) * table["Keys"].as_array().map_or(0, |keys| keys.len() as u64)).sum()
        }
        _ => 0,
    }
}

fn body(request: &HttpRequest) -> Value {
    request.body().bytes().and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
}

/// Whether a write was refused because its condition does not hold; the answer can be read again.
async fn is_condition_failed(answer: &mut HttpResponse) -> Result<bool, ConnectorError> {
    let body = mem::replace(answer.body_mut(), SdkBody::taken());
    let body = ByteStream::new(body).collect().await;
    let body = body.map_err(|error| ConnectorError::io(error.into()))?.into_bytes();
    let kind = serde_json::from_slice::<Value>(&body).ok();
    let kind = kind.as_ref().and_then(|body| body.get("__type")?.as_str()).unwrap_or_default();
    let is_failed = ["ConditionalCheckFailedException", "TransactionCanceledException"]
        .iter()
        .any(|condition| kind.ends_with(condition));
    *answer.body_mut() = SdkBody::from(body);
    Ok(is_failed)
}

fn error(status: StatusCode, kind: &str, message: &str) -> HttpResponse {
    let body = serde_json::json!({ "__type": kind, "message": message });
    HttpResponse::new(status.into(), SdkBody::from(body.to_string()))
}

fn dropped() -> ConnectorError {
    ConnectorError::io(io::Error::new(ErrorKind::ConnectionReset, "injected fault").into())
}
