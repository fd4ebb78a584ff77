//! What a table has consumed, from its metrics in CloudWatch.
//!
//! AWS: [DynamoDB metrics](https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/metrics-dimensions.html).

use std::time::Duration;

use aws_sdk_cloudwatch::{
    Client,
    primitives::DateTime,
    types::{Dimension, Metric, MetricDataQuery, MetricStat},
};
use tidegate_domain::{
    capacity::{Capacity, Target},
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

/// The consumption in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The mean of the minute, rounded up.
    pub units: Capacity,
    /// When the minute began.
    pub minute: EpochMillis,
}

impl Consumption {
    /// What this client sees.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// Finds what a target consumed in the last complete minute that has a metric. Without one, nothing was consumed.
    pub async fn last_minute(&self, target: &Target, now: EpochMillis) -> Result<Consumed, StoreError> {
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
        let points = results.iter().flat_map(|result| result.timestamps().iter().zip(result.values()));
        let newest = points.map(|(time, sum)| (time.secs(), *sum)).max_by_key(|(time, _)| *time);
        let (minute, sum) = newest.unwrap_or((start, 0.0));
        let minute = EpochMillis::EPOCH.after(Duration::from_secs(minute.unsigned_abs()));
        Ok(Consumed { units: mean(sum), minute })
    }
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
