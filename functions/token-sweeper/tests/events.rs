//! The payloads in `events/token-sweeper` are read as their names say. What they do is told elsewhere.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it must be")]

use std::{fs, path::PathBuf};

use serde_json::Value;
use tidegate_aws::{
    event::{BusEvent, MalformedEvent},
    processors::{Processors, Reading, Unprocessable},
};
use token_sweeper::event::Event;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../events/token-sweeper")
}

fn read(name: &str) -> Event {
    serde_json::from_slice(&fs::read(folder().join(name)).unwrap()).unwrap()
}

fn event(name: &str) -> Result<BusEvent, MalformedEvent> {
    match read(name) {
        Event::Direct(event) => BusEvent::from_json(event),
        other => panic!("{name} is {other:?}"),
    }
}

/// Each kind of event that is built in has one payload that is an end, and one that lacks the id.
#[test]
fn there_are_two_events_for_each_processor() {
    let processors = Processors::built_in().unwrap();
    let declared: Value = serde_json::from_str(include_str!("../../../shared/aws/src/processors.json")).unwrap();
    for declared in declared.as_array().unwrap() {
        let name = declared["name"].as_str().unwrap();
        let end = event(&format!("{name}.json")).unwrap();
        assert!(matches!(processors.read(&end), Ok(Reading::Ended { processor, .. }) if processor == name), "{name}");
        assert!(end.time().is_some() && end.id().is_some(), "{name}");
        let malformed = event(&format!("{name}-without-id.json")).unwrap();
        assert!(matches!(processors.read(&malformed), Err(Unprocessable::Id { .. })), "{name}");
    }
}

#[test]
fn events_that_are_no_ends() {
    let processors = Processors::built_in().unwrap();
    let running = event("ec2-instance-running.json").unwrap();
    assert_eq!(processors.read(&running), Ok(Reading::NotAnEnd { processor: "ec2-instance" }));
    let failed = event("glue-job-failed.json").unwrap();
    assert_eq!(processors.read(&failed), Ok(Reading::NotAnEnd { processor: "glue-job" }));
    let unknown = event("unknown-source.json").unwrap();
    assert!(matches!(processors.read(&unknown), Err(Unprocessable::Unknown { .. })));
    assert!(matches!(event("without-source.json"), Err(MalformedEvent::Source)));
}

/// Of the same run as `glue-job-failed.json`, whose token lives until then.
#[test]
fn a_retry_ends_its_original_run() {
    let processors = Processors::built_in().unwrap();
    let (first, retry) = (event("glue-job.json").unwrap(), event("glue-job-retried.json").unwrap());
    assert_ne!(first.json()["detail"]["jobRunId"], retry.json()["detail"]["jobRunId"]);
    assert_eq!(processors.read(&first), processors.read(&retry));
}

#[test]
fn batches_and_a_call_for_a_reconcile() {
    let check = |name, expect| match read(name) {
        Event::Batch(messages) => {
            assert_eq!(messages.iter().filter(|message| message.id().is_some()).count(), expect, "{name}");
        }
        other => panic!("{name} is {other:?}"),
    };
    check("batch.json", 8);
    check("batch-with-strays.json", 8);
    check("empty.json", 0);
    assert!(matches!(read("reconcile.json"), Event::Reconcile));
}

#[test]
fn the_processors_of_the_readme_are_valid() {
    let blocks = include_str!("../README.md").split("```").filter_map(|block| block.strip_prefix("json\n["));
    let lists: Vec<_> = blocks.map(|list| format!("[{list}")).collect();
    assert_eq!(lists.len(), 2);
    for list in lists {
        Processors::parse(&list).unwrap();
    }
}
