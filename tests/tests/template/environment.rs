//! Each function's environment is what its `Config` reads.

use std::{cell::RefCell, collections::BTreeSet, fs};

use anyhow::Context as _;
use serde_json::Value;
use tidegate_aws::settings::ConfigError;
use tidegate_tests::root;

use crate::stack::{Stack, object, text};

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

/// The default of a variable in the README of a function.
fn documented(package: &str, variable: &str) -> anyhow::Result<String> {
    let readme = fs::read_to_string(root().join("functions").join(package).join("README.md"))?;
    let row = format!("| `{variable}` | ");
    let (_, rest) = readme.split_once(&row).with_context(|| format!("{package}'s README does not list {variable}"))?;
    Ok(rest.split(" |").next().unwrap_or_default().to_owned())
}

fn check(stack: &Stack) -> anyhow::Result<()> {
    for (id, properties) in stack.resources("AWS::Serverless::Function")? {
        let code = text(&properties["CodeUri"])?;
        let package = code.strip_prefix("functions/").context("a package")?;
        let variables = object(&properties["Environment"]["Variables"])?;
        let asked = RefCell::new(BTreeSet::new());
        let read = configure(package, |name| {
            asked.borrow_mut().insert(name.to_owned());
            variables.get(name).map(Value::to_string).map(|value| value.trim_matches('"').to_owned())
        });
        assert!(read.is_ok(), "{id}: {read:?}");
        let given: BTreeSet<_> = variables.keys().filter(|name| *name != TELEMETRY).cloned().collect();
        let asked = asked.into_inner();
        assert!(given.is_subset(&asked), "{id} does not read {:?}", &given - &asked);
        // Lambda sets the variables with this prefix itself.
        for variable in asked.iter().filter(|variable| !variable.starts_with("AWS_LAMBDA_FUNCTION_")) {
            let default = documented(package, variable)?;
            assert!(given.contains(variable) || !default.starts_with("required"), "{id} needs {variable}");
        }
        // It tells the metrics of two stacks in one account apart.
        assert_eq!(text(&variables[TELEMETRY])?, text(&properties["FunctionName"])?, "{id}");
    }
    Ok(())
}

#[test]
fn functions_read_every_variable_and_documented_defaults() -> anyhow::Result<()> {
    check(&Stack::by_default()?)
}

#[test]
fn functions_attach_to_existing_tables() -> anyhow::Result<()> {
    check(&Stack::new(&[
        ("BucketTableName", "limits"),
        ("BucketTableStreamArn", "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/1"),
        ("NonFungibleTableName", "prod-non-fungible-tokens"),
        ("NonFungibleResourceIndex", "prod-resource-index"),
        ("RatesBucketName", "rates-of-the-fleet"),
        ("KmsKeyArn", "arn:aws:kms:us-east-1:123456789012:key/1"),
    ])?)
}

/// Without a queue, a poison record would block its shard.
#[test]
fn stream_functions_have_a_dead_letter_queue() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    for function in ["UsageRollup", "BucketKeeper"] {
        let queue = text(&stack.properties(function)?["Environment"]["Variables"]["DEAD_LETTER_QUEUE_URL"])?;
        let name = text(&stack.properties(&format!("{function}DeadLetters"))?["QueueName"])?;
        assert!(queue.ends_with(&name), "{function}: {queue}");
    }
    Ok(())
}

/// `CloudFormation` lets these values through, so the functions must understand them, and no resource or output may refer to
/// one that is not made.
#[test]
fn every_allowed_parameter_value_works() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let mut ends = 0;
    for (name, parameter) in object(stack.section("Parameters"))? {
        let listed = parameter["AllowedValues"].as_array().into_iter().flatten();
        for value in listed.chain(parameter.get("MinValue")).chain(parameter.get("MaxValue")) {
            let stack = Stack::new(&[(name, &text(value)?)])?;
            check(&stack)?;
            for (id, _) in stack.all()? {
                stack.properties(id).with_context(|| format!("{id} with {name}={value}"))?;
            }
            stack.outputs().with_context(|| format!("{name}={value}"))?;
            ends += 1;
        }
    }
    assert!(ends > 50, "{ends}");
    Ok(())
}
