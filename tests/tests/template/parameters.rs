//! Parameters are told of where they are looked for, and given where they are set.

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
        assert!(documented.contains(&format!("`{name}`")), "docs/deploy.md does not tell of the output {name}");
    }
    Ok(())
}

#[test]
fn samconfig_sets_parameters_that_there_are() -> anyhow::Result<()> {
    let config: Table = fs::read_to_string(root().join("samconfig.toml"))?.parse()?;
    for environment in ["default", "staging", "prod"] {
        let set = config[environment]["deploy"]["parameters"]["parameter_overrides"].as_array();
        let mut given = Vec::new();
        for entry in set.context("no parameters")? {
            let (name, value) = entry.as_str().and_then(|entry| entry.split_once('=')).context("no assignment")?;
            given.push((name, value));
        }
        let stack = Stack::new(&given)?;
        assert!(stack.resources("AWS::DynamoDB::Table")?.len() == 4, "{environment}");
    }
    Ok(())
}
