//! The process of a function: it runs one invocation after the other, whether or not they succeed, until SIGTERM.

use std::{
    error::Error as StdError,
    task::{Context, Poll},
};

use anyhow::Context as _;
pub use lambda_runtime::Diagnostic;
use lambda_runtime::{Error, LambdaEvent, LambdaInvocation, Runtime, Service, service_fn, tower::layer::layer_fn};
use metrique::{CloseValue, InflectableEntry};
use serde::{Deserialize, Serialize};
use tidegate_aws::{clock, error::causes};
use tidegate_domain::time::EpochMillis;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};
use tracing::{Instrument as _, instrument::Instrumented};

use crate::telemetry::{InvocationContext, Telemetry};

/// Runs a function until its process ends.
///
/// An error and a panic of `handler` are reported as that invocation's failure, and the next one follows.
/// On SIGTERM the process exits immediately with status 0; logs are already flushed. Lambda retries an invocation that was
/// running. Lambda sends the signal only where an extension is registered, so nothing depends on it.
///
/// AWS: [shutdown phase](https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html#runtimes-lifecycle-shutdown).
pub async fn run<E, A, F>(telemetry: &Telemetry, handler: F) -> anyhow::Result<()>
where
    E: for<'de> Deserialize<'de>,
    A: Serialize,
    F: AsyncFn(Invocation<'_, E>) -> Result<A, Diagnostic>,
{
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be waited for")?;
    let handler = &handler;
    let service = service_fn(async move |event: LambdaEvent<E>| -> Result<A, Diagnostic> {
        let answer = async { handler(Invocation::new(event, telemetry)?).await }.await;
        if let Err(Diagnostic { error_type, error_message }) = &answer {
            tracing::error!(error_type, error = error_message, "invocation failed");
        }
        answer
    });
    let runtime = Runtime::new(service).layer(layer_fn(|inner| Spanned { inner, telemetry }));
    tokio::select! {
        ended = runtime.run() => ended.map_err(anyhow::Error::from_boxed),
        _ = terminate.recv() => Ok(()),
    }
}

/// Puts everything that happens for an invocation into a span that names the invocation.
struct Spanned<'t, S> {
    inner: S,
    telemetry: &'t Telemetry,
}

impl<S: Service<LambdaInvocation, Response = (), Error = Error>> Service<LambdaInvocation> for Spanned<'_, S> {
    type Response = ();
    type Error = Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, invocation: LambdaInvocation) -> Self::Future {
        self.telemetry.invoked();
        let span = self.telemetry.context(&invocation.context).span();
        // What the call itself does, such as reading the event, belongs to the invocation, too.
        span.clone().in_scope(|| self.inner.call(invocation)).instrument(span)
    }
}

/// One invocation: its event, its time, and its metrics.
#[derive(Debug)]
pub struct Invocation<'t, E> {
    /// What the function is invoked with.
    pub event: E,
    /// When it was invoked.
    pub now: EpochMillis,
    /// When it must begin to answer.
    pub deadline: Instant,
    emitter: MetricsEmitter<'t>,
}

/// Writes the metrics of one invocation.
#[derive(Debug)]
pub struct MetricsEmitter<'t> {
    telemetry: &'t Telemetry,
    context: InvocationContext,
    started: Instant,
}

impl<'t, E> Invocation<'t, E> {
    pub(crate) fn new(event: LambdaEvent<E>, telemetry: &'t Telemetry) -> Result<Self, Diagnostic> {
        let LambdaEvent { payload, context, .. } = event;
        let clock_error = |error| diagnostic("ClockError", &error);
        Ok(Self {
            now: clock::now().map_err(clock_error)?,
            deadline: clock::answer_by(context.deadline).map_err(clock_error)?,
            event: payload,
            emitter: MetricsEmitter { telemetry, context: telemetry.context(&context), started: Instant::now() },
        })
    }

    /// The event, its time, its deadline, and its metrics.
    pub fn into_parts(self) -> (E, EpochMillis, Instant, MetricsEmitter<'t>) {
        (self.event, self.now, self.deadline, self.emitter)
    }
}

impl MetricsEmitter<'_> {
    /// Writes the invocation's line of metrics: what it was, what it did, and how long it took.
    pub fn emit<R: CloseValue<Closed: InflectableEntry>>(&self, kind: &'static str, report: R) {
        self.telemetry.metrics.write(&self.context, kind, Some(self.started.elapsed()), report);
    }

    /// Writes a line of metrics of a part of the invocation. The part's own report tells how long it took.
    pub fn emit_part<R: CloseValue<Closed: InflectableEntry>>(&self, kind: &'static str, report: R) {
        self.telemetry.metrics.write(&self.context, kind, None, report);
    }
}

/// A failure as Lambda reports it, with all that caused it.
pub fn diagnostic(error_type: &str, error: &(dyn StdError + 'static)) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: causes(error) }
}
