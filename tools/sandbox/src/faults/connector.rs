//! The HTTP client that injects faults, counts calls and holds them.

use std::{
    collections::BTreeMap,
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

/// The SDK's HTTP client, with faults. Clones share faults, counts, holds and crash.
///
/// It takes `http://` and `https://` endpoints. Unlike the SDK's default, it ignores `HTTP_PROXY`: a proxy does not reach
/// this machine's loopback interface.
#[derive(Clone, Debug)]
pub struct FaultyHttp {
    inner: SharedHttpClient,
    faults: Arc<Faults>,
    latency: Duration,
}

impl FaultyHttp {
    /// A client without faults.
    pub fn undisturbed() -> Self {
        Self::new(FaultRates::default(), 0)
    }

    /// A client with faults at these rates. The same seed gives the same faults, as long as there is one call at a time.
    pub fn new(rates: FaultRates, seed: u64) -> Self {
        let inner = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https();
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            counts: FaultCounts::default(),
            calls: BTreeMap::new(),
            updates: 0,
            write_units: 0,
            half_read_units: 0,
            crash_in: None,
            hook: None,
        };
        let faults = Faults { rates, state: Mutex::new(state), gate: watch::Sender::default() };
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

    /// How many calls of each operation there were since the last request for these counts, all attempts counted.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        mem::take(&mut self.faults.state().calls)
    }

    /// The `UpdateItem` calls so far that the service has done and answered, whether or not the client received the answer.
    /// It excludes calls that the client gave up, by a timeout or with a killed invocation.
    pub fn writes(&self) -> u64 {
        self.faults.state().updates
    }

    /// The write units of the table that the calls so far have cost, including writes whose condition failed: one for a
    /// write, two for each item of a transaction. It assumes items of at most a kilobyte, and excludes the indexes.
    ///
    /// AWS: [write operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption).
    pub fn write_units(&self) -> u64 {
        self.faults.state().write_units
    }

    /// Twice the read units that the calls so far have cost: one for an item that is read eventually consistently, two
    /// for one that is read consistently. It assumes that an item, and the result of a query, has at most 4 KB.
    ///
    /// AWS: [read operations](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption).
    pub fn half_read_units(&self) -> u64 {
        self.faults.state().half_read_units
    }

    /// Lets calls of this operation, like `DeleteItem`, wait until [`release`](Self::release).
    pub fn hold(&self, operation: &'static str) {
        self.faults.gate.send_modify(|gate| gate.held = Some(operation));
    }

    /// Waits until a call is held.
    pub async fn held(&self) {
        self.faults.until(|gate| gate.is_holding).await;
    }

    /// Lets all held calls go on.
    pub fn release(&self) {
        self.faults.gate.send_modify(|gate| (gate.held, gate.is_holding) = (None, false));
    }

    /// Lets the client's process die when the service has done this many more writes. The answers of the last write, of
    /// calls under way and of later calls do not arrive. With 0, the process dies now.
    ///
    /// The service may still do writes that are under way, as on AWS.
    pub fn crash_after(&self, writes: usize) {
        let mut state = self.faults.state();
        state.crash_in = Some(writes);
        self.faults.crash_if_due(&mut state);
    }

    /// Waits for the crash. The caller must then drop the invocation.
    pub async fn crashed(&self) {
        self.faults.until(|gate| gate.is_crashed).await;
    }

    /// Starts a new process: calls work again. A call that still hangs fails with a dropped connection.
    pub fn heal(&self) {
        let mut state = self.faults.state();
        state.crash_in = None;
        self.faults.gate.send_modify(|gate| gate.is_crashed = false);
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
            faults.admit(operation(&request)).await;
            faults.ensure_running().await?;
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
            let answer = faults.call(&inner, request).await;
            faults.ensure_running().await?;
            answer
        })
    }
}

#[derive(Debug)]
struct Faults {
    rates: FaultRates,
    state: Mutex<State>,
    gate: watch::Sender<Gate>,
}

/// Where calls wait.
#[derive(Debug, Default)]
struct Gate {
    /// The process is dead. It changes under the lock of [`Faults::state`] only.
    is_crashed: bool,
    /// Calls of this operation wait.
    held: Option<&'static str>,
    /// A call waits.
    is_holding: bool,
}

/// Picks the fault of a call by its operation and its body.
type Hook = dyn Fn(&str, &str) -> Option<Fault> + Send + Sync;

struct State {
    rng: StdRng,
    counts: FaultCounts,
    calls: BTreeMap<String, usize>,
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
    async fn until(&self, condition: impl FnMut(&Gate) -> bool) {
        // It fails when the sender is gone, and `self` holds that.
        let _ = self.gate.subscribe().wait_for(condition).await;
    }

    /// Counts a call, and waits while calls of its operation are held.
    async fn admit(&self, operation: &str) {
        *self.state().calls.entry(operation.to_owned()).or_default() += 1;
        self.gate.send_if_modified(|gate| {
            let is_held = gate.held == Some(operation);
            gate.is_holding |= is_held;
            is_held
        });
        self.until(|gate| gate.held != Some(operation)).await;
    }

    async fn call(&self, inner: &SharedHttpConnector, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let call = Call::of(&request);
        let fault = self.pick_fault(&call, &request);
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
            // The condition failed, so nothing was written and no fault after the write applies.
            return Ok(answer);
        }
        self.done(&call, fault);
        fault.map_or(Ok(answer), |fault| self.answer(fault, &call))
    }

    /// The hook's fault, or a random one.
    fn pick_fault(&self, call: &Call, request: &HttpRequest) -> Option<Fault> {
        let hook = self.state().hook.clone();
        let body = request.body().bytes().and_then(|body| str::from_utf8(body).ok()).unwrap_or_default();
        let picked = hook.and_then(|hook| hook(operation(request), body));
        picked.or_else(|| {
            if *call == Call::Other {
                return None;
            }
            let drawn = self.state().rng.random();
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
        let is_exception = fault == Fault::Throttled && self.state().rng.random_bool(THROTTLING_EXCEPTIONS);
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
            (Fault::HotPartition, _) => failure(
                StatusCode::BAD_REQUEST,
                &json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                    "message": "The level of configured provisioned throughput for the table was exceeded.",
                    "ThrottlingReasons": [{"reason": "TableWriteKeyRangeThroughputExceeded"}],
                }),
            ),
            (Fault::Conflict, _) => error(
                StatusCode::BAD_REQUEST,
                "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
                "Transaction is ongoing for the item",
            ),
            (Fault::AccessDenied, _) => error(
                StatusCode::BAD_REQUEST,
                "com.amazon.coral.service#AccessDeniedException",
                "User is not authorized to perform the operation on the resource",
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
            self.gate.send_modify(|gate| gate.is_crashed = true);
        }
    }

    /// Hangs while the process is dead, and fails when the next one starts.
    async fn ensure_running(&self) -> Result<(), ConnectorError> {
        if !self.gate.borrow().is_crashed {
            return Ok(());
        }
        self.until(|gate| !gate.is_crashed).await;
        Err(dropped())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of a call, which its faults and its costs depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `UpdateItem`.
    Update,
    /// Another write of one item.
    Write,
    /// A transaction, with the number of its items.
    Transaction(usize),
    Read,
    /// Only a hook picks its faults.
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
