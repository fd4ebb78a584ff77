//! Parameters are documented, and set where they fit together.

use std::{collections::BTreeSet, fs};

use anyhow::Context as _;
use serde_json::Value;
use tidegate_tests::root;
use toml::Table;

use crate::stack::{Stack, object};

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
    check_refusal(&[("NonFungibleResourceIndex", "by-resource")], Some("NonFungibleTableName"))
}
