//! What a table has consumed, from its metrics in CloudWatch.
//!
//! AWS: [DynamoDB metrics](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html).

use std::{cmp::Reverse, time::Duration};

use aws_sdk_cloudwatch::{
    Client,
    primitives::DateTime,
    types::{Dimension, Metric, MetricDataQuery, MetricStat, StatusCode},
};
use tidegate_domain::{
    capacity::{Capacity, Target, announcement::Minute},
    throttle::CapacityKind,
    time::EpochMillis,
};

use crate::error::StoreError;

/// The length of a period, in seconds.
const MINUTE: i64 = 60;

/// How many complete minutes are looked at. Metrics arrive some minutes late; a minute without consumption has none.
const MINUTES: i64 = 5;

/// The consumed capacity of tables and indexes.
#[derive(Clone, Debug)]
pub struct Consumption {
    client: Client,
}

impl Consumption {
    /// What this client sees.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Finds what a target consumed in the last two complete minutes that have a metric. The metric of the last one may not
    /// be complete yet. Without metrics, nothing was consumed.
    pub async fn of(&self, target: &Target, now: EpochMillis) -> Result<Vec<Minute>, StoreError> {
        let end = now.get() / 1000 / MINUTE * MINUTE;
        let start = end - MINUTES * MINUTE;
        let metric = match target.kind {
            CapacityKind::Read => "ConsumedReadCapacityUnits",
            CapacityKind::Write => "ConsumedWriteCapacityUnits",
        };
        let dimension = |name: &str, value: &str| Dimension::builder().name(name).value(value).build();
        let mut dimensions = vec![dimension("TableName", &target.table)];
        dimensions.extend(target.index.as_ref().map(|index| dimension("GlobalSecondaryIndexName", index)));
        let metric = Metric::builder().namespace("AWS/DynamoDB").metric_name(metric).set_dimensions(Some(dimensions));
        let statistic = MetricStat::builder().metric(metric.build());
        let statistic = statistic.period(i32::try_from(MINUTE).unwrap_or(i32::MAX)).stat("Sum").build();
        let query = MetricDataQuery::builder().id("consumed").metric_stat(statistic).build();
        let request = self.client.get_metric_data().metric_data_queries(query);
        let request = request.start_time(DateTime::from_secs(start)).end_time(DateTime::from_secs(end));
        let output = request.send().await.map_err(|error| StoreError::from_sdk("GetMetricData", error))?;
        let results = output.metric_data_results.unwrap_or_default();
        if let Some(failed) = results.iter().find(|result| result.status_code() != Some(&StatusCode::Complete)) {
            let source = format!("the metric has the status {:?}", failed.status_code()).into();
            return Err(StoreError::Unavailable { operation: "GetMetricData", source });
        }
        let points = results.iter().flat_map(|result| result.timestamps().iter().zip(result.values()));
        let mut points: Vec<_> = points.map(|(time, sum)| (time.secs(), *sum)).collect();
        points.sort_by_key(|(time, _)| Reverse(*time));
        points.truncate(2);
        let minute = |(from, sum): &(i64, f64)| Minute { from: moment(*from), consumption: mean(*sum) };
        Ok(points.iter().map(minute).collect())
    }
}

fn moment(seconds: i64) -> EpochMillis {
    EpochMillis::EPOCH.after(Duration::from_secs(seconds.unsigned_abs()))
}

/// The mean of a minute with this sum, rounded up.
fn mean(sum: f64) -> Capacity {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` stops at the ends of the range")]
    let units = (sum / 60.0).ceil() as u64;
    Capacity::new(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_minute_is_rounded_up() {
        for (sum, expect) in [(0.0, 0), (0.5, 1), (60.0, 1), (60.5, 2), (240_000.0, 4_000), (f64::NAN, 0), (-1.0, 0)] {
            assert_eq!(mean(sum), Capacity::new(expect), "{sum}");
        }
    }
}
