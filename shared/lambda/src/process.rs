//! The process: it runs one invocation after the other, whether or not they succeed, until SIGTERM.

use std::task::{Context, Poll};

use anyhow::Context as _;
use lambda_runtime::{Error, LambdaEvent, LambdaInvocation, Runtime, Service, service_fn, tower::layer::layer_fn};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{Instrument as _, instrument::Instrumented};

use crate::{
    invocation::{Diagnostic, Invocation},
    telemetry::Telemetry,
};

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
