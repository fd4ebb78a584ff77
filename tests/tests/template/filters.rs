//! The mappings' filters are what the decoder says: what they pass is a bucket's change, what they drop is not ours or
//! adds to nothing.

use serde_json::{Value, json};
use tidegate_aws::{
    pattern::Pattern,
    stream::{self, Record},
};
use tidegate_domain::bucket::{BucketChange, ChangeKind, Counters};
use tidegate_tests::{captured_records, root};

use crate::stack::Stack;

const MAPPINGS: [&str; 2] = ["UsageRollupStream", "BucketKeeperStream"];

fn filter(mapping: &str) -> anyhow::Result<Pattern> {
    let properties = Stack::by_default()?.properties(mapping)?;
    let filters = properties["FilterCriteria"]["Filters"].as_array().cloned().unwrap_or_default();
    assert_eq!(filters.len(), 1, "{mapping}");
    let pattern: Value = serde_json::from_str(filters[0]["Pattern"].as_str().unwrap_or_default())?;
    Ok(Pattern::parse(&pattern)?)
}

/// Whether the filter passes a record that the decoder takes for one to work on, and no other.
fn check(filter: &Pattern, record: &Value) -> bool {
    let text = record.to_string();
    let passes = filter.matches(record);
    match stream::decode::<Counters>(&text) {
        // A bucket that is gone consumes nothing and needs nothing.
        Ok(Record::Change(BucketChange { kind, .. })) => assert_eq!(passes, kind != ChangeKind::Removed, "{text}"),
        Ok(Record::NotOurs) => assert!(!passes, "{text}"),
        Err(error) => assert!(passes, "would be lost in silence ({error}): {text}"),
    }
    passes
}

#[test]
fn a_real_clients_records() -> anyhow::Result<()> {
    for mapping in MAPPINGS {
        let filter = filter(mapping)?;
        let mut passed = [0, 0];
        for record in captured_records()? {
            passed[usize::from(check(&filter, &serde_json::from_str(&record.json)?))] += 1;
        }
        assert!(passed[0] > 0 && passed[1] > 100, "{passed:?}");
    }
    Ok(())
}

#[test]
fn the_payloads() -> anyhow::Result<()> {
    for mapping in MAPPINGS {
        let filter = filter(mapping)?;
        for folder in ["usage-rollup", "bucket-keeper"] {
            for file in std::fs::read_dir(root().join("events").join(folder))? {
                let event: Value = serde_json::from_slice(&std::fs::read(file?.path())?)?;
                for record in event["Records"].as_array().into_iter().flatten() {
                    check(&filter, record);
                }
            }
        }
    }
    Ok(())
}

/// Our own writes do not come back to us: no snapshot and no item of the registry passes.
#[test]
fn other_items_of_the_table() -> anyhow::Result<()> {
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
                assert!(!check(&filter, &record), "{record}");
            }
        }
    }
    Ok(())
}
