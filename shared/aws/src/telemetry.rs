//! Logs: one JSON object a line on standard output, where Lambda collects them.

use std::str::FromStr;

use tracing_subscriber::filter::LevelFilter;

/// Starts logging at the level of `AWS_LAMBDA_LOG_LEVEL`, or `INFO`.
///
/// Every line carries the fields of the spans around it: the Lambda runtime opens one an invocation,
/// with its request id.
///
/// AWS: [log levels](https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html).
pub fn init() {
    let level = std::env::var("AWS_LAMBDA_LOG_LEVEL").ok();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_target(false)
        .with_max_level(level.and_then(|level| LevelFilter::from_str(&level).ok()).unwrap_or(LevelFilter::INFO))
        .init();
}
