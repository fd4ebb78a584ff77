//! Logs and metrics, as JSON on standard output, from where Lambda collects both.
//!
//! Fields that all lines have in common have the names that Powertools for AWS Lambda gives them, so that one query
//! finds the lines of these functions and of others.
//!
//! AWS: [standard structured keys](https://docs.aws.amazon.com/powertools/python/latest/core/logger/#standard-structured-keys).

mod log;
mod metrics;

use std::{
    panic,
    sync::atomic::{AtomicU64, Ordering},
};

use lambda_runtime::Context;
use tidegate_aws::settings::{Settings, variable};
use tracing::Span;

use self::metrics::Metrics;
pub use self::metrics::{DIMENSION, NAMESPACE};

/// The logs and metrics of a process.
#[derive(Debug)]
pub struct Telemetry {
    pub(crate) metrics: Metrics,
    invocations: AtomicU64,
}

/// The fields that every line of an invocation has.
#[derive(Clone, Debug)]
pub(crate) struct InvocationContext {
    cold_start: bool,
    function_name: String,
    /// In megabytes.
    function_memory_size: i32,
    function_arn: String,
    function_request_id: String,
    /// The trace's id alone, without the segment's.
    xray_trace_id: Option<String>,
}

impl Telemetry {
    /// Starts logging at the level of `AWS_LAMBDA_LOG_LEVEL`, or `INFO`. All lines name the service
    /// `POWERTOOLS_SERVICE_NAME`, or `function`. A panic is a line like any other. Counts that are named in `metrics` become
    /// CloudWatch metrics.
    ///
    /// To be called once, at the start of the process.
    ///
    /// AWS: [log levels](https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html).
    pub fn start(function: &str, metrics: &'static [&'static str]) -> Self {
        let settings = Settings::new(variable);
        let service = settings.get("POWERTOOLS_SERVICE_NAME").unwrap_or_else(|| function.to_owned());
        log::start(&service, settings.get("AWS_LAMBDA_LOG_LEVEL").as_deref());
        panic::set_hook(Box::new(|panic| {
            let location = panic.location().map(ToString::to_string);
            tracing::error!(location, error = panic.payload_as_str(), "panicked");
        }));
        Self { metrics: Metrics::to_stdout(service, metrics), invocations: AtomicU64::new(0) }
    }

    /// Notes that an invocation begins.
    pub(crate) fn invoked(&self) {
        self.invocations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn context(&self, context: &Context) -> InvocationContext {
        let trace = context.xray_trace_id.as_deref().map(trace_id);
        InvocationContext {
            cold_start: self.invocations.load(Ordering::Relaxed) == 1,
            function_name: context.env_config.function_name.clone(),
            function_memory_size: context.env_config.memory,
            function_arn: context.invoked_function_arn.clone(),
            function_request_id: context.request_id.clone(),
            xray_trace_id: trace.map(str::to_owned),
        }
    }
}

impl InvocationContext {
    pub(crate) fn span(&self) -> Span {
        let Self { cold_start, function_name, function_memory_size, function_arn, function_request_id, xray_trace_id } =
            self;
        tracing::error_span!(
            "invocation",
            cold_start,
            function_name,
            function_memory_size,
            function_arn,
            function_request_id,
            xray_trace_id
        )
    }
}

/// The trace's id in the header that Lambda hands over, like `Root=1-...;Parent=...;Sampled=1`.
///
/// AWS: [tracing header](https://docs.aws.amazon.com/xray/latest/devguide/xray-concepts.html#xray-concepts-tracingheader).
fn trace_id(header: &str) -> &str {
    header.split(';').find_map(|part| part.trim().strip_prefix("Root=")).unwrap_or(header)
}

/// Declares a struct of counts. Each count is reported under its own name; `+=` adds two structs up.
///
/// ```
/// use metrique::{unit::Count, unit_of_work::metrics};
///
/// tidegate_lambda::report! {
///     /// The counts of one invocation.
///     pub struct Report {
///         /// Records delivered.
///         records,
///     }
/// }
///
/// let mut both = Report { records: 1 };
/// both += &Report { records: 2 };
/// assert_eq!(both, Report { records: 3 });
/// ```
#[macro_export]
macro_rules! report {
    ($(#[doc = $doc:literal])+ pub struct $report:ident { $($(#[doc = $of_count:literal])+ $name:ident,)+ }) => {
        $(#[doc = $doc])+
        #[metrics(rename_all = "PascalCase")]
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $report {
            $($(#[doc = $of_count])+ #[metrics(unit = Count)] pub $name: usize,)+
        }

        impl ::std::ops::AddAssign<&Self> for $report {
            fn add_assign(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_by_its_root() {
        let check = |header, expect| assert_eq!(trace_id(header), expect);
        check(
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=0",
            "1-5759e988-bd862e3fe1be46a994272793",
        );
        check("Sampled=0; Root=1-5759e988-bd862e3fe1be46a994272793", "1-5759e988-bd862e3fe1be46a994272793");
        check("1-5759e988-bd862e3fe1be46a994272793", "1-5759e988-bd862e3fe1be46a994272793");
    }
}
