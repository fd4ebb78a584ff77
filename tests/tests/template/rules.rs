//! The rules pass what a built-in processor calls an end, what a declared one may call an end, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_aws::{
    event::BusEvent,
    pattern::Pattern,
    processors::{Processors, Reading},
};
use tidegate_tests::root;

use crate::stack::Stack;

fn rules() -> anyhow::Result<Vec<(String, Pattern)>> {
    let rules = Stack::by_default()?.resources("AWS::Events::Rule")?;
    rules.into_iter().map(|(id, rule)| Ok((id, Pattern::parse(&rule["EventPattern"])?))).collect()
}

/// Whether another attempt of a Glue job may follow. Who knows its retries may declare that none does.
fn may_be_retried(event: &Value) -> bool {
    event["source"] == "aws.glue" && ["FAILED", "EXPIRED"].iter().any(|state| event["detail"]["state"] == *state)
}

/// Which rules pass an event, of which there must be one if it is an end or may be one, and none if it is not.
fn check(rules: &[(String, Pattern)], event: &Value) -> anyhow::Result<Option<String>> {
    let processors = Processors::built_in()?;
    let told = BusEvent::from_json(event.clone()).ok().is_some_and(|event| {
        // An end without an id is one that somebody must look at: it is to come to the dead letters.
        processors.read(&event).map_or_else(
            |error| error.to_string().contains("finds no id"),
            |told| matches!(told, Reading::Ended { .. }),
        )
    });
    let passing: Vec<_> =
        rules.iter().filter(|(_, pattern)| pattern.matches(event)).map(|(id, _)| id.clone()).collect();
    assert_eq!(passing.len(), usize::from(told || may_be_retried(event)), "{passing:?} pass {event}");
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
fn a_rule_passes_an_event_if_and_only_if_it_is_an_end() -> anyhow::Result<()> {
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
            if let Some(rule) = check(&rules, &event)? {
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
fn the_payloads() -> anyhow::Result<()> {
    let rules = rules()?;
    let mut passed = 0;
    for file in std::fs::read_dir(root().join("events/token-sweeper"))? {
        let event: Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
        // The others are batches of messages, and a call for a reconcile.
        if event.get("detail").is_some() {
            passed += usize::from(check(&rules, &event)?.is_some());
        }
    }
    assert!(passed >= 8, "{passed}");
    Ok(())
}
