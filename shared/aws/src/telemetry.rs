//! What the functions tell their operators: logs and metrics, as JSON on standard output, where Lambda
//! collects both.

use std::{
    io::{self, Stdout},
    sync::{Mutex, PoisonError},
};

use metrique::{
    emf::Emf,
    writer::{Entry, EntryIoStream, FormatExt, IoStreamError, format::FormattedEntryIoStream},
};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, filter_fn},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The CloudWatch namespace of all metrics.
pub const NAMESPACE: &str = "Tidegate";
/// The one dimension of all metrics: the function's name.
pub const DIMENSION: &str = "service";

/// Starts logging at the level of `AWS_LAMBDA_LOG_LEVEL`, or `INFO`.
///
/// Every line carries the fields of the span around it, whatever the level: the Lambda runtime opens
/// one an invocation, with its request id.
///
/// AWS: [log levels](https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html).
pub fn init_logs() {
    let level = level(std::env::var("AWS_LAMBDA_LOG_LEVEL").ok().as_deref());
    let lines = fmt::layer().json().flatten_event(true).with_span_list(false).with_target(false);
    let wanted = filter_fn(move |metadata| metadata.is_span() || *metadata.level() <= level);
    tracing_subscriber::registry().with(lines.with_filter(wanted)).init();
}

fn level(name: Option<&str>) -> LevelFilter {
    match name {
        // Lambda's highest level, which nothing here logs at, keeps the errors.
        Some("FATAL") => LevelFilter::ERROR,
        Some(name) => name.parse().unwrap_or(LevelFilter::INFO),
        None => LevelFilter::INFO,
    }
}

/// Writes metrics in CloudWatch's embedded format, one line an invocation, from which CloudWatch makes
/// metrics and which Logs Insights can query.
///
/// AWS: [embedded metric format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
pub struct Metrics {
    stream: Mutex<FormattedEntryIoStream<Emf, Stdout>>,
}

impl Metrics {
    /// Metrics of [`NAMESPACE`] by [`DIMENSION`], which each entry must have as a field.
    #[must_use]
    pub fn to_stdout() -> Self {
        let format = Emf::builder(NAMESPACE.to_owned(), vec![vec![DIMENSION.to_owned()]]).build();
        Self { stream: Mutex::new(format.output_to(io::stdout())) }
    }

    /// Writes one entry. A failure is logged: it must not fail the work that the entry tells of.
    pub fn emit(&self, entry: &impl Entry) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        match stream.next(entry).and_then(|()| stream.flush().map_err(IoStreamError::Io)) {
            Ok(()) => {}
            Err(error) => tracing::error!(error = error.to_string(), "metrics were lost"),
        }
    }
}
