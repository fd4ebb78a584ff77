//! What happens on failure is said for each event source, and fits together.

use anyhow::Context as _;
use serde_json::{Value, json};
use token_sweeper::reconcile;

use crate::stack::{Stack, text};

fn number(value: &Value) -> anyhow::Result<u64> {
    text(value)?.parse().with_context(|| value.to_string())
}

#[test]
fn a_stream_mapping_leaves_nothing_to_defaults() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for mapping in ["UsageRollupStream", "BucketKeeperStream"] {
        let properties = stack.properties(mapping)?;
        assert_eq!(properties["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
        assert_eq!(properties["BisectBatchOnFunctionError"], true);
        for setting in ["MaximumRetryAttempts", "MaximumRecordAgeInSeconds"] {
            text(&properties[setting])?;
        }
        for setting in ["BatchSize", "MaximumBatchingWindowInSeconds", "ParallelizationFactor"] {
            number(&properties[setting])?;
        }
        let destination = text(&properties["DestinationConfig"]["OnFailure"]["Destination"])?;
        assert!(destination.ends_with("FailuresBucket"), "{destination}");
        assert_eq!(properties["MetricsConfig"], json!({"Metrics": ["EventCount"]}));
    }
    let batch = |mapping| number(&stack.properties(mapping)?["BatchSize"]);
    assert!(batch("UsageRollupStream")? > batch("BucketKeeperStream")?);
    // An item's stored write units are gone in little more than a second.
    assert!(number(&stack.properties("BucketKeeperStream")?["MaximumBatchingWindowInSeconds"])? <= 1);
    Ok(())
}

/// Usage must not be lost: retries end just before the stream deletes the records, and S3 then gets the whole batch.
///
/// AWS: [on-failure destinations](https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html).
#[test]
fn usage_is_retried_for_a_day_and_stored() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let rollup = stack.properties("UsageRollupStream")?;
    assert_eq!(rollup["StartingPosition"], "TRIM_HORIZON");
    assert_eq!(rollup["MaximumRetryAttempts"], -1);
    let age = number(&rollup["MaximumRecordAgeInSeconds"])?;
    assert!((23 * 3600..24 * 3600).contains(&age), "{age}");
    let bucket = stack.properties("FailuresBucket")?;
    let expiry = number(&bucket["LifecycleConfiguration"]["Rules"][0]["ExpirationInDays"])?;
    // A marker of a redriven record is kept for 30 days.
    assert!(expiry < 30, "{expiry}");
    Ok(())
}

/// The keeper acts on what happens now. At `TRIM_HORIZON` it would discard every batch of the last day.
#[test]
fn the_keeper_skips_old_records() -> anyhow::Result<()> {
    let stack = Stack::new(&[("StreamStartingPosition", "TRIM_HORIZON")])?;
    let keeper = stack.properties("BucketKeeperStream")?;
    assert_eq!(keeper["StartingPosition"], "LATEST");
    assert!(number(&keeper["MaximumRecordAgeInSeconds"])? <= 300);
    assert!((1..=10_000).contains(&number(&keeper["MaximumRetryAttempts"])?));
    Ok(())
}

/// The first of the two steps that replace a mapping.
#[test]
fn one_switch_removes_both_stream_mappings() -> anyhow::Result<()> {
    let stack = Stack::new(&[("ReadStream", "false")])?;
    let left: Vec<_> = stack.resources("AWS::Lambda::EventSourceMapping")?.into_keys().collect();
    assert_eq!(left, ["TokenSweeperQueue"]);
    Ok(())
}

/// What AWS advises: a message is not seen again while the function may still be at it.
#[test]
fn the_queue_waits_for_the_function_and_for_late_tokens() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let queue = stack.properties("TokenEvents")?;
    let visibility = number(&queue["VisibilityTimeout"])?;
    assert!(visibility >= 6 * number(&stack.properties("TokenSweeper")?["Timeout"])?);
    let variables = stack.properties("TokenSweeper")?["Environment"]["Variables"].clone();
    let config = token_sweeper::config::Config::read(|name| variables[name].as_str().map(str::to_owned))?;
    let (grace, parked_after) =
        (config.grace.as_secs(), visibility * number(&queue["RedrivePolicy"]["maxReceiveCount"])?);
    assert!(parked_after > 2 * grace, "parked after {parked_after} s, a token may be {grace} s late");
    let mapping = stack.properties("TokenSweeperQueue")?;
    assert_eq!(mapping["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    Ok(())
}

/// The next run does the work of one that failed, so nothing is retried and nothing is kept.
#[test]
fn scheduled_functions_run_one_at_a_time() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for function in ["BucketRepair", "TokenReconciler", "RateAggregator"] {
        let properties = stack.properties(function)?;
        assert_eq!(properties["ReservedConcurrentExecutions"], 1, "{function}");
        assert_eq!(properties["EventInvokeConfig"]["MaximumRetryAttempts"], 0, "{function}");
        let schedule = stack.properties(&format!("{function}Schedule"))?;
        assert!(!schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"].is_null(), "{function}");
        let event = text(&schedule["Target"]["Input"])?;
        match function {
            "BucketRepair" => assert!(matches!(serde_json::from_str(&event)?, bucket_keeper::event::Event::Repair)),
            "TokenReconciler" => {
                assert!(matches!(serde_json::from_str(&event)?, token_sweeper::event::Event::Reconcile));
            }
            _ => assert_eq!(
                serde_json::from_str::<rate_aggregator::event::Event>(&event)?,
                rate_aggregator::event::Event::Schedule
            ),
        }
    }
    Ok(())
}

fn check_state(parameters: &[(&str, &str)], schedule: &str, expect: &str) -> anyhow::Result<()> {
    let state = Stack::new(parameters)?.properties(schedule)?["State"].clone();
    assert_eq!(state, expect, "{schedule} with {parameters:?}");
    Ok(())
}

/// A schedule for tables or files that nobody uses would only cost.
#[test]
fn schedules_without_work_are_off() -> anyhow::Result<()> {
    let token_table = [("NonFungibleTableName", "tokens"), ("NonFungibleResourceIndex", "by-resource")];
    let bucket = [("RatesBucketName", "rates-of-the-fleet")];
    check_state(&[], "TokenReconcilerSchedule", "DISABLED")?;
    check_state(&token_table, "TokenReconcilerSchedule", "ENABLED")?;
    check_state(&[("ReconcileSchedule", "ENABLED")], "TokenReconcilerSchedule", "ENABLED")?;
    let off = [token_table[0], token_table[1], ("ReconcileSchedule", "DISABLED")];
    check_state(&off, "TokenReconcilerSchedule", "DISABLED")?;
    check_state(&[], "RateAggregatorSchedule", "DISABLED")?;
    check_state(&bucket, "RateAggregatorSchedule", "ENABLED")?;
    check_state(&[("AggregationSchedule", "ENABLED")], "RateAggregatorSchedule", "ENABLED")?;
    check_state(&[bucket[0], ("AggregationSchedule", "DISABLED")], "RateAggregatorSchedule", "DISABLED")
}

/// One run lasts a minute, so a longer interval would act as a minute.
#[test]
fn an_interval_fits_into_a_run() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let most = number(&stack.section("Parameters")["AggregationIntervalSeconds"]["MaxValue"])?;
    assert!(most <= number(&stack.properties("RateAggregator")?["Timeout"])?, "{most}");
    Ok(())
}

/// The clock numbers the runs of the reconcile.
#[test]
fn the_reconcile_runs_as_it_counts() -> anyhow::Result<()> {
    let schedule = Stack::by_default()?.properties("TokenReconcilerSchedule")?.clone();
    let minutes = reconcile::INTERVAL.as_secs() / 60;
    assert_eq!(schedule["ScheduleExpression"], format!("rate({minutes} minutes)"));
    Ok(())
}
