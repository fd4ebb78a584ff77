//! Every metric that an alarm, the dashboard or a saved query names is one that somebody measures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    fs,
};

use anyhow::Context as _;
use serde_json::Value;
use tidegate_tests::root;

use crate::stack::{COORDINATED, NAME, Stack, object, text};

/// What AWS measures, as far as the template names it.
const OF_AWS: [(&str, &[&str]); 4] = [
    (
        "AWS/Lambda",
        &[
            "IteratorAge",
            "Errors",
            "Throttles",
            "Duration",
            "Invocations",
            "AsyncEventsDropped",
            "DroppedEventCount",
            "PolledEventCount",
            "OnFailureDestinationDeliveredEventCount",
            "DestinationDeliveryFailures",
        ],
    ),
    ("AWS/SQS", &["ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"]),
    ("AWS/Events", &["FailedInvocations"]),
    ("AWS/Scheduler", &["InvocationDroppedCount"]),
];

/// The namespace of the functions' own metrics.
const OWN: &str = "Tidegate";

/// Returns the names of a report's counts in the metrics line. Reads them from `Debug`.
fn counted(report: &impl Debug) -> Vec<String> {
    let text = format!("{report:?}");
    let words = text.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    let fields = words.filter_map(|word| word.strip_suffix(':')).filter(|name| !name.is_empty());
    fields.map(|name| name.split('_').map(capitalised).collect()).collect()
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// What a function counts, and which of these counts are metrics.
struct Own {
    counts: Vec<String>,
    metrics: &'static [&'static str],
}

/// The counts of each function of the template, by the service that it calls itself.
fn own(stack: &Stack) -> anyhow::Result<BTreeMap<String, Own>> {
    let mut own = BTreeMap::new();
    for (_, function) in stack.resources("AWS::Serverless::Function")? {
        let (counts, metrics) = match text(&function["CodeUri"])?.as_str() {
            "functions/usage-rollup" => {
                (counted(&usage_rollup::report::RollupReport::default()), &usage_rollup::report::METRICS[..])
            }
            "functions/bucket-keeper" => {
                (counted(&bucket_keeper::report::KeeperReport::default()), &bucket_keeper::report::METRICS[..])
            }
            "functions/token-sweeper" => {
                (counted(&token_sweeper::report::SweepReport::default()), &token_sweeper::report::METRICS[..])
            }
            "functions/rate-aggregator" => {
                let aggregation = rate_aggregator::outcome::AggregationReport::default();
                let counts =
                    [counted(&aggregation), counted(&rate_aggregator::report::InvocationReport::default())].concat();
                (counts, &rate_aggregator::report::METRICS[..])
            }
            "functions/capacity-coordinator" => (
                counted(&capacity_coordinator::report::CoordinatorReport::default()),
                &capacity_coordinator::report::METRICS[..],
            ),
            other => anyhow::bail!("{other} is no function"),
        };
        for metric in metrics {
            assert!(counts.iter().any(|count| count == metric), "{metric} is not counted");
        }
        let service = text(&function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"])?;
        own.insert(service, Own { counts, metrics });
    }
    Ok(own)
}

/// Whether somebody measures this; `dimensions` are name and value.
fn check(stack: &Stack, namespace: &str, metric: &str, dimensions: &[(String, String)]) -> anyhow::Result<()> {
    let [(name, value)] = dimensions else { anyhow::bail!("{metric} has {dimensions:?}") };
    if namespace == OWN {
        let own = own(stack)?;
        let measured = own.get(value).with_context(|| format!("{metric}: there is no service {value}"))?;
        assert!(name == "service" && measured.metrics.contains(&metric), "{metric} is no metric of {value}");
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
        _ => "ScheduleGroup",
    };
    assert_eq!(name, expected, "{namespace} {metric}");
    let (kind, key) = match expected {
        "EventSourceMappingUUID" => ("AWS::Lambda::EventSourceMapping", None),
        "FunctionName" => ("AWS::Serverless::Function", Some("FunctionName")),
        "QueueName" => ("AWS::SQS::Queue", Some("QueueName")),
        "RuleName" => ("AWS::Events::Rule", Some("Name")),
        _ => ("AWS::Scheduler::ScheduleGroup", Some("Name")),
    };
    let is_there = stack.resources(kind)?.into_iter().any(|(id, properties)| match key {
        Some(key) => properties[key] == value.as_str(),
        None => *value == format!("{id}.Id"),
    });
    assert!(is_there, "{namespace} {metric}: no {kind} is called {value}");
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

/// The parameters with which every alarm exists.
const ALL_ON: [(&str, &str); 2] = [("AggregationSchedule", "ENABLED"), COORDINATED];

#[test]
fn every_alarm_watches_a_metric_and_notifies() -> anyhow::Result<()> {
    let topic = "arn:aws:sns:us-east-1:123456789012:alarms";
    let stack = Stack::new(&[ALL_ON[0], ALL_ON[1], ("AlarmTopicArn", topic)])?;
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
        assert_ne!(alarm["TreatMissingData"], "breaching", "{id} goes off on a new stack");
        assert!(text(&alarm["AlarmDescription"])?.len() > 20, "{id}");
        assert!(names.insert(text(&alarm["AlarmName"])?), "{id}");
    }
    assert!((15..=22).contains(&alarms.len()), "{} alarms", alarms.len());
    // The table of alarms has no row that makes none.
    for row in object(&stack.section("Mappings")["Alarms"])?.keys() {
        assert!(names.contains(&format!("{NAME}-{row}")), "{row}");
    }
    Ok(())
}

/// Nothing that runs may fail unnoticed, and no queue may fill up unnoticed.
#[test]
fn every_function_and_queue_has_an_alarm() -> anyhow::Result<()> {
    let stack = Stack::new(&ALL_ON)?;
    let mut watched_values = BTreeSet::new();
    for alarm in stack.resources("AWS::CloudWatch::Alarm")?.values() {
        for metric in watched(alarm) {
            if ["Errors", "AsyncEventsDropped", "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"]
                .contains(&text(&metric["MetricName"])?.as_str())
            {
                watched_values.insert(text(&metric["Dimensions"][0]["Value"])?);
            }
        }
    }
    for (kind, key) in [("AWS::Serverless::Function", "FunctionName"), ("AWS::SQS::Queue", "QueueName")] {
        for (id, properties) in stack.resources(kind)? {
            assert!(watched_values.contains(&text(&properties[key])?), "{id}");
        }
    }
    Ok(())
}

/// A rule that is off sends nothing, so an alarm on it could never go off.
#[test]
fn no_alarm_watches_what_is_off() -> anyhow::Result<()> {
    let names = |stack: &Stack| -> anyhow::Result<BTreeSet<String>> {
        stack.resources("AWS::CloudWatch::Alarm")?.values().map(|alarm| text(&alarm["AlarmName"])).collect()
    };
    let all = names(&Stack::new(&ALL_ON)?)?;
    let of_switches = ["capacity-coordinator-errors", "capacity-coordinator-silent", "rate-aggregator-silent"];
    assert_eq!(Vec::from_iter(&all - &names(&Stack::by_default()?)?), of_switches.map(|name| format!("{NAME}-{name}")));
    let of_mappings = ["mapping-stuck", "usage-rollup-discarded", "usage-rollup-lost"];
    let unread = names(&Stack::new(&[ALL_ON[0], ALL_ON[1], ("ReadStream", "false")])?)?;
    assert_eq!(Vec::from_iter(&all - &unread), of_mappings.map(|name| format!("{NAME}-{name}")));
    let stack = Stack::by_default()?;
    for (id, rule) in stack.resources("AWS::Events::Rule")? {
        let is_watched = stack.resources("AWS::CloudWatch::Alarm")?.values().any(|alarm| {
            alarm["Dimensions"][0]["Name"] == "RuleName" && alarm["Dimensions"][0]["Value"] == rule["Name"]
        });
        assert_eq!(is_watched, rule["State"].is_null(), "{id}");
    }
    Ok(())
}

#[test]
fn every_alarm_is_documented() -> anyhow::Result<()> {
    let [deploy, runbook] = ["docs/deploy.md", "docs/runbook.md"].map(|path| fs::read_to_string(root().join(path)));
    let (deploy, runbook) = (deploy?, runbook?);
    for alarm in Stack::new(&ALL_ON)?.resources("AWS::CloudWatch::Alarm")?.values() {
        let name = text(&alarm["AlarmName"])?.replace(&format!("{NAME}-"), "");
        let row = format!("| `{name}` | {} |", text(&alarm["AlarmDescription"])?);
        assert!(deploy.contains(&row), "docs/deploy.md has no row {row}");
        let has_heading = runbook.lines().any(|line| line.starts_with("### ") && line.contains(&name));
        assert!(has_heading, "docs/runbook.md has no heading for {name}");
    }
    Ok(())
}

/// The widgets of each dashboard.
fn dashboards(stack: &Stack) -> anyhow::Result<Vec<Vec<Value>>> {
    let dashboards = stack.resources("AWS::CloudWatch::Dashboard")?.into_values();
    let widgets = dashboards.map(|dashboard| {
        let body: Value = serde_json::from_str(&text(&dashboard["DashboardBody"])?)?;
        Ok(body["widgets"].as_array().context("widgets")?.clone())
    });
    widgets.collect()
}

#[test]
fn the_dashboard_shows_what_is_measured() -> anyhow::Result<()> {
    let stack = Stack::new(&ALL_ON)?;
    let mut of_our_own = BTreeSet::new();
    let mut sizes = Vec::new();
    for widgets in dashboards(&stack)? {
        let mut shown = BTreeSet::new();
        for metric in widgets.iter().filter_map(|widget| widget["properties"]["metrics"].as_array()).flatten() {
            let parts: Vec<_> = metric.as_array().context("a metric")?.iter().filter_map(Value::as_str).collect();
            if let [namespace, metric, dimensions @ ..] = &parts[..] {
                let dimensions: Vec<_> =
                    dimensions.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
                check(&stack, namespace, metric, &dimensions)?;
                shown.insert(parts.join(" "));
                if *namespace == OWN {
                    of_our_own.insert(((*metric).to_owned(), dimensions));
                }
            } else {
                // A calculation, in a list of its own.
                assert!(parts.is_empty() && !metric[0]["expression"].is_null(), "{metric}");
            }
        }
        sizes.push(shown.len());
    }
    // CloudWatch does not charge for three dashboards of up to 50 metrics, but for each metric of our own.
    assert!(sizes.len() <= 3 && sizes.iter().all(|size| *size <= 50), "{sizes:?}");
    assert!(of_our_own.len() <= 30, "{of_our_own:?}");
    // Each metric costs money, so it must be on the dashboard or in an alarm.
    let alarms = stack.resources("AWS::CloudWatch::Alarm")?;
    let watched: Vec<_> = alarms.values().flat_map(watched).map(|metric| &metric["MetricName"]).collect();
    for metric in own(&stack)?.into_values().flat_map(|own| own.metrics) {
        let is_shown = of_our_own.iter().any(|(shown, _)| shown == metric);
        assert!(
            is_shown || watched.iter().any(|watched| **watched == *metric),
            "neither dashboard nor alarm shows {metric}"
        );
    }
    Ok(())
}

#[test]
fn the_dashboard_shows_every_alarm() -> anyhow::Result<()> {
    for parameters in [&ALL_ON[..], &[("ReadStream", "false")]] {
        let stack = Stack::new(parameters)?;
        let dashboards = dashboards(&stack)?;
        let shown: BTreeSet<_> = dashboards
            .iter()
            .flatten()
            .flat_map(|widget| widget["properties"]["alarms"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let alarms = stack.resources("AWS::CloudWatch::Alarm")?;
        let arns = alarms.values().map(|alarm| {
            let name = text(&alarm["AlarmName"])?;
            Ok(format!("arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}"))
        });
        assert_eq!(shown, arns.collect::<anyhow::Result<_>>()?);
    }
    Ok(())
}

/// Costs that were computed for another memory would be wrong.
#[test]
fn costs_use_the_memory_of_each_function() -> anyhow::Result<()> {
    let stack = Stack::new(&[("AggregatorMemory", "512"), COORDINATED])?;
    let costs = dashboards(&stack)?.into_iter().flatten().flat_map(|widget| match &widget["properties"]["metrics"] {
        Value::Array(metrics) => metrics.clone(),
        _ => Vec::new(),
    });
    let costs: Vec<_> = costs.filter(|metric| metric[0]["expression"].to_string().contains("/ 1000 *")).collect();
    for (id, function) in stack.resources("AWS::Serverless::Function")? {
        let label = text(&function["FunctionName"])?.replace(&format!("{NAME}-"), "");
        let cost = costs.iter().find(|cost| cost[0]["label"] == label.as_str()).with_context(|| label.clone())?;
        let gigabytes = if id == "RateAggregator" { "* 512 / 1024 *" } else { "* 0.25 *" };
        assert!(cost[0]["expression"].to_string().contains(gigabytes), "{cost}");
        let expected = if id == "RateAggregator" { "512" } else { "256" };
        assert_eq!(text(&function["MemorySize"])?, expected, "{id}");
    }
    assert_eq!(costs.len(), 7);
    Ok(())
}

#[test]
fn the_saved_queries_add_up_what_is_counted() -> anyhow::Result<()> {
    let stack = Stack::new(&ALL_ON)?;
    let counts: BTreeSet<_> = own(&stack)?.into_values().flat_map(|own| own.counts).collect();
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
