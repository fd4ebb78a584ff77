//! What the table holds beside buckets.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate::Limiter;
use tidegate_sandbox::item::Item;
use tidegate_tests::client::prelude::*;

/// How many shards [`spread`] makes.
pub const SHARDS: u32 = 4;

/// All items, by their keys without the namespace.
pub async fn table(scene: &ClientScene) -> anyhow::Result<BTreeMap<String, Item>> {
    let scan = scene.services.dynamodb.scan().table_name(&scene.services.table).consistent_read(true);
    let items = scan.into_paginator().items().send().try_collect().await?;
    let prefix = format!("{}/", scene.namespace);
    let text = |item: &Item, name: &str| item[name].as_s().cloned().unwrap_or_default();
    let named = items.into_iter().map(|item| {
        let key = format!("{} {}", text(&item, "PK"), text(&item, "SK"));
        (key.strip_prefix(&prefix).unwrap_or(&key).to_owned(), item)
    });
    Ok(named.collect())
}

/// An item without its keys and those of the indexes, as JSON.
pub fn plain(item: &Item) -> Value {
    let is_key = |name: &str| ["PK", "SK"].iter().any(|key| name.ends_with(key));
    item.iter().filter(|(name, _)| !is_key(name)).map(|(name, value)| (name.clone(), json_of(value))).collect()
}

/// A value as JSON: numbers are integers, null is null.
pub fn json_of(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!(text),
        AttributeValue::N(digits) => digits.parse::<i64>().map_or(json!(digits), |number| json!(number)),
        AttributeValue::Bool(flag) => json!(flag),
        AttributeValue::M(map) => map.iter().map(|(name, value)| (name.clone(), json_of(value))).collect(),
        AttributeValue::L(list) => list.iter().map(json_of).collect(),
        AttributeValue::Ss(set) => json!(set),
        _ => Value::Null,
    }
}

/// The audit events about a subject: action, resource and details, the earliest first.
pub async fn events(scene: &ClientScene, subject: &str) -> anyhow::Result<Vec<Value>> {
    let prefix = format!("AUDIT#{subject} #AUDIT#");
    let table = table(scene).await?;
    Ok(table.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, item)| plain(item)).collect())
}

/// How many entities have limits of their own by resource, as the registry says.
pub async fn counts(scene: &ClientScene) -> anyhow::Result<Value> {
    Ok(table(scene).await?.get("SYSTEM# #ENTITY_CONFIG_RESOURCES").map_or(json!({}), plain))
}

/// The same, as the configurations say.
pub async fn counted(scene: &ClientScene) -> anyhow::Result<Value> {
    let mut counts = BTreeMap::new();
    for key in table(scene).await?.keys() {
        if let Some((_, resource)) = key.split_once(" #CONFIG#") {
            *counts.entry(resource.to_owned()).or_insert(0) += 1;
        }
    }
    Ok(json!(counts))
}

/// Spreads the bucket over shards, and fills each of them by acquires.
pub async fn spread(scene: &ClientScene) -> anyhow::Result<()> {
    let _first = scene.acquire(1).await?;
    scene.change(0, |item| drop(item.insert("shard_count".to_owned(), number(SHARDS)))).await?;
    for _ in 0..40 {
        let _lease = scene.acquire(1).await?;
    }
    anyhow::ensure!(scene.shards(SHARDS).await?.states.len() == SHARDS as usize);
    Ok(())
}

/// A limiter of another process, whose calls meet no faults.
pub async fn another(scene: &ClientScene) -> anyhow::Result<Limiter> {
    scene.another(&FaultyHttp::undisturbed()).await
}
