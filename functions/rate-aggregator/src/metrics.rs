//! An aggregation and an invocation as lines of metrics.

use std::time::Duration;

use metrique::{CloseValue as _, RootEntry, unit::Millisecond, unit_of_work::metrics, writer::Entry};

use crate::{
    job::Aggregated,
    report::{Report, Summed, rejections},
};

#[metrics(rename_all = "PascalCase")]
#[derive(Debug)]
struct Aggregation {
    /// The dimension; its name is fixed by `tidegate_aws::telemetry::DIMENSION`.
    #[metrics(name = "service")]
    service: &'static str,
    #[metrics(name = "function_request_id")]
    request_id: String,
    #[metrics(name = "kind")]
    kind: &'static str,
    #[metrics(name = "prefix")]
    prefix: String,
    #[metrics(name = "outcome")]
    outcome: &'static str,
    /// By reason.
    #[metrics(name = "rejections")]
    rejections: String,
    #[metrics(name = "AggregationTime", unit = Millisecond)]
    took: Duration,
    #[metrics(flatten)]
    report: Report,
}

#[metrics(rename_all = "PascalCase")]
#[derive(Debug)]
struct Invocation {
    #[metrics(name = "service")]
    service: &'static str,
    #[metrics(name = "function_request_id")]
    request_id: String,
    /// `schedule` or `once`.
    #[metrics(name = "kind")]
    kind: &'static str,
    #[metrics(unit = Millisecond)]
    duration: Duration,
    #[metrics(flatten)]
    summed: Summed,
}

/// What is measured of the aggregation of one job. Its prefix is a property, not a dimension: jobs come and go.
#[must_use]
pub fn aggregation(request_id: &str, aggregated: &Aggregated) -> impl Entry + use<> {
    let aggregation = Aggregation {
        service: env!("CARGO_PKG_NAME"),
        request_id: request_id.to_owned(),
        kind: "aggregation",
        prefix: aggregated.prefix.clone(),
        outcome: aggregated.outcome_name(),
        rejections: rejections(&aggregated.tally),
        took: aggregated.took,
        report: aggregated.report.clone(),
    };
    RootEntry::new(aggregation.close())
}

/// What is measured of an invocation, of whichever kind.
#[must_use]
pub fn invocation(request_id: &str, kind: &'static str, duration: Duration, summed: Summed) -> impl Entry + use<> {
    let (service, request_id) = (env!("CARGO_PKG_NAME"), request_id.to_owned());
    RootEntry::new(Invocation { service, request_id, kind, duration, summed }.close())
}
