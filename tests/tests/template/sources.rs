//! Event sources: what they deliver, and what they do after a failure.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::{Value, json};
use tidegate_aws::{
    event::BusEvent,
    pattern::Pattern,
    processors::{Processors, Reading},
    stream::{self, Record},
};
use tidegate_domain::bucket::{BucketChange, ChangeKind, Counters};
use tidegate_tests::{rollup::captured_records, root};
use token_sweeper::reconcile;

use crate::stack::{COORDINATED, Stack, text};

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
fn the_queue_waits_for_late_tokens() -> anyhow::Result<()> {
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

/// Without restores, minimums would stay raised. Applications wait in the function, so runs do not exclude each other.
#[test]
fn the_coordinator_always_restores() -> anyhow::Result<()> {
    let stack = Stack::new(&[COORDINATED])?;
    let schedule = stack.properties("CapacityCoordinatorSchedule")?;
    assert_eq!((&schedule["State"], &schedule["ScheduleExpression"]), (&json!("ENABLED"), &json!("rate(1 minute)")));
    let event: capacity_coordinator::event::Event = serde_json::from_str(&text(&schedule["Target"]["Input"])?)?;
    assert!(matches!(event, capacity_coordinator::event::Event::Restore), "{event:?}");
    assert!(stack.properties("CapacityCoordinator")?["ReservedConcurrentExecutions"].is_null());
    Ok(())
}

/// The stack of an account without provisioned tables has nothing of it.
#[test]
fn the_coordinator_needs_a_table() -> anyhow::Result<()> {
    let made = |stack: &Stack| -> anyhow::Result<BTreeSet<String>> {
        Ok(stack.all()?.into_iter().map(|(id, _)| id.to_owned()).filter(|id| id.starts_with("Capacity")).collect())
    };
    assert_eq!(made(&Stack::by_default()?)?, BTreeSet::new());
    assert!(made(&Stack::new(&[COORDINATED])?)?.len() >= 9);
    Ok(())
}

fn check_state(parameters: &[(&str, &str)], schedule: &str, expect: &str) -> anyhow::Result<()> {
    let state = Stack::new(parameters)?.properties(schedule)?["State"].clone();
    assert_eq!(state, expect, "{schedule} with {parameters:?}");
    Ok(())
}

/// A schedule for unused tables or files would only cost.
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

const MAPPINGS: [&str; 2] = ["UsageRollupStream", "BucketKeeperStream"];

fn filter(mapping: &str) -> anyhow::Result<Pattern> {
    let properties = Stack::by_default()?.properties(mapping)?;
    let filters = properties["FilterCriteria"]["Filters"].as_array().cloned().unwrap_or_default();
    assert_eq!(filters.len(), 1, "{mapping}");
    let pattern: Value = serde_json::from_str(filters[0]["Pattern"].as_str().unwrap_or_default())?;
    Ok(Pattern::parse(&pattern)?)
}

/// The filter must pass a record if the decoder needs it, and only then. Returns whether it passes.
fn check_filter(filter: &Pattern, record: &Value) -> bool {
    let text = record.to_string();
    let passes = filter.matches(record);
    match stream::decode::<Counters>(&text) {
        // A bucket that is gone consumes nothing and needs nothing.
        Ok(Record::Change(BucketChange { kind, .. })) => assert_eq!(passes, kind != ChangeKind::Removed, "{text}"),
        Ok(Record::NotOurs) => assert!(!passes, "{text}"),
        Err(error) => assert!(passes, "would be lost silently ({error}): {text}"),
    }
    passes
}

#[test]
fn filters_pass_a_real_clients_records() -> anyhow::Result<()> {
    for mapping in MAPPINGS {
        let filter = filter(mapping)?;
        let mut passed = [0, 0];
        for record in captured_records()? {
            passed[usize::from(check_filter(&filter, &serde_json::from_str(&record.json)?))] += 1;
        }
        assert!(passed[0] > 0 && passed[1] > 100, "{passed:?}");
    }
    Ok(())
}

#[test]
fn filters_pass_the_payloads() -> anyhow::Result<()> {
    for mapping in MAPPINGS {
        let filter = filter(mapping)?;
        for folder in ["usage-rollup", "bucket-keeper"] {
            for file in std::fs::read_dir(root().join("events").join(folder))? {
                let event: Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
                for record in event["Records"].as_array().into_iter().flatten() {
                    check_filter(&filter, record);
                }
            }
        }
    }
    Ok(())
}

/// The functions' own writes cause no invocation: no snapshot and no item of the registry passes.
#[test]
fn filters_drop_other_items() -> anyhow::Result<()> {
    for mapping in MAPPINGS {
        let filter = filter(mapping)?;
        for (pk, sk) in [
            ("ns/ENTITY#a", "#USAGE#api#2026-01-01T14:00:00Z"),
            ("ns/ENTITY#a", "#USAGE#api#2026-01-01T00:00:00Z#daily"),
            ("_/SYSTEM#", "#TIDEGATE#REPAIR"),
            ("_/SYSTEM#", "#VERSION"),
            ("ns/SYSTEM#", "#CONFIG"),
            ("ns/AUDIT#a", "#AUDIT#01"),
        ] {
            for event_name in ["INSERT", "MODIFY", "REMOVE"] {
                let keys = json!({"PK": {"S": pk}, "SK": {"S": sk}});
                let record = json!({"eventName": event_name, "dynamodb": {"Keys": keys}});
                assert!(!check_filter(&filter, &record), "{record}");
            }
        }
    }
    Ok(())
}

fn rules() -> anyhow::Result<Vec<(String, Pattern)>> {
    let rules = Stack::by_default()?.resources("AWS::Events::Rule")?;
    rules.into_iter().map(|(id, rule)| Ok((id, Pattern::parse(&rule["EventPattern"])?))).collect()
}

/// Whether another attempt of a Glue job may follow. A declared processor may know that none does.
fn may_be_retried(event: &Value) -> bool {
    event["source"] == "aws.glue" && ["FAILED", "EXPIRED"].iter().any(|state| event["detail"]["state"] == *state)
}

/// Exactly one rule must pass an event that is an end or may be one, and none another event. Returns the rule.
fn check_rules(rules: &[(String, Pattern)], event: &Value) -> anyhow::Result<Option<String>> {
    let processors = Processors::built_in()?;
    let is_end = BusEvent::from_json(event.clone()).ok().is_some_and(|event| {
        // A person must look at an end without an id, so it must reach the dead-letter queue.
        processors.read(&event).map_or_else(
            |error| error.to_string().contains("finds no id"),
            |reading| matches!(reading, Reading::Ended { .. }),
        )
    });
    let passing: Vec<_> =
        rules.iter().filter(|(_, pattern)| pattern.matches(event)).map(|(id, _)| id.clone()).collect();
    assert_eq!(passing.len(), usize::from(is_end || may_be_retried(event)), "{passing:?} pass {event}");
    Ok(passing.into_iter().next())
}

/// The source, the detail type, and the field of the id of each kind of event.
const KINDS: [(&str, &str, &str); 8] = [
    ("aws.emr", "EMR Cluster State Change", "clusterId"),
    ("aws.emr", "EMR Step Status Change", "stepId"),
    ("aws.emr-serverless", "EMR Serverless Job Run State Change", "jobRunId"),
    ("aws.emr-containers", "EMR Job Run State Change", "id"),
    ("aws.emr-containers", "EmrContainers Job Run State Change", "id"),
    ("aws.glue", "Glue Job State Change", "jobRunId"),
    ("aws.ec2", "EC2 Instance State-change Notification", "instance-id"),
    ("aws.cloudwatch", "CloudWatch Alarm State Change", "alarmName"),
];
const STATES: [&str; 27] = [
    "STARTING",
    "BOOTSTRAPPING",
    "RUNNING",
    "WAITING",
    "TERMINATING",
    "TERMINATED",
    "TERMINATED_WITH_ERRORS",
    "PENDING",
    "COMPLETED",
    "CANCEL_PENDING",
    "CANCELLED",
    "CANCELLING",
    "FAILED",
    "INTERRUPTED",
    "SUBMITTED",
    "SCHEDULED",
    "QUEUED",
    "SUCCESS",
    "SUCCEEDED",
    "TIMEOUT",
    "STOPPED",
    "STOPPING",
    "ERROR",
    "EXPIRED",
    "shutting-down",
    "stopped",
    "terminated",
];

#[test]
fn rules_pass_exactly_the_ends() -> anyhow::Result<()> {
    let rules = rules()?;
    let mut used = BTreeSet::new();
    let mut ends = 0;
    // A source sends the detail types that KINDS lists for it, and no others.
    for (source, detail_type, id) in KINDS {
        let states = STATES.map(|state| json!(state)).into_iter();
        let alarms = ["ALARM", "OK", "INSUFFICIENT_DATA"].map(|state| json!({"value": state}));
        for state in states.chain(alarms) {
            let detail = json!({id: "r-1", "state": state});
            let event = json!({"source": source, "detail-type": detail_type, "detail": detail});
            if let Some(rule) = check_rules(&rules, &event)? {
                used.insert(rule);
                ends += 1;
            }
        }
    }
    let all: BTreeSet<_> = rules.into_iter().map(|(id, _)| id).collect();
    assert_eq!(used, all, "a rule that passes nothing");
    assert!(ends > 20, "{ends}");
    Ok(())
}

#[test]
fn rules_pass_the_payloads() -> anyhow::Result<()> {
    let rules = rules()?;
    let mut passed = 0;
    for file in std::fs::read_dir(root().join("events/token-sweeper"))? {
        let event: Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
        // The others are batches of messages, and a call for a reconcile.
        if event.get("detail").is_some() {
            passed += usize::from(check_rules(&rules, &event)?.is_some());
        }
    }
    assert!(passed >= 8, "{passed}");
    Ok(())
}
