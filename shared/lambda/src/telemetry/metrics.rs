//! The metrics: one line for each invocation, and one for each reported part of it, in CloudWatch's embedded
//! format. Each function lists the counts that are CloudWatch metrics, because a metric costs money in every hour in which it
//! is written, even if it is 0. The other counts are fields of the same line, so Logs Insights can sum them.
//!
//! AWS: [custom metrics' price](https://aws.amazon.com/cloudwatch/pricing/).

use std::{
    borrow::Cow,
    fmt,
    io::{self, Stdout},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use metrique::{
    CloseValue, InflectableEntry, RootEntry,
    emf::{Emf, NoMetric},
    writer::{
        Entry, EntryConfig, EntryIoStream as _, EntryWriter, FormatExt as _, IoStreamError, Value,
        format::FormattedEntryIoStream,
    },
};

use super::{InvocationContext, log};

/// The CloudWatch namespace of all metrics.
pub const NAMESPACE: &str = "Tidegate";
/// The one dimension of all metrics: their number must not grow with the number of tenants.
pub const DIMENSION: &str = "service";

/// Writes metrics of [`NAMESPACE`] by [`DIMENSION`].
///
/// AWS: [embedded metric format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
pub(crate) struct Metrics {
    service: String,
    names: &'static [&'static str],
    stream: Mutex<FormattedEntryIoStream<Emf, Stdout>>,
}

impl Metrics {
    /// Counts with these names are metrics.
    pub(crate) fn to_stdout(service: String, names: &'static [&'static str]) -> Self {
        let format = Emf::builder(NAMESPACE.to_owned(), vec![vec![DIMENSION.to_owned()]]).build();
        Self { service, names, stream: Mutex::new(format.output_to(io::stdout())) }
    }

    /// Writes a line, whole and at once. A failure is logged: it must not fail the work that the line reports.
    pub(crate) fn write<R: CloseValue<Closed: InflectableEntry>>(
        &self,
        context: &InvocationContext,
        kind: &'static str,
        duration: Option<Duration>,
        report: R,
    ) {
        let report = RootEntry::new(report.close());
        let line = Line { service: &self.service, names: self.names, context, kind, duration, report };
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = stream.next(&line).and_then(|()| stream.flush().map_err(IoStreamError::Io)) {
            tracing::error!(error = error.to_string(), "metrics were lost");
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("service", &self.service).finish_non_exhaustive()
    }
}

/// An invocation of some kind, or a part of one: which one, how long the whole of it took, and its counts.
struct Line<'a, R> {
    service: &'a str,
    names: &'a [&'a str],
    context: &'a InvocationContext,
    kind: &'static str,
    duration: Option<Duration>,
    report: R,
}

impl<R: Entry> Entry for Line<'_, R> {
    fn write<'w>(&'w self, line: &mut impl EntryWriter<'w>) {
        let InvocationContext {
            cold_start,
            function_name,
            function_memory_size,
            function_arn,
            function_request_id,
            xray_trace_id,
        } = self.context;
        line.value(DIMENSION, self.service);
        line.value("message", if self.duration.is_some() { "invocation done" } else { "part of an invocation done" });
        line.value("kind", self.kind);
        line.value("timestamp", &log::now());
        line.value("cold_start", if *cold_start { "true" } else { "false" });
        line.value("function_name", function_name);
        line.value("function_memory_size", &function_memory_size.to_string());
        line.value("function_arn", function_arn);
        line.value("function_request_id", function_request_id);
        line.value("xray_trace_id", xray_trace_id);
        let line = &mut MetricsByName { line, names: self.names };
        if let Some(duration) = &self.duration {
            line.value("Duration", duration);
        }
        self.report.write(line);
    }
}

/// Writes each value as a metric if it has one of these names, and as a field otherwise.
struct MetricsByName<'n, W> {
    line: W,
    names: &'n [&'n str],
}

impl<'w, W: EntryWriter<'w>> EntryWriter<'w> for MetricsByName<'_, W> {
    fn timestamp(&mut self, timestamp: SystemTime) {
        self.line.timestamp(timestamp);
    }

    fn value(&mut self, name: impl Into<Cow<'w, str>>, value: &(impl Value + ?Sized)) {
        let name = name.into();
        if self.names.contains(&name.as_ref()) {
            self.line.value(name, value);
        } else {
            self.line.value(name, &NoMetric::from(value));
        }
    }

    fn config(&mut self, config: &'w dyn EntryConfig) {
        self.line.config(config);
    }
}

#[cfg(test)]
mod tests {
    use metrique::{unit::Count, unit_of_work::metrics};

    use super::*;

    #[metrics(rename_all = "PascalCase")]
    struct Report {
        #[metrics(unit = Count)]
        already_posted: usize,
        #[metrics(unit = Count)]
        posted: usize,
    }

    #[test]
    fn an_invocation_is_a_line_of_embedded_metrics() -> Result<(), Box<dyn std::error::Error>> {
        let context = InvocationContext {
            cold_start: true,
            function_name: "rollup-1A2B".to_owned(),
            function_memory_size: 256,
            function_arn: "arn:aws:lambda:us-east-1:123456789012:function:rollup-1A2B".to_owned(),
            function_request_id: "request-1".to_owned(),
            xray_trace_id: None,
        };
        let report = RootEntry::new(Report { already_posted: 2, posted: 0 }.close());
        let duration = Some(Duration::from_micros(7_500));
        let line =
            Line { service: "usage-rollup", names: &["Posted"], context: &context, kind: "batch", duration, report };
        let format = Emf::all_validations(NAMESPACE.to_owned(), vec![vec![DIMENSION.to_owned()]]);
        let mut text = Vec::new();
        format.output_to(&mut text).next(&line)?;

        let line: serde_json::Value = serde_json::from_slice(&text)?;
        let metrics = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(
            (&metrics["Namespace"], &metrics["Dimensions"]),
            (&"Tidegate".into(), &serde_json::json!([["service"]]))
        );
        let names: Vec<_> = metrics["Metrics"].as_array().into_iter().flatten().map(|metric| &metric["Name"]).collect();
        assert_eq!(names, ["Posted"]);
        assert_eq!((&line["service"], &line["function_request_id"]), (&"usage-rollup".into(), &"request-1".into()));
        assert_eq!(
            (&line["Duration"], &line["AlreadyPosted"], &line["kind"]),
            (&7.5.into(), &2.into(), &"batch".into())
        );
        assert_eq!(line.get("xray_trace_id"), None);
        Ok(())
    }
}
