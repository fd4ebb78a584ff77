//! moto's server: an imitation of AWS that others wrote, in Python.
//!
//! moto 5.2.5 speaks JSON for CloudWatch, and the SDK speaks CBOR, so an endpoint in front of it translates these calls.
//! All other calls pass unchanged. What moto does not do:
//!
//! - A scalable target does not change the capacity of its table, may have a minimum above its maximum, and needs no
//!   table.
//! - `DescribeScalableTargets` has at most two pages: the third repeats the second, and so on. A wrong token is a server
//!   error.
//! - `DescribeScalingPolicies` of an index has the policies of its table too, unless it names the dimension.
//! - The minutes of metrics begin at the start time of the query.
//! - An update of tables is done at once. Warm throughput may fall, and an update that names one kind removes the other.

use std::{env, ffi::OsString, process::Stdio, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::State,
    http::{HeaderMap, HeaderName, Method, Request, Response, Uri, header},
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

use crate::{
    cbor::{self, CLOUDWATCH},
    loopback::{LoopbackServer, response},
};

/// The variable that names the program `moto_server`.
const NAMED: &str = "TIDEGATE_MOTO";
/// A start that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(1);
/// What the server writes once it accepts connections, before its address.
const RUNNING: &str = " * Running on ";
/// What moto needs to know of a call.
const FORWARDED: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::AUTHORIZATION,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-target"),
];

/// A server without tables, scalable targets and metrics. Dropping it kills the process.
#[derive(Debug)]
pub struct Moto {
    server: LoopbackServer,
    _process: Child,
    // A JoinSet, because dropping it ends its tasks.
    _reading: JoinSet<()>,
}

#[derive(Clone, Debug)]
struct Upstream {
    endpoint: String,
    client: Client<HttpConnector, Body>,
}

impl Moto {
    /// Starts the program that `TIDEGATE_MOTO` names. Without that variable, prints the reason and returns `None`: the
    /// caller skips its test.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        let Some(program) = env::var_os(NAMED).filter(|named| !named.is_empty()) else {
            println!("not tested: {NAMED} names no moto_server");
            return Ok(None);
        };
        Self::launch(program).await.with_context(|| format!("{NAMED} names no moto_server that starts")).map(Some)
    }

    async fn launch(program: OsString) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        // Port 0 is a free port.
        command.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let mut lines = BufReader::new(process.stderr.take().context("the process has no output")?).lines();
        let mut written = String::new();
        let endpoint = timeout(LIMIT, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(endpoint) = line.strip_prefix(RUNNING) {
                    return Ok(Some(endpoint.to_owned()));
                }
                written.push_str(&line);
                written.push('\n');
            }
            anyhow::Ok(None)
        });
        let endpoint = endpoint.await.context("it does not listen")??;
        let endpoint = endpoint.with_context(|| format!("it ended:\n{written}"))?;
        // It writes a line for each call.
        let mut reading = JoinSet::new();
        reading.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let router = Router::new().fallback(answer).with_state(Upstream { endpoint, client });
        let server = LoopbackServer::start("the endpoint of moto", router).await?;
        Ok(Self { server, _process: process, _reading: reading })
    }

    /// Where clients of all services find it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.server.address())
    }
}

impl Upstream {
    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> anyhow::Result<(u16, HeaderMap, Bytes)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.endpoint)).body(body)?;
        for name in FORWARDED {
            if let Some(value) = headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        let (parts, body) = self.client.request(request).await?.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await?;
        Ok((parts.status.as_u16(), parts.headers, body))
    }

    /// Makes a call of CloudWatch in JSON, and returns the answer in CBOR.
    async fn translate(&self, operation: &str, headers: &HeaderMap, body: &[u8]) -> anyhow::Result<Response<Body>> {
        let call = cbor::to_json(body)?;
        let mut headers = headers.clone();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/x-amz-json-1.0"));
        headers.insert("x-amz-target", format!("GraniteServiceVersion20100801.{operation}").parse()?);
        let (status, _, body) = self.call(Method::POST, "/", &headers, Body::from(call.to_string())).await?;
        let answer: Value = if body.is_empty() { json!({}) } else { serde_json::from_slice(&body)? };
        let headers = [("content-type", "application/cbor"), ("smithy-protocol", "rpc-v2-cbor")];
        Ok(response(status, &headers, cbor::from_json(&answer)))
    }

    async fn forward(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> anyhow::Result<Response<Body>> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let (status, headers, body) = self.call(method, path, headers, Body::from(body)).await?;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        Ok(response(status, &[("content-type", kind.unwrap_or("application/x-amz-json-1.0"))], body))
    }
}

async fn answer(
    State(upstream): State<Upstream>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let answered = match uri.path().strip_prefix(CLOUDWATCH) {
        Some(operation) => upstream.translate(operation, &headers, &body).await,
        None => upstream.forward(method, &uri, &headers, body).await,
    };
    answered.unwrap_or_else(|error| response(502, &[], format!("{error:#}")))
}

#[cfg(test)]
mod tests;
