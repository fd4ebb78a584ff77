//! The manifests keep to the conventions that the architecture rests on.

use std::{collections::BTreeSet, fs};

use tidegate_tests::root;
use toml::{Table, Value};

fn manifest(folder: &str) -> anyhow::Result<Table> {
    Ok(fs::read_to_string(root().join(folder).join("Cargo.toml"))?.parse()?)
}

fn members() -> anyhow::Result<Vec<String>> {
    let members = manifest("")?["workspace"]["members"].as_array().cloned().unwrap_or_default();
    Ok(members.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[test]
fn the_domain_crate_can_do_no_io() -> anyhow::Result<()> {
    let manifest = manifest("shared/domain")?;
    let dependencies: BTreeSet<_> =
        manifest["dependencies"].as_table().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let allowed = BTreeSet::from(["jiff", "serde", "thiserror"]);
    assert!(dependencies.is_subset(&allowed), "{dependencies:?}");
    Ok(())
}

#[test]
fn members_inherit_versions_and_lints() -> anyhow::Result<()> {
    let members = members()?;
    assert!(members.len() >= 5, "{members:?}");
    for member in members {
        let manifest = manifest(&member)?;
        let package = &manifest["package"];
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            assert_eq!(package[key]["workspace"].as_bool(), Some(true), "{key} of {member}");
        }
        assert!(package["description"].as_str().is_some_and(|description| !description.is_empty()), "{member}");
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "lints of {member}");
        for section in ["dependencies", "dev-dependencies"] {
            for (name, dependency) in manifest.get(section).and_then(Value::as_table).into_iter().flatten() {
                assert_eq!(dependency["workspace"].as_bool(), Some(true), "{name} of {member}");
            }
        }
    }
    Ok(())
}

#[test]
fn deployed_crates_use_no_embedded_service() -> anyhow::Result<()> {
    let is_deployed =
        |member: &&String| ["functions/", "shared/", "tools/tidegate"].iter().any(|at| member.starts_with(at));
    for member in members()?.iter().filter(is_deployed) {
        let manifest = manifest(member)?;
        for name in manifest["dependencies"].as_table().into_iter().flatten().map(|(name, _)| name.as_str()) {
            assert!(
                !["tidegate-sandbox", "dynoxide-rs", "rusqlite", "axum", "rand"].contains(&name),
                "{name} of {member}"
            );
        }
    }
    Ok(())
}

/// An application that takes tokens builds one SDK client, not those of the functions.
#[test]
fn the_client_crate_needs_one_sdk_client() -> anyhow::Result<()> {
    let (client, aws, workspace) = (manifest("shared/client")?, manifest("shared/aws")?, manifest("")?);
    assert_eq!(client["dependencies"]["tidegate-aws"].as_table().map(Table::len), Some(1), "it selects no feature");
    let defaults = &workspace["workspace"]["dependencies"]["tidegate-aws"]["default-features"];
    assert_eq!(defaults.as_bool(), Some(false));
    let is_sdk = |name: &str| name.starts_with("aws") && name != "aws-sdk-dynamodb";
    let required = |manifest: &Table| -> BTreeSet<String> {
        let dependencies = manifest["dependencies"].as_table().into_iter().flatten();
        let required = dependencies.filter(|(_, of)| of.get("optional").and_then(Value::as_bool) != Some(true));
        required.map(|(name, _)| name.clone()).filter(|name| is_sdk(name)).collect()
    };
    assert_eq!(required(&client), BTreeSet::new());
    assert_eq!(required(&aws), BTreeSet::new());
    Ok(())
}

/// The example is a program, so that it is compiled.
#[test]
fn the_readme_quotes_the_example() -> anyhow::Result<()> {
    let (readme, example) = (root().join("README.md"), root().join("shared/client/examples/readme.rs"));
    let (readme, example) = (fs::read_to_string(readme)?, fs::read_to_string(example)?);
    assert!(readme.contains(&format!("```rust\n{example}```\n")), "README.md does not quote {example}");
    Ok(())
}

/// What a test proves must not depend on what a demonstration shows.
#[test]
fn tests_import_no_demonstration() -> anyhow::Result<()> {
    for member in members()?.iter().filter(|member| *member != "tools/demo") {
        let manifest = manifest(member)?;
        for section in ["dependencies", "dev-dependencies"] {
            let dependencies = manifest.get(section).and_then(Value::as_table);
            assert!(!dependencies.is_some_and(|names| names.contains_key("tidegate-demo")), "{member}");
        }
    }
    Ok(())
}

#[test]
fn every_function_is_run_in_the_same_way() -> anyhow::Result<()> {
    for member in members()?.iter().filter(|member| member.starts_with("functions/")) {
        let manifest = manifest(member)?;
        let dependencies = manifest["dependencies"].as_table().cloned().unwrap_or_default();
        assert!(dependencies.contains_key("tidegate-lambda"), "{member}");
        // The Lambda runtime comes through that crate, and with it what becomes of panics.
        assert!(!dependencies.contains_key("lambda_runtime"), "{member}");
    }
    Ok(())
}

#[test]
fn no_source_file_outgrows_its_reader() -> anyhow::Result<()> {
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let hidden =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.') || name == "target");
            if path.is_dir() && !hidden {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let lines = fs::read_to_string(&path)?.lines().count();
                assert!(lines <= 500, "{} has {lines} lines", path.display());
            }
        }
    }
    Ok(())
}
