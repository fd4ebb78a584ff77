//! The template's tables are those that the schema makes.

use std::collections::BTreeSet;

use anyhow::Context as _;
use aws_sdk_dynamodb::types::{KeySchemaElement, Projection, ProjectionType, StreamViewType};
use serde_json::{Value, json};
use tidegate_aws::{table, token_tables::TokenTables};
use tidegate_sandbox::services::Services;

use crate::stack::{COORDINATED, NAME, Stack};

/// The parts of a table that the template and `DescribeTable` both show.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    attributes: BTreeSet<String>,
    keys: Vec<String>,
    /// Name, keys and projection of each.
    indexes: BTreeSet<(String, Vec<String>, String)>,
    stream: Option<String>,
    ttl: Option<String>,
}

fn texts(values: &Value, of: impl Fn(&Value) -> String) -> Vec<String> {
    values.as_array().into_iter().flatten().map(of).collect()
}

fn of_template(properties: &Value) -> Shape {
    let key = |key: &Value| format!("{} {}", key["AttributeName"], key["KeyType"]);
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let indexes = ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"].into_iter().flat_map(|kind| {
        let indexes = properties[kind].as_array().into_iter().flatten();
        indexes.map(move |index| {
            let projection = index["Projection"]["ProjectionType"].to_string();
            (format!("{kind} {}", index["IndexName"]), texts(&index["KeySchema"], key), projection)
        })
    });
    let ttl = &properties["TimeToLiveSpecification"];
    assert!(ttl.is_null() || ttl["Enabled"] == true, "{ttl}");
    Shape {
        attributes: texts(&properties["AttributeDefinitions"], |attribute| {
            format!("{} {}", attribute["AttributeName"], attribute["AttributeType"])
        })
        .into_iter()
        .collect(),
        keys: texts(&properties["KeySchema"], key),
        indexes: indexes.collect(),
        stream: name(&properties["StreamSpecification"]["StreamViewType"]),
        ttl: name(&ttl["AttributeName"]),
    }
}

/// The same of a table that the schema has made.
async fn of_schema(client: &aws_sdk_dynamodb::Client, table: &str) -> anyhow::Result<Shape> {
    let described = client.describe_table().table_name(table).send().await?.table.context("no table")?;
    let keys = |keys: &[KeySchemaElement]| {
        let key =
            |key: &KeySchemaElement| json!({"AttributeName": key.attribute_name, "KeyType": key.key_type.as_str()});
        keys.iter().map(key).collect::<Vec<_>>()
    };
    let projection = |projection: Option<&Projection>| json!({"ProjectionType": projection.and_then(|projection| projection.projection_type()).map(ProjectionType::as_str)});
    let global = described.global_secondary_indexes().iter().map(|index| {
        json!({"IndexName": index.index_name, "KeySchema": keys(index.key_schema()), "Projection": projection(index.projection())})
    });
    let local = described.local_secondary_indexes().iter().map(|index| {
        json!({"IndexName": index.index_name, "KeySchema": keys(index.key_schema()), "Projection": projection(index.projection())})
    });
    let attributes = described.attribute_definitions().iter().map(|attribute| {
        json!({"AttributeName": attribute.attribute_name, "AttributeType": attribute.attribute_type.as_str()})
    });
    let view = described.stream_specification().and_then(|stream| stream.stream_view_type());
    let ttl = client.describe_time_to_live().table_name(table).send().await?;
    let ttl = ttl.time_to_live_description().and_then(|ttl| ttl.attribute_name());
    let mut properties = json!({
        "AttributeDefinitions": attributes.collect::<Vec<_>>(),
        "KeySchema": keys(described.key_schema()),
        "GlobalSecondaryIndexes": global.collect::<Vec<_>>(),
        "LocalSecondaryIndexes": local.collect::<Vec<_>>(),
        "StreamSpecification": {"StreamViewType": view.map(StreamViewType::as_str)},
    });
    if let Some(ttl) = ttl {
        properties["TimeToLiveSpecification"] = json!({"AttributeName": ttl, "Enabled": true});
    }
    Ok(of_template(&properties))
}

#[tokio::test]
async fn the_tables_are_those_of_the_schema() -> anyhow::Result<()> {
    let stack = Stack::by_default()?;
    let buckets = format!("{NAME}-buckets");
    let services = Services::embedded(None, &buckets).await?;
    let client = &services.dynamodb;
    // What clients make of the base name that is an output.
    let names_of_tokens = TokenTables::of(NAME);
    table::create_token_tables(client, &names_of_tokens).await?;

    let names = [
        ("BucketTable", &buckets),
        ("NonFungibleTable", &names_of_tokens.non_fungible),
        ("FungibleTable", &names_of_tokens.fungible),
        ("LimitTable", &names_of_tokens.limits),
    ];
    let made = stack.resources("AWS::DynamoDB::Table")?;
    assert_eq!(made.len(), names.len());
    for (id, name) in names {
        let properties = &made[id];
        assert_eq!(&properties["TableName"], name);
        assert_eq!(of_template(properties), of_schema(client, name).await?, "{id}");
    }
    Ok(())
}

/// A table of our own, whose name no client needs to know.
#[test]
fn the_state_of_the_coordinator_has_its_keys() -> anyhow::Result<()> {
    let properties = Stack::new(&[COORDINATED])?.properties("CapacityStateTable")?;
    let expect = of_template(&json!({
        "AttributeDefinitions": [
            {"AttributeName": "kind", "AttributeType": "S"},
            {"AttributeName": "id", "AttributeType": "S"},
        ],
        "KeySchema": [{"AttributeName": "kind", "KeyType": "HASH"}, {"AttributeName": "id", "KeyType": "RANGE"}],
        "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": true},
    }));
    assert_eq!(of_template(&properties), expect);
    assert!(properties["TableName"].is_null(), "{properties}");
    assert_eq!(properties["BillingMode"], "PAY_PER_REQUEST");
    Ok(())
}

/// Data outlive their stack, except for a stack whose creation failed.
#[test]
fn data_are_kept() -> anyhow::Result<()> {
    let stack = Stack::new(&[("DeletionProtection", "true"), COORDINATED])?;
    for (id, kind) in stack.all()? {
        let resource = &stack.section("Resources")[id];
        if ["AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::S3::BucketPolicy"].contains(&kind) {
            assert_eq!(resource["DeletionPolicy"], "RetainExceptOnCreate", "{id}");
            assert_eq!(resource["UpdateReplacePolicy"], "Retain", "{id}");
        } else {
            // Any other resource that stays would be in the way of a second attempt.
            assert!(resource["DeletionPolicy"].is_null(), "{id}");
        }
        if kind == "AWS::DynamoDB::Table" {
            let properties = stack.properties(id)?;
            assert_eq!(properties["DeletionProtectionEnabled"], true, "{id}");
            assert_eq!(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true, "{id}");
            assert_eq!(properties["SSESpecification"]["SSEEnabled"], true, "{id}");
        }
    }
    Ok(())
}

/// A protected table would survive a first deployment that fails, and its name would be taken.
#[test]
fn tables_are_not_protected_by_default() -> anyhow::Result<()> {
    for (id, table) in Stack::new(&[COORDINATED])?.resources("AWS::DynamoDB::Table")? {
        assert_eq!(table["DeletionProtectionEnabled"], false, "{id}");
    }
    Ok(())
}
