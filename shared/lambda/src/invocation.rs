//! One invocation as Lambda makes it: its event, its time, its metrics, and how it fails.

use std::error::Error;

pub use lambda_runtime::Diagnostic;
use lambda_runtime::LambdaEvent;
use metrique::{CloseValue, InflectableEntry};
use tidegate_aws::{clock, error::causes};
use tidegate_domain::time::EpochMillis;
use tokio::time::Instant;

use crate::telemetry::{InvocationContext, Telemetry};

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
pub fn diagnostic(error_type: &str, error: &(dyn Error + 'static)) -> Diagnostic {
    Diagnostic { error_type: error_type.to_owned(), error_message: causes(error) }
}
