//! Every metric that an alarm, the dashboard or a saved query names is one that somebody measures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use anyhow::Context as _;
use serde_json::Value;

use crate::stack::{Stack, object, text};

/// What AWS measures, as far as the template names it.
const OF_AWS: [(&str, &[&str]); 5] = [
    (
        "AWS/Lambda",
        &[
            "IteratorAge",
            "Errors",
            "Throttles",
            "Duration",
            "Invocations",
            "DroppedEventCount",
            "PolledEventCount",
            "OnFailureDestinationDeliveredEventCount",
            "DestinationDeliveryFailures",
        ],
    ),
    ("AWS/SQS", &["ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"]),
    ("AWS/Events", &["FailedInvocations"]),
    ("AWS/Scheduler", &["InvocationDroppedCount", "InvocationsFailedToBeSentToDeadLetterCount"]),
    ("AWS/DynamoDB", &["ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits"]),
];

/// The namespace of the functions' own metrics.
const OWN: &str = "Tidegate";

/// What a report counts, as its line of metrics calls it: its fields, which `Debug` tells.
fn counted(report: &impl Debug) -> Vec<String> {
    let told = format!("{report:?}");
    let words = told.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    let fields = words.filter_map(|word| word.strip_suffix(':')).filter(|name| !name.is_empty());
    fields.map(|name| name.split('_').map(capitalised).collect()).collect()
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// What each function of the template measures, by the service that it calls itself.
fn own(stack: &Stack) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut own = BTreeMap::new();
    for (_, function) in stack.resources("AWS::Serverless::Function")? {
        let mut metrics = match text(&function["CodeUri"])?.as_str() {
            "functions/usage-rollup" => counted(&usage_rollup::report::Report::default()),
            "functions/bucket-keeper" => counted(&bucket_keeper::report::Report::default()),
            "functions/token-sweeper" => counted(&token_sweeper::report::Report::default()),
            "functions/rate-aggregator" => {
                let aggregation = rate_aggregator::report::Report::default();
                [counted(&aggregation), counted(&rate_aggregator::report::Summed::default())].concat()
            }
            other => anyhow::bail!("{other} is no function"),
        };
        assert!(metrics.len() > 10, "{metrics:?}");
        metrics.push("Duration".to_owned());
        own.insert(
            text(&function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"])?,
            metrics.into_iter().collect(),
        );
    }
    Ok(own)
}

/// Whether somebody measures this; `dimensions` are name and value.
fn check(stack: &Stack, namespace: &str, metric: &str, dimensions: &[(String, String)]) -> anyhow::Result<()> {
    let ((name, value), index) = match dimensions {
        [one] => (one, None),
        // Of a table, its indexes are counted apart.
        [table, (name, index)] if namespace == "AWS/DynamoDB" && name == "GlobalSecondaryIndexName" => {
            (table, Some(index))
        }
        _ => anyhow::bail!("{metric} has {dimensions:?}"),
    };
    assert!(index.is_none_or(|index| index == "GSI2" || index.ends_with("resource-index")), "{index:?}");
    if namespace == OWN {
        let own = own(stack)?;
        let measured = own.get(value).with_context(|| format!("{metric}: there is no service {value}"))?;
        assert!(name == "service" && measured.contains(metric), "{value} does not count {metric}");
        return Ok(());
    }
    let known = OF_AWS.iter().find(|(known, _)| *known == namespace).with_context(|| namespace.to_owned())?.1;
    assert!(known.contains(&metric), "{namespace} {metric}");
    let expected = match (namespace, metric) {
        ("AWS/Lambda", "DroppedEventCount" | "OnFailureDestinationDeliveredEventCount" | "PolledEventCount") => {
            "EventSourceMappingUUID"
        }
        ("AWS/Lambda", _) => "FunctionName",
        ("AWS/SQS", _) => "QueueName",
        ("AWS/Events", _) => "RuleName",
        ("AWS/Scheduler", _) => "ScheduleGroup",
        _ => "TableName",
    };
    assert_eq!(name, expected, "{namespace} {metric}");
    Ok(())
}

/// The metrics of an alarm: its own, or those that it calculates with.
fn watched(alarm: &Value) -> Vec<&Value> {
    match alarm["Metrics"].as_array() {
        Some(metrics) => {
            metrics.iter().map(|metric| &metric["MetricStat"]["Metric"]).filter(|it| !it.is_null()).collect()
        }
        None => vec![alarm],
    }
}

#[test]
fn every_alarm_watches_what_is_measured_and_tells_of_it() -> anyhow::Result<()> {
    let topic = "arn:aws:sns:us-east-1:123456789012:alarms";
    let stack = Stack::new(&[("AlarmTopicArn", topic)])?;
    let alarms = stack.resources("AWS::CloudWatch::Alarm")?;
    let mut names = BTreeSet::new();
    for (id, alarm) in &alarms {
        for metric in watched(alarm) {
            let dimensions = metric["Dimensions"].as_array().context("dimensions")?.iter();
            let dimensions: Vec<_> = dimensions
                .map(|dimension| Ok((text(&dimension["Name"])?, text(&dimension["Value"])?)))
                .collect::<anyhow::Result<_>>()?;
            check(&stack, &text(&metric["Namespace"])?, &text(&metric["MetricName"])?, &dimensions)?;
        }
        for actions in ["AlarmActions", "OKActions"] {
            assert_eq!(alarm[actions], serde_json::json!([topic]), "{id}");
        }
        assert!(text(&alarm["AlarmDescription"])?.len() > 20, "{id}");
        assert!(names.insert(text(&alarm["AlarmName"])?), "{id}");
    }
    // Each function's errors, throttles and dead letters.
    for (function, _) in stack.resources("AWS::Serverless::Function")? {
        for kind in ["Errors", "Throttles", "DeadLettersHeld"] {
            assert!(alarms.contains_key(&format!("{function}{kind}")), "{function}{kind}");
        }
    }
    Ok(())
}

/// Widgets of the dashboard that show metrics, each with its metrics.
fn widgets(stack: &Stack) -> anyhow::Result<Vec<Value>> {
    let body: Value = serde_json::from_str(&text(&stack.properties("Dashboard")?["DashboardBody"])?)?;
    Ok(body["widgets"].as_array().context("widgets")?.clone())
}

#[test]
fn the_dashboard_shows_what_is_measured() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let mut shown = 0;
    for widget in widgets(&stack)? {
        for metric in widget["properties"]["metrics"].as_array().into_iter().flatten() {
            let parts: Vec<_> = metric.as_array().context("a metric")?.iter().filter_map(Value::as_str).collect();
            if let [namespace, metric, dimensions @ ..] = &parts[..] {
                let dimensions: Vec<_> =
                    dimensions.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
                check(&stack, namespace, metric, &dimensions)?;
                shown += 1;
            } else {
                // A calculation, in a list of its own.
                assert!(parts.is_empty() && !metric[0]["expression"].is_null(), "{metric}");
            }
        }
    }
    assert!(shown > 40, "{shown}");
    Ok(())
}

#[test]
fn the_dashboard_shows_every_alarm() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let widgets = widgets(&stack)?;
    let shown: BTreeSet<_> = widgets
        .iter()
        .flat_map(|widget| widget["properties"]["alarms"].as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let alarms = stack.resources("AWS::CloudWatch::Alarm")?;
    assert_eq!(shown.len(), alarms.len());
    for id in alarms.keys() {
        assert!(shown.iter().any(|arn| arn.ends_with(&format!(":{id}"))), "{id}");
    }
    Ok(())
}

/// A memory that is not what the costs are reckoned by would make them wrong.
#[test]
fn costs_are_reckoned_by_the_memory_that_functions_have() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for (id, function) in stack.resources("AWS::Serverless::Function")? {
        assert_eq!(function["MemorySize"], 256, "{id}");
    }
    let costs = widgets(&stack)?.into_iter().flat_map(|widget| match &widget["properties"]["metrics"] {
        Value::Array(metrics) => metrics.clone(),
        _ => Vec::new(),
    });
    let reckoned = costs.filter(|metric| metric[0]["expression"].to_string().contains("/ 1000 * 0.25 *")).count();
    assert_eq!(reckoned, 6);
    Ok(())
}

/// The counts that queries add up.
#[test]
fn the_saved_queries_add_up_what_is_counted() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let counts: BTreeSet<_> = own(&stack)?.into_values().flatten().collect();
    let mut added = 0;
    for (id, query) in object(stack.section("Resources"))? {
        if query["Type"] == "AWS::Logs::QueryDefinition" {
            let text = text(&query["Properties"]["QueryString"])?;
            for part in text.split("sum(").skip(1).filter(|part| part.starts_with(char::is_uppercase)) {
                let name = part.split(')').next().unwrap_or_default();
                assert!(counts.contains(name), "{id}: {name}");
                added += 1;
            }
        }
    }
    assert!(added > 10, "{added}");
    Ok(())
}
