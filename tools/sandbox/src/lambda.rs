//! Lambda's `Invoke` in this process: functions are closures. It can throttle invocations, lose responses, and hold
//! invocations.
//!
//! An asynchronous invocation runs once; AWS repeats one that fails.
//!
//! AWS: [Invoke](https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, Response},
    routing::post,
};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    gate::Gate,
    loopback::{Loopback, LoopbackServer, broken_body, response},
};

/// Functions, served on loopback until it is dropped.
#[derive(Debug)]
pub struct EmbeddedLambda {
    endpoint: String,
    functions: Functions,
    _server: LoopbackServer,
}

/// A handle of the functions. Clones share them.
#[derive(Clone, Default)]
pub struct Functions(Arc<Mutex<FunctionsState>>);

#[derive(Default)]
struct FunctionsState {
    functions: BTreeMap<String, Arc<Function>>,
    invocations: Vec<Invocation>,
    hook: Option<Arc<Hook>>,
}

type Function = dyn Fn(Value) -> BoxFuture<'static, Result<Value, FunctionError>> + Send + Sync;

/// Called before each invocation. Returns the fault to inject, if any.
type Hook = dyn Fn(&Invocation) -> Option<Fault> + Send + Sync;

/// An invocation of a function that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub function: String,
    pub payload: Value,
    /// Whether the caller does not wait for the result (`X-Amz-Invocation-Type: Event`).
    pub is_event: bool,
}

/// The error that a function returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionError {
    pub error_type: String,
    pub error_message: String,
}

/// A fault of an invocation.
#[derive(Clone, Debug)]
pub enum Fault {
    /// 429, `TooManyRequestsException`; the function does not run.
    Throttled,
    /// 403, `AccessDeniedException`; the function does not run.
    AccessDenied,
    /// 500, `ServiceException`; the function does not run.
    Internal,
    /// The function runs, and the connection breaks.
    LostResponse,
    /// The function runs when the gate opens, even if the client has hung up by then.
    Held(Gate),
}

impl EmbeddedLambda {
    /// Starts on a free port of 127.0.0.1. The server runs on the caller's runtime.
    pub async fn start() -> anyhow::Result<Self> {
        let loopback = Loopback::bind("the embedded Lambda", None).await?;
        let (endpoint, functions) = (loopback.endpoint(), Functions::default());
        let router = Router::new().route("/2015-03-31/functions/{name}/invocations", post(invoke));
        let server = loopback.serve(router.with_state(functions.clone()));
        Ok(Self { endpoint, functions, _server: server })
    }

    /// Where clients of Lambda find it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub const fn functions(&self) -> &Functions {
        &self.functions
    }
}

impl Functions {
    /// Adds a function, or replaces it.
    pub fn add<F>(&self, name: &str, run: impl Fn(Value) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Value, FunctionError>> + Send + 'static,
    {
        let function: Arc<Function> = Arc::new(move |payload| Box::pin(run(payload)));
        self.state().functions.insert(name.to_owned(), function);
    }

    /// The invocations since this was last asked, including those that met a fault.
    pub fn take_invocations(&self) -> Vec<Invocation> {
        std::mem::take(&mut self.state().invocations)
    }

    /// Runs `hook` before each invocation. The hook may return a fault.
    pub fn on_invoke(&self, hook: impl Fn(&Invocation) -> Option<Fault> + Send + Sync + 'static) {
        self.state().hook = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn undisturbed(&self) {
        self.state().hook = None;
    }

    fn find(&self, name: &str) -> Option<Arc<Function>> {
        self.state().functions.get(name).cloned()
    }

    /// Logs an invocation and asks the hook for its fault.
    fn fault_of(&self, invocation: &Invocation) -> Option<Fault> {
        let hook = {
            let mut state = self.state();
            state.invocations.push(invocation.clone());
            state.hook.clone()?
        };
        hook(invocation)
    }

    fn state(&self) -> MutexGuard<'_, FunctionsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FunctionError {
    pub fn new(error_type: impl Into<String>, error_message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), error_message: error_message.into() }
    }
}

async fn invoke(
    State(functions): State<Functions>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let name = function_name(&name).to_owned();
    let Some(function) = functions.find(&name) else {
        let message = format!("Function not found: arn:aws:lambda:us-east-1:000000000000:function:{name}");
        return error(404, "ResourceNotFoundException", &message);
    };
    let Ok(payload) = serde_json::from_slice::<Value>(&body) else {
        return error(400, "InvalidRequestContentException", "Could not parse request body into json");
    };
    let is_event = headers.get("x-amz-invocation-type").is_some_and(|kind| kind == "Event");
    let invocation = Invocation { function: name, payload: payload.clone(), is_event };
    let fault = functions.fault_of(&invocation);
    match fault {
        Some(Fault::Throttled) => return error(429, "TooManyRequestsException", "Rate Exceeded."),
        Some(Fault::AccessDenied) => return error(403, "AccessDeniedException", "The caller may not invoke this"),
        Some(Fault::Internal) => return error(500, "ServiceException", "The service failed"),
        None | Some(Fault::LostResponse | Fault::Held(_)) => {}
    }
    let is_lost = matches!(fault, Some(Fault::LostResponse));
    // A function runs to its end even if its caller has hung up, so it needs a task of its own.
    let running = tokio::spawn(async move {
        let _passing = match &fault {
            Some(Fault::Held(gate)) => Some(gate.pass().await),
            _ => None,
        };
        function(payload).await
    });
    if is_event {
        return response(202, &[], Body::empty());
    }
    let result = running.await.unwrap_or_else(|panic| Err(FunctionError::new("Panic", panic.to_string())));
    if is_lost {
        return response(200, &[], broken_body());
    }
    match result {
        Ok(answer) => response(200, &[("x-amz-executed-version", "$LATEST")], answer.to_string()),
        Err(error) => response(200, &[("x-amz-function-error", "Unhandled")], json!(error).to_string()),
    }
}

fn error(status: u16, kind: &str, message: &str) -> Response<Body> {
    let body = json!({"Type": "User", "message": message}).to_string();
    response(status, &[("x-amzn-errortype", kind), ("content-type", "application/json")], body)
}

/// The name of a function that is given by its name or its ARN, with a qualifier or without.
fn function_name(name: &str) -> &str {
    let name = name.split_once(":function:").map_or(name, |(_, name)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let names: Vec<&String> = state.functions.keys().collect();
        f.debug_struct("Functions").field("functions", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
