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
    #[metrics(unit = Millisecond)]
    duration: Duration,
    #[metrics(flatten)]
    report: Report,
}

/// What is measured of an invocation: its counts, and how long it took.
#[must_use]
pub fn invocation(request_id: &str, duration: Duration, report: Report) -> impl Entry {
    let invocation =
        Invocation { service: env!("CARGO_PKG_NAME"), request_id: request_id.to_owned(), duration, report };
    RootEntry::new(invocation.close())
}

#[cfg(test)]
mod tests {
    use metrique::{
        emf::Emf,
        writer::{EntryIoStream as _, FormatExt as _},
    };
    use tidegate_aws::telemetry::{DIMENSION, NAMESPACE};

    use super::*;

    #[test]
    fn an_invocation_is_a_line_of_embedded_metrics() -> anyhow::Result<()> {
        let report = Report { records: 9, poison: 1, already_posted: 2, ..Report::default() };
        let mut line = Vec::new();
        let format = Emf::all_validations(NAMESPACE.to_owned(), vec![vec![DIMENSION.to_owned()]]);
        format.output_to(&mut line).next(&invocation("request-1", Duration::from_millis(7), report))?;

        let line: serde_json::Value = serde_json::from_slice(&line)?;
        let metrics = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!((&metrics["Namespace"], &metrics["Dimensions"][0][0]), (&"Tidegate".into(), &"service".into()));
        assert_eq!((&line["service"], &line["function_request_id"]), (&"usage-rollup".into(), &"request-1".into()));
        assert_eq!((&line["Records"], &line["Poison"], &line["AlreadyPosted"]), (&9.into(), &1.into(), &2.into()));
        assert_eq!(line["Duration"], 7);
        Ok(())
    }
}
