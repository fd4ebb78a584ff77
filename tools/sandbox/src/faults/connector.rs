//! The HTTP client that meets faults.

use std::{
    fmt,
    io::{self, ErrorKind},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
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
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Fault, FaultCounts, FaultRates};

/// The fraction of throttled calls that fail with `ThrottlingException`, as on-demand tables sometimes do.
const THROTTLING_EXCEPTIONS: f64 = 0.25;

/// The SDK's HTTP client, with faults. Clones share faults, counts and crash.
///
/// It takes `http://` and `https://` endpoints. Unlike the SDK's own default, it has no regard for
/// `HTTP_PROXY`: a proxy does not reach this machine's loopback.
#[derive(Clone, Debug)]
pub struct FaultyHttp {
    inner: SharedHttpClient,
    faults: Arc<Faults>,
    latency: Duration,
}

impl FaultyHttp {
    /// A client with faults at these rates, or with none at rates of 0. A seed makes the same faults
    /// again, as long as there is one call at a time.
    pub fn new(rates: FaultRates, seed: u64) -> Self {
        let inner = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        let state = State {
            draws: StdRng::seed_from_u64(seed),
            counts: FaultCounts::default(),
            updates: 0,
            write_units: 0,
            half_read_units: 0,
            crash_in: None,
            hook: None,
        };
        let faults = Faults { rates, state: Mutex::new(state), crashed: watch::Sender::new(false) };
        Self { inner, faults: Arc::new(faults), latency: Duration::ZERO }
    }

    /// The same client, whose calls each take this much longer.
    pub fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Picks the fault of each call by its operation, like `GetItem`, and its body. If `hook` returns none, the rates decide.
    pub fn on_call(&self, hook: impl Fn(&str, &str) -> Option<Fault> + Send + Sync + 'static) {
        self.faults.state().hook = Some(Arc::new(hook));
    }

    /// The faults so far.
    pub fn counts(&self) -> FaultCounts {
        self.faults.state().counts
    }

    /// The `UpdateItem` calls so far that the service has done and answered, whether or not the client
    /// was told. Not among them is one that the client gave up, by a timeout or with a killed invocation.
    pub fn writes(&self) -> u64 {
        self.faults.state().updates
    }

    /// The write units of the table that the calls so far have cost, done or refused by their condition: one
    /// a write, two an item of a transaction. Items are taken to be no larger than a kilobyte; what the
    /// indexes take is not counted.
    ///
    /// AWS: [write operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption).
    pub fn write_units(&self) -> u64 {
        self.faults.state().write_units
    }

    /// Half the read units that the calls so far have cost: one for an item that is read eventually consistently, two
    /// for one that is read consistently. An item, and the result of a query, is taken to be no larger than 4 KB.
    ///
    /// AWS: [read operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption).
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

    /// Waits for the crash. The caller must then drop the invocation.
    pub async fn crashed(&self) {
        // It fails when the sender is gone, and `self` holds that.
        let _ = self.faults.crashed.subscribe().wait_for(|crashed| *crashed).await;
    }

    /// Starts a new process: calls work again. A call that still hangs fails with a dropped connection.
    pub fn heal(&self) {
        let mut state = self.faults.state();
        state.crash_in = None;
        self.faults.crashed.send_replace(false);
    }
}

impl HttpClient for FaultyHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(FaultyConnector { inner, faults: Arc::clone(&self.faults), latency: self.latency })
    }
}

#[derive(Clone, Debug)]
struct FaultyConnector {
    inner: SharedHttpConnector,
    faults: Arc<Faults>,
    latency: Duration,
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { inner, faults, latency } = self.clone();
        HttpConnectorFuture::new(async move {
            faults.alive().await?;
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
            let answer = faults.call(&inner, request).await;
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

/// Says what befalls a call, by its operation and its body.
type Hook = dyn Fn(&str, &str) -> Option<Fault> + Send + Sync;

struct State {
    draws: StdRng,
    counts: FaultCounts,
    updates: u64,
    write_units: u64,
    half_read_units: u64,
    crash_in: Option<usize>,
    hook: Option<Arc<Hook>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("counts", &self.counts).field("updates", &self.updates).finish_non_exhaustive()
    }
}

impl Faults {
    async fn call(&self, inner: &SharedHttpConnector, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let call = Call::of(&request);
        let fault = self.befalls(&call, &request);
        if fault == Some(Fault::Hang) {
            return std::future::pending().await;
        }
        if let Some(fault) = fault.filter(|fault| !fault.is_after_write()) {
            self.state().counts.add(fault);
            return self.answer(fault, &call);
        }
        let half_read_units = half_read_units(&request);
        let mut answer = inner.call(request).await?;
        self.state().half_read_units += half_read_units;
        if !answer.status().is_success() {
            if call.units() > 0 && is_condition_failed(&mut answer).await? {
                self.state().write_units += call.units();
            }
            // Nothing was written: an "after" fault would not be one.
            return Ok(answer);
        }
        self.done(&call, fault);
        fault.map_or(Ok(answer), |fault| self.answer(fault, &call))
    }

    /// What the hook says; without an answer of its own, what is drawn.
    fn befalls(&self, call: &Call, request: &HttpRequest) -> Option<Fault> {
        let hook = self.state().hook.clone();
        let body = request.body().bytes().and_then(|body| str::from_utf8(body).ok()).unwrap_or_default();
        let picked = hook.and_then(|hook| hook(operation(request), body));
        picked.or_else(|| {
            if *call == Call::Other {
                return None;
            }
            let drawn = self.state().draws.random();
            self.rates.fault(drawn).filter(|fault| *fault != Fault::Conflict || *call != Call::Read)
        })
    }

    fn done(&self, call: &Call, fault: Option<Fault>) {
        let mut state = self.state();
        if let Some(fault) = fault {
            state.counts.add(fault);
        }
        if call.units() == 0 {
            return;
        }
        state.updates += u64::from(*call == Call::Update);
        state.write_units += call.units();
        state.crash_in = state.crash_in.map(|writes| writes.saturating_sub(1));
        self.crash_if_due(&mut state);
    }

    fn answer(&self, fault: Fault, call: &Call) -> Result<HttpResponse, ConnectorError> {
        let is_exception = fault == Fault::Throttled && self.state().draws.random_bool(THROTTLING_EXCEPTIONS);
        Ok(match (fault, call) {
            (Fault::Throttled, Call::Transaction(items)) if is_exception => canceled("ThrottlingError", *items),
            (Fault::Throttled, Call::Transaction(items)) => canceled("ProvisionedThroughputExceeded", *items),
            (Fault::Conflict, Call::Transaction(items)) => canceled("TransactionConflict", *items),
            (Fault::Throttled, _) if is_exception => error(
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.availability#ThrottlingException",
                "Throughput exceeds the current capacity of your table or index.",
            ),
            (Fault::Throttled, _) => error(
                StatusCode::BAD_REQUEST,
                "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                "The level of configured provisioned throughput for the table was exceeded.",
            ),
            (Fault::Conflict, _) => error(
                StatusCode::BAD_REQUEST,
                "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
                "Transaction is ongoing for the item",
            ),
            (Fault::InternalBefore | Fault::InternalAfter, _) => error(
                StatusCode::INTERNAL_SERVER_ERROR,
                "com.amazonaws.dynamodb.v20120810#InternalServerError",
                "Internal server error",
            ),
            (Fault::DroppedBefore | Fault::DroppedAfter | Fault::Hang, _) => return Err(dropped()),
        })
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

/// A call, as far as its faults and its costs depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `UpdateItem`.
    Update,
    /// Another write of one item.
    Write,
    /// A transaction, with the number of its items.
    Transaction(usize),
    Read,
    /// It meets no faults but those that a hook picks.
    Other,
}

impl Call {
    fn of(request: &HttpRequest) -> Self {
        match operation(request) {
            "UpdateItem" => Self::Update,
            "PutItem" | "DeleteItem" => Self::Write,
            "TransactWriteItems" => Self::Transaction(items(request)),
            "GetItem" | "BatchGetItem" | "Query" => Self::Read,
            _ => Self::Other,
        }
    }

    /// The write units that it costs, done or refused by its condition.
    const fn units(self) -> u64 {
        match self {
            Self::Update | Self::Write => 1,
            Self::Transaction(items) => 2 * items as u64,
            Self::Read | Self::Other => 0,
        }
    }
}

fn operation(request: &HttpRequest) -> &str {
    let target = request.headers().get("x-amz-target").and_then(|target| target.rsplit_once('.'));
    target.map_or("", |(_, operation)| operation)
}

/// The number of items in a transaction.
fn items(transaction: &HttpRequest) -> usize {
    body(transaction).get("TransactItems").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Half the read units that a call costs.
fn half_read_units(request: &HttpRequest) -> u64 {
    let each = |read: &Value| if read["ConsistentRead"] == true { 2 } else { 1 };
    match operation(request) {
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
    failure(status, &json!({ "__type": kind, "message": message }))
}

/// A transaction was cancelled because of its first item.
///
/// AWS: [TransactionCanceledException](https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html#API_TransactWriteItems_Errors).
fn canceled(code: &str, items: usize) -> HttpResponse {
    let reasons: Vec<_> = (0..items).map(|item| json!({ "Code": if item == 0 { code } else { "None" } })).collect();
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let message = "Transaction cancelled, please refer cancellation reasons for specific reasons";
    let body = json!({ "__type": kind, "message": message, "CancellationReasons": reasons });
    failure(StatusCode::BAD_REQUEST, &body)
}

fn failure(status: StatusCode, body: &Value) -> HttpResponse {
    HttpResponse::new(status.into(), SdkBody::from(body.to_string()))
}

fn dropped() -> ConnectorError {
    ConnectorError::io(io::Error::new(ErrorKind::ConnectionReset, "injected fault").into())
}
