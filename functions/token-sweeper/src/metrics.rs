//! An invocation as a line of metrics.

use std::time::Duration;

use metrique::{CloseValue as _, RootEntry, unit::Millisecond, unit_of_work::metrics, writer::Entry};

use crate::report::Report;

#[metrics(rename_all = "PascalCase")]
#[derive(Debug)]
struct Invocation {
    /// The dimension; its name is fixed by `tidegate_aws::telemetry::DIMENSION`.
    #[metrics(name = "service")]
    service: &'static str,
    #[metrics(name = "function_request_id")]
    request_id: String,
    /// `batch`, `event` or `reconcile`.
    #[metrics(name = "kind")]
    kind: &'static str,
    #[metrics(unit = Millisecond)]
    duration: Duration,
    #[metrics(flatten)]
    report: Report,
}

/// What is measured of an invocation, of whichever kind: its counts, and how long it took.
#[must_use]
pub fn invocation(request_id: &str, kind: &'static str, duration: Duration, report: Report) -> impl Entry {
    let (service, request_id) = (env!("CARGO_PKG_NAME"), request_id.to_owned());
    RootEntry::new(Invocation { service, request_id, kind, duration, report }.close())
}
