//! The Lambda Runtime API, for one process.
//!
//! AWS: [the API](https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html).

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use tidegate_domain::time::{EpochMillis, OutOfCalendar};
use tokio::sync::{Mutex, mpsc};

use crate::loopback::LoopbackServer;

/// How long a function may take for one event.
pub const INVOCATION_LIMIT: Duration = Duration::from_mins(5);

const ARN: &str = "arn:aws:lambda:us-east-1:123456789012:function:bench";
const TRACE: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0";

/// A Runtime API that one process is connected to.
#[derive(Debug)]
pub struct RuntimeApi {
    server: LoopbackServer,
    queue: mpsc::Sender<Invocation>,
    reports: mpsc::UnboundedReceiver<Report>,
    invocations: u64,
    /// The deadline of every event, instead of [`INVOCATION_LIMIT`] from now.
    deadline: Option<EpochMillis>,
}

/// The answer of the process to an event.
#[derive(Debug)]
pub struct Answer {
    /// The id that the event had, which the function's log lines should carry.
    pub request_id: String,
    /// From the handing out of the event to the arrival of the answer.
    pub took: Duration,
    /// The function's response.
    pub body: Bytes,
}

#[derive(Debug)]
struct Invocation {
    id: String,
    event: Bytes,
    deadline: Option<EpochMillis>,
}

/// The requests of the process, in their order. The server takes the times, so they do not depend on when a report is
/// read.
#[derive(Debug)]
enum Report {
    Polled(Instant),
    HandedOut(Instant),
    Answered { id: String, at: Instant, body: Bytes },
    Failed(String),
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<mpsc::Receiver<Invocation>>,
    reports: mpsc::UnboundedSender<Report>,
}

impl RuntimeApi {
    pub async fn start() -> anyhow::Result<Self> {
        let (queue, queued) = mpsc::channel(1);
        let (reporter, reports) = mpsc::unbounded_channel();
        let shared = Shared { queue: Mutex::new(queued), reports: reporter };
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(error))
            .with_state(Arc::new(shared));
        let server = LoopbackServer::start("the Runtime API", router).await?;
        Ok(Self { server, queue, reports, invocations: 0, deadline: None })
    }

    /// Gives all further events this deadline. The emulator of cargo-lambda gives 1970-01-01T00:10:00Z.
    pub fn with_deadline(mut self, deadline: EpochMillis) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Waits until the process asks for an event. Returns when it did.
    pub async fn polled(&mut self) -> anyhow::Result<Instant> {
        match self.report().await? {
            Report::Polled(at) => Ok(at),
            report => bail!("unexpected: the process has not asked for an event yet, but there is {report:?}"),
        }
    }

    /// Sends the process an event and waits for its answer, and then until it asks for the next event. Only then is all
    /// work of this event done.
    pub async fn invoke(&mut self, event: Bytes) -> anyhow::Result<Answer> {
        self.invocations += 1;
        let asked = format!("00000000-0000-4000-8000-{:012x}", self.invocations);
        let invocation = Invocation { id: asked.clone(), event, deadline: self.deadline };
        self.queue.send(invocation).await.map_err(|_| anyhow!("the Runtime API has ended"))?;
        let (mut handed_out, mut answer, mut polled) = (None, None, false);
        loop {
            match self.report().await? {
                Report::HandedOut(at) => handed_out = Some(at),
                Report::Answered { id, at, body } if id == asked => answer = Some((at, body)),
                Report::Answered { id, .. } => bail!("the function answered event {id}, but was asked {asked}"),
                Report::Polled(_) => polled = true,
                Report::Failed(_) => {}
            }
            if let (Some(start), Some((end, body)), true) = (handed_out, &answer, polled) {
                return Ok(Answer { request_id: asked, took: *end - start, body: body.clone() });
            }
        }
    }

    async fn report(&mut self) -> anyhow::Result<Report> {
        match self.reports.recv().await.context("the Runtime API has ended")? {
            Report::Failed(message) => bail!("the function reported an error: {message}"),
            report => Ok(report),
        }
    }
}

impl Shared {
    fn report(&self, report: Report) {
        // Fails when the receiver is gone: the measurement has ended.
        let _ = self.reports.send(report);
    }
}

/// Held open while nothing is queued, as Lambda does.
async fn next(State(shared): State<Arc<Shared>>) -> Result<Response, StatusCode> {
    shared.report(Report::Polled(Instant::now()));
    let Invocation { id, event, deadline } = shared.queue.lock().await.recv().await.ok_or(StatusCode::GONE)?;
    let deadline = match deadline {
        Some(deadline) => deadline.get(),
        None => limit_from_now().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?,
    };
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("lambda-runtime-aws-request-id", id),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        ("lambda-runtime-invoked-function-arn", ARN.to_owned()),
        ("lambda-runtime-trace-id", TRACE.to_owned()),
    ];
    shared.report(Report::HandedOut(Instant::now()));
    Ok((headers, event).into_response())
}

fn limit_from_now() -> Result<i64, OutOfCalendar> {
    let limit = i64::try_from(INVOCATION_LIMIT.as_millis()).unwrap_or(i64::MAX);
    Ok(tidegate_aws::clock::now()?.get().saturating_add(limit))
}

async fn response(State(shared): State<Arc<Shared>>, Path(id): Path<String>, body: Bytes) -> StatusCode {
    shared.report(Report::Answered { id, at: Instant::now(), body });
    StatusCode::ACCEPTED
}

async fn error(State(shared): State<Arc<Shared>>, body: Bytes) -> StatusCode {
    shared.report(Report::Failed(error_message(&body)));
    StatusCode::ACCEPTED
}

fn error_message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Diagnostic {
        error_type: String,
        error_message: String,
    }
    match serde_json::from_slice(body) {
        Ok(Diagnostic { error_type, error_message }) => format!("{error_type}: {error_message}"),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;

    const INVOCATION: &str = "/2018-06-01/runtime/invocation";

    fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {INVOCATION}/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A function that does with its one event what `outcome` says, and asks for another.
    fn function(address: SocketAddr, outcome: &'static str, body: String) {
        std::thread::spawn(move || {
            let event = request(address, "GET", "next", "");
            let id = event.lines().find_map(|line| line.strip_prefix("lambda-runtime-aws-request-id: ")).unwrap();
            request(address, "POST", &format!("{id}/{outcome}"), &body);
            request(address, "GET", "next", "");
        });
    }

    #[tokio::test]
    async fn an_answer_of_several_megabytes_comes_back() {
        let mut api = RuntimeApi::start().await.unwrap();
        function(api.address(), "response", "x".repeat(6_000_000));
        api.polled().await.unwrap();
        let answer = api.invoke(Bytes::from("y".repeat(25_000_000))).await.unwrap();
        assert_eq!(answer.body.len(), 6_000_000);
        assert!(answer.took > Duration::ZERO);
    }

    #[tokio::test]
    async fn a_reported_error_fails_the_invocation() {
        let mut api = RuntimeApi::start().await.unwrap();
        function(api.address(), "error", r#"{"errorType":"Config","errorMessage":"no table"}"#.to_owned());
        api.polled().await.unwrap();
        let error = api.invoke(Bytes::from("{}")).await.unwrap_err();
        assert_eq!(error.to_string(), "the function reported an error: Config: no table");
    }
}
