//! Each function's environment is what its `Config` reads.

use std::{cell::RefCell, collections::BTreeSet};

use serde_json::Value;
use tidegate_aws::settings::ConfigError;

use crate::stack::{Stack, object, text};

/// A function of the template, its package, and what it may leave to defaults, with the reason.
type Expected = (&'static str, &'static str, &'static [&'static str]);

const FUNCTIONS: [Expected; 6] = [
    ("UsageRollup", "usage-rollup", &[]),
    ("BucketKeeper", "bucket-keeper", &[]),
    // The repair decodes no records, so it parks none.
    ("BucketRepair", "bucket-keeper", &["DEAD_LETTER_QUEUE_URL"]),
    // Both names are given; events and reconcile are deployed apart.
    ("TokenSweeper", "token-sweeper", &["LIMITER_TABLES_BASE_NAME", "RECONCILE_EMR"]),
    (
        "TokenReconciler",
        "token-sweeper",
        &["LIMITER_TABLES_BASE_NAME", "EVENT_PROCESSORS", "MISSING_TOKEN_GRACE_SECONDS"],
    ),
    ("RateAggregator", "rate-aggregator", &[]),
];

/// Read beside the `Config`, by the lines that the function logs.
const TELEMETRY: &str = "POWERTOOLS_SERVICE_NAME";

fn configure(package: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    match package {
        "usage-rollup" => usage_rollup::config::Config::read(lookup).map(drop),
        "bucket-keeper" => bucket_keeper::config::Config::read(lookup).map(drop),
        "token-sweeper" => token_sweeper::config::Config::read(lookup).map(drop),
        "rate-aggregator" => rate_aggregator::config::Config::read(lookup).map(drop),
        _ => unreachable!("{package} is no function"),
    }
}

fn check(stack: &Stack) -> anyhow::Result<()> {
    let functions = stack.resources("AWS::Serverless::Function")?;
    assert_eq!(functions.len(), FUNCTIONS.len(), "a function without an entry here");
    for (id, package, left_out) in FUNCTIONS {
        let properties = &functions[id];
        assert_eq!(properties["CodeUri"], format!("functions/{package}"), "{id}");
        let variables = object(&properties["Environment"]["Variables"])?;
        let asked = RefCell::new(BTreeSet::new());
        let read = configure(package, |name| {
            asked.borrow_mut().insert(name.to_owned());
            variables.get(name).map(Value::to_string).map(|value| value.trim_matches('"').to_owned())
        });
        assert!(read.is_ok(), "{id}: {read:?}");
        let given: BTreeSet<_> = variables.keys().filter(|name| *name != TELEMETRY).cloned().collect();
        // Asking for a name that is given saves asking for the base of names.
        let wanted: BTreeSet<_> =
            asked.into_inner().into_iter().filter(|name| !left_out.contains(&name.as_str())).collect();
        assert_eq!(given, wanted, "{id}");
        // Metrics of two stacks in one account are told apart by it.
        assert_eq!(text(&variables[TELEMETRY])?, text(&properties["FunctionName"])?, "{id}");
    }
    Ok(())
}

#[test]
fn every_variable_is_read_and_every_one_that_is_read_is_set() -> anyhow::Result<()> {
    check(&Stack::by_default()?)
}

#[test]
fn so_it_is_with_existing_tables() -> anyhow::Result<()> {
    check(&Stack::new(&[
        ("BucketTableName", "limits"),
        ("BucketTableStreamArn", "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/1"),
        ("NonFungibleTableName", "prod-non-fungible-tokens"),
        ("NonFungibleResourceIndex", "prod-resource-index"),
        ("RatesBucketName", "rates-of-the-fleet"),
        ("KmsKeyArn", "arn:aws:kms:us-east-1:123456789012:key/1"),
    ])?)
}

/// What `CloudFormation` lets through, the functions must understand.
#[test]
fn the_ends_of_what_parameters_allow_are_understood() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let mut ends = 0;
    for (name, parameter) in object(stack.section("Parameters"))? {
        let listed = parameter["AllowedValues"].as_array().into_iter().flatten();
        for value in listed.chain(parameter.get("MinValue")).chain(parameter.get("MaxValue")) {
            check(&Stack::new(&[(name, &text(value)?)])?)?;
            ends += 1;
        }
    }
    assert!(ends > 50, "{ends}");
    Ok(())
}
