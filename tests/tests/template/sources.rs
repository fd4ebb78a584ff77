//! What happens on failure is said for each event source, and fits together.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::stack::{Stack, text};

fn number(value: &Value) -> anyhow::Result<u64> {
    text(value)?.parse().with_context(|| value.to_string())
}

#[test]
fn a_stream_mapping_leaves_nothing_to_defaults() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for mapping in ["UsageRollupStream", "BucketKeeperStream"] {
        let properties = stack.properties(mapping)?;
        assert_eq!(properties["StartingPosition"], "TRIM_HORIZON");
        assert_eq!(properties["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
        assert_eq!(properties["BisectBatchOnFunctionError"], true);
        for setting in ["MaximumRetryAttempts", "MaximumRecordAgeInSeconds"] {
            text(&properties[setting])?;
        }
        for setting in ["BatchSize", "MaximumBatchingWindowInSeconds", "ParallelizationFactor"] {
            number(&properties[setting])?;
        }
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
    assert_eq!(rollup["MaximumRetryAttempts"], -1);
    let age = number(&rollup["MaximumRecordAgeInSeconds"])?;
    assert!((23 * 3600..24 * 3600).contains(&age), "{age}");
    let destination = text(&rollup["DestinationConfig"]["OnFailure"]["Destination"])?;
    assert!(destination.ends_with("FailuresBucket"), "{destination}");
    let bucket = stack.properties("FailuresBucket")?;
    let expiry = number(&bucket["LifecycleConfiguration"]["Rules"][0]["ExpirationInDays"])?;
    // A marker of a redriven record is kept for 30 days.
    assert!(expiry < 30, "{expiry}");
    // The keeper acts on what happens now, so its mapping skips what is old.
    let keeper = stack.properties("BucketKeeperStream")?;
    assert!(number(&keeper["MaximumRecordAgeInSeconds"])? <= 300);
    assert!((1..=10_000).contains(&number(&keeper["MaximumRetryAttempts"])?));
    Ok(())
}

/// What AWS advises: a message is not seen again while the function may still be at it.
#[test]
fn the_queue_waits_for_the_function_and_for_late_tokens() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let queue = stack.properties("TokenEvents")?;
    let visibility = number(&queue["VisibilityTimeout"])?;
    assert!(visibility >= 6 * number(&stack.properties("TokenSweeper")?["Timeout"])?);
    let most = number(&stack.section("Parameters")["MissingTokenGraceSeconds"]["MaxValue"])?;
    let parked_after = visibility * number(&queue["RedrivePolicy"]["maxReceiveCount"])?;
    assert!(parked_after > most, "parked after {parked_after} s, a token may be {most} s late");
    let mapping = stack.properties("TokenSweeperQueue")?;
    assert_eq!(mapping["FunctionResponseTypes"], json!(["ReportBatchItemFailures"]));
    Ok(())
}

#[test]
fn what_must_be_alone_is_alone() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for function in ["BucketRepair", "TokenReconciler", "RateAggregator"] {
        let properties = stack.properties(function)?;
        assert_eq!(properties["ReservedConcurrentExecutions"], 1, "{function}");
        assert_eq!(properties["EventInvokeConfig"]["MaximumRetryAttempts"], 0, "{function}");
        let schedule = stack.properties(&format!("{function}Schedule"))?;
        assert!(!schedule["Target"]["DeadLetterConfig"]["Arn"].is_null(), "{function}");
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

/// A wildcard is for what is below a name that is exact: log streams, a prefix's files, EMR's clusters.
#[test]
fn roles_name_what_they_may_do() -> anyhow::Result<()> {
    let stack =
        Stack::new(&[("ReconcileEmr", "true"), ("PermissionsBoundaryArn", "arn:aws:iam::123456789012:policy/b")])?;
    for (id, role) in stack.resources("AWS::IAM::Role")? {
        assert_eq!(role["PermissionsBoundary"], "arn:aws:iam::123456789012:policy/b", "{id}");
        let statements = role["Policies"][0]["PolicyDocument"]["Statement"].as_array().context("statements")?;
        for statement in statements {
            let all = |value: &Value| match value {
                Value::Array(values) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                value => vec![value.as_str().unwrap_or("*").to_owned()],
            };
            for action in all(&statement["Action"]) {
                assert!(!action.contains('*'), "{id}: {action}");
            }
            for resource in all(&statement["Resource"]) {
                let may_end_open =
                    [":cluster/*", "/rates/*", "/aws/lambda/*"].iter().any(|end| resource.ends_with(end));
                assert!(!resource.contains('*') || may_end_open, "{id}: {resource}");
            }
        }
    }
    Ok(())
}
