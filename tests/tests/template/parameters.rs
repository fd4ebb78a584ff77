//! Parameters are documented, fit together, and reach the functions' environments.

use std::{cell::RefCell, collections::BTreeSet, fs};

use anyhow::Context as _;
use serde_json::Value;
use tidegate_aws::settings::ConfigError;
use tidegate_tests::root;
use toml::Table;

use crate::stack::{COORDINATED, Stack, object, text};

#[test]
fn every_parameter_is_grouped_and_described_and_documented() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let parameters: BTreeSet<_> = object(stack.section("Parameters"))?.keys().map(String::as_str).collect();
    let groups = &stack.section("Metadata")["AWS::CloudFormation::Interface"]["ParameterGroups"];
    let grouped = groups.as_array().into_iter().flatten().filter_map(|group| group["Parameters"].as_array());
    let grouped: BTreeSet<_> = grouped.flatten().filter_map(Value::as_str).collect();
    assert_eq!(parameters, grouped);
    let documented = fs::read_to_string(root().join("docs/deploy.md"))?;
    for (name, parameter) in object(stack.section("Parameters"))? {
        assert!(!parameter["Description"].is_null(), "{name}");
        let default = match &parameter["Default"] {
            Value::String(text) if text.is_empty() => "empty".to_owned(),
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let row = format!("| `{name}` | {default} |");
        assert!(documented.contains(&row), "docs/deploy.md has no row {row}");
    }
    Ok(())
}

#[test]
fn every_output_is_documented() -> anyhow::Result<()> {
    let documented = fs::read_to_string(root().join("docs/deploy.md"))?;
    for name in object(Stack::by_default()?.section("Outputs"))?.keys() {
        assert!(documented.contains(&format!("`{name}`")), "docs/deploy.md does not list the output {name}");
    }
    Ok(())
}

/// The environments of samconfig.toml, each with its settings for `sam deploy`.
fn environments() -> anyhow::Result<Vec<(String, Table)>> {
    let config: Table = fs::read_to_string(root().join("samconfig.toml"))?.parse()?;
    let mut environments = Vec::new();
    for (name, environment) in config {
        let Some(environment) = environment.as_table() else { continue };
        assert_eq!(environment["global"]["parameters"]["language_extensions"].as_bool(), Some(true), "{name}");
        environments.push((name, environment["deploy"]["parameters"].as_table().context("settings")?.clone()));
    }
    Ok(environments)
}

fn overrides(settings: &Table) -> anyhow::Result<Vec<(&str, &str)>> {
    let entries = settings["parameter_overrides"].as_array().context("no parameters")?.iter();
    entries.map(|entry| entry.as_str().and_then(|entry| entry.split_once('=')).context("no assignment")).collect()
}

#[test]
fn samconfig_sets_parameters_that_there_are() -> anyhow::Result<()> {
    let environments = environments()?;
    let names: Vec<_> = environments.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["default", "prod", "prod-first", "staging"]);
    for (name, settings) in &environments {
        let stack = Stack::new(&overrides(settings)?)?;
        assert_eq!(stack.resources("AWS::DynamoDB::Table")?.len(), 4, "{name}");
        // A first deployment that fails is deleted, so the same command can be repeated.
        assert_eq!(settings["on_failure"].as_str(), Some("DELETE"), "{name}");
        assert_eq!(settings["confirm_changeset"].as_bool(), Some(false), "{name} prompts");
    }
    Ok(())
}

/// A table that is protected cannot be deleted when its first deployment fails.
#[test]
fn production_is_protected_after_its_first_deployment() -> anyhow::Result<()> {
    let environments = environments()?;
    let of = |name: &str| {
        let (_, settings) = environments.iter().find(|(environment, _)| environment == name).context("environment")?;
        overrides(settings).map(|overrides| overrides.into_iter().collect::<BTreeSet<_>>())
    };
    let (first, later) = (of("prod-first")?, of("prod")?);
    let [first, later] = [&first - &later, &later - &first].map(Vec::from_iter);
    assert_eq!((first, later), (vec![("DeletionProtection", "false")], vec![("DeletionProtection", "true")]));
    Ok(())
}

fn check_refusal(parameters: &[(&str, &str)], expect: Option<&str>) -> anyhow::Result<()> {
    let refusals = Stack::new(parameters)?.refusals()?;
    match expect {
        Some(expect) => assert!(refusals.len() == 1 && refusals[0].contains(expect), "{parameters:?}: {refusals:?}"),
        None => assert!(refusals.is_empty(), "{parameters:?}: {refusals:?}"),
    }
    Ok(())
}

#[test]
fn rules_refuse_parameters_that_do_not_fit_together() -> anyhow::Result<()> {
    check_refusal(&[], None)?;
    check_refusal(&[("Production", "true")], Some("AlarmTopicArn"))?;
    let topic = ("AlarmTopicArn", "arn:aws:sns:us-east-1:123456789012:alarms");
    check_refusal(&[("Production", "true"), topic], None)?;
    let stream = ("BucketTableStreamArn", "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/1");
    check_refusal(&[("BucketTableName", "limits")], Some("BucketTableStreamArn"))?;
    check_refusal(&[stream], Some("BucketTableName"))?;
    check_refusal(&[("BucketTableName", "limits"), stream], None)?;
    check_refusal(&[("NonFungibleTableName", "tokens")], Some("NonFungibleResourceIndex"))?;
    check_refusal(&[("NonFungibleResourceIndex", "by-resource")], Some("NonFungibleTableName"))?;
    check_refusal(&[("FleetReadCap", "20000")], Some("FleetWriteCap"))?;
    check_refusal(&[("FleetWriteCap", "500.5")], Some("FleetReadCap"))?;
    check_refusal(&[("FleetReadCap", "20000"), ("FleetWriteCap", "500.5")], None)
}

/// Read beside the `Config`, by the lines that the function logs.
const TELEMETRY: &str = "POWERTOOLS_SERVICE_NAME";

fn configure(package: &str, lookup: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    match package {
        "usage-rollup" => usage_rollup::config::Config::read(lookup).map(drop),
        "bucket-keeper" => bucket_keeper::config::Config::read(lookup).map(drop),
        "token-sweeper" => token_sweeper::config::Config::read(lookup).map(drop),
        "rate-aggregator" => rate_aggregator::config::Config::read(lookup).map(drop),
        "capacity-coordinator" => capacity_coordinator::config::Config::read(lookup).map(drop),
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
    check(&Stack::by_default()?)?;
    check(&Stack::new(&[COORDINATED])?)
}

#[test]
fn the_coordinator_gets_its_tables_and_limits() -> anyhow::Result<()> {
    let stack = Stack::new(&[
        (
            "CoordinatedTableArns",
            "arn:aws:dynamodb:us-east-1:123456789012:table/orders,arn:aws:dynamodb:us-east-1:123456789012:table/users",
        ),
        ("MaxAnnouncedUnits", "40000"),
        ("MaxAnnouncedUnitsPerCaller", "10000"),
        ("AllowWarm", "true"),
    ])?;
    check(&stack)?;
    let variables = stack.properties("CapacityCoordinator")?["Environment"]["Variables"].clone();
    for (variable, expect) in [
        (
            "TABLES",
            "arn:aws:dynamodb:us-east-1:123456789012:table/orders,arn:aws:dynamodb:us-east-1:123456789012:table/users",
        ),
        ("MAX_UNITS", "40000"),
        ("MAX_UNITS_PER_CALLER", "10000"),
        ("ALLOW_WARM", "true"),
    ] {
        assert_eq!(variables[variable], expect, "{variable}");
    }
    Ok(())
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
            for with_coordinator in [&[][..], &[COORDINATED]] {
                let stack = Stack::new(&[with_coordinator, &[(name, &text(value)?)]].concat())?;
                check(&stack)?;
                for (id, _) in stack.all()? {
                    stack.properties(id).with_context(|| format!("{id} with {name}={value}"))?;
                }
                stack.outputs().with_context(|| format!("{name}={value}"))?;
            }
            ends += 1;
        }
    }
    assert!(ends > 50, "{ends}");
    Ok(())
}
