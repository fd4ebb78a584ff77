//! Consumed capacity by minute, and CloudWatch's `GetMetricData`.
//!
//! AWS: [GetMetricData](https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_GetMetricData.html),
//! [DynamoDB metrics](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html).

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tidegate_domain::throttle::CapacityKind;

use super::protocol::ServiceError;

/// Seconds of a minute, which is the period of these metrics.
const MINUTE: u64 = 60;

#[derive(Debug, Default)]
pub(super) struct Metrics {
    consumed: BTreeMap<(String, CapacityKind), Consumption>,
    /// How many of the newest complete minutes are missing.
    pub(super) late: u64,
}

#[derive(Debug, Default)]
struct Consumption {
    /// The sums of minutes, by their first second.
    sums: BTreeMap<u64, f64>,
    /// The sum of each other minute.
    steady: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct GetMetricData {
    metric_data_queries: Vec<MetricDataQuery>,
    start_time: f64,
    end_time: f64,
    #[serde(default)]
    scan_by: ScanBy,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum ScanBy {
    #[default]
    TimestampDescending,
    TimestampAscending,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct MetricDataQuery {
    id: String,
    metric_stat: MetricStat,
    #[serde(default = "yes")]
    return_data: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct MetricStat {
    metric: Metric,
    period: u64,
    stat: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Metric {
    namespace: String,
    #[serde(rename = "MetricName")]
    name: String,
    #[serde(default)]
    dimensions: Vec<Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Dimension {
    name: String,
    value: String,
}

/// The answer to `GetMetricData`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MetricData {
    metric_data_results: Vec<MetricDataResult>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MetricDataResult {
    id: String,
    label: String,
    status_code: &'static str,
    /// The first second of each minute.
    timestamps: Vec<u64>,
    values: Vec<f64>,
}

const fn yes() -> bool {
    true
}

impl Metrics {
    /// Sets the sum of one minute.
    pub(super) fn set_minute(&mut self, resource: &str, kind: CapacityKind, minute: u64, sum: f64) {
        self.consumption(resource, kind).sums.insert(minute / MINUTE * MINUTE, sum);
    }

    /// Sets the sum of each minute that has no sum of its own.
    pub(super) fn set_steady(&mut self, resource: &str, kind: CapacityKind, units_per_second: f64) {
        self.consumption(resource, kind).steady = Some(units_per_second * 60.0);
    }

    fn consumption(&mut self, resource: &str, kind: CapacityKind) -> &mut Consumption {
        self.consumed.entry((resource.to_owned(), kind)).or_default()
    }

    /// The minutes of a resource that are complete at `end`, oldest first.
    fn points(&self, resource: &str, kind: CapacityKind, start: u64, end: u64) -> Vec<(u64, f64)> {
        let Some(consumption) = self.consumed.get(&(resource.to_owned(), kind)) else { return Vec::new() };
        let end = (end / MINUTE).saturating_sub(self.late);
        let minutes = (start / MINUTE..end).map(|minute| minute * MINUTE);
        minutes
            .filter_map(|minute| Some((minute, consumption.sums.get(&minute).copied().or(consumption.steady)?)))
            .collect()
    }
}

impl GetMetricData {
    pub(super) fn queries(&self) -> usize {
        self.metric_data_queries.len()
    }

    pub(super) fn answer(&self, metrics: &Metrics) -> Result<MetricData, ServiceError> {
        let [start, end] = [self.start_time, self.end_time].map(|time| {
            Duration::try_from_secs_f64(time).map(|time| time.as_secs()).map_err(|error| invalid(error.to_string()))
        });
        let (start, end) = (start?, end?);
        if start >= end {
            return Err(invalid("The parameter StartTime must be less than the parameter EndTime.".to_owned()));
        }
        let mut results = Vec::new();
        for query in &self.metric_data_queries {
            if query.metric_stat.period != MINUTE || query.metric_stat.stat != "Sum" {
                return Err(invalid("The embedded CloudWatch has sums of 60 seconds only".to_owned()));
            }
            let metric = query.metric_stat.metric.consumed();
            let mut points =
                metric.map_or_else(Vec::new, |(resource, kind)| metrics.points(&resource, kind, start, end));
            if self.scan_by == ScanBy::TimestampDescending {
                points.reverse();
            }
            let (timestamps, values) = points.into_iter().unzip();
            if query.return_data {
                let label = query.metric_stat.metric.name.clone();
                let status_code = "Complete";
                results.push(MetricDataResult { id: query.id.clone(), label, status_code, timestamps, values });
            }
        }
        Ok(MetricData { metric_data_results: results })
    }
}

impl Metric {
    /// The resource and the kind, if it is a metric of consumed capacity.
    fn consumed(&self) -> Option<(String, CapacityKind)> {
        let kind = match (self.namespace.as_str(), self.name.as_str()) {
            ("AWS/DynamoDB", "ConsumedReadCapacityUnits") => CapacityKind::Read,
            ("AWS/DynamoDB", "ConsumedWriteCapacityUnits") => CapacityKind::Write,
            _ => return None,
        };
        let mut names = [None, None];
        for Dimension { name, value } in &self.dimensions {
            match name.as_str() {
                "TableName" => names[0] = Some(value),
                "GlobalSecondaryIndexName" => names[1] = Some(value),
                _ => return None,
            }
        }
        match names {
            [Some(table), None] => Some((format!("table/{table}"), kind)),
            [Some(table), Some(index)] => Some((format!("table/{table}/index/{index}"), kind)),
            [None, _] => None,
        }
    }
}

fn invalid(message: String) -> ServiceError {
    ServiceError::new(400, "ValidationError", message)
}
