//! The payloads in `events/bucket-keeper` do what their names say.

use aws_sdk_dynamodb::types::AttributeValue;
use bucket_keeper::{event::Event, handler::Handled, report::Report};
use serde_json::Value;
use tidegate_domain::{bucket::Shard, state::Unfamiliar};
use tidegate_tests::{
    keeper::{Item, KeeperScene, failure, key, number, shard, text, tokens},
    root,
};

fn read(name: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(root().join("events/bucket-keeper").join(name))?)?)
}

/// An item as a record's image shows it; of types that buckets have.
fn item(image: &Value) -> Item {
    let attributes = image.as_object().into_iter().flatten().map(|(name, value)| {
        let value = match (value["S"].as_str(), value["N"].as_str()) {
            (Some(value), _) => text(value),
            (_, Some(value)) => number(value),
            _ => AttributeValue::Bool(value["BOOL"].as_bool() == Some(true)),
        };
        (name.clone(), value)
    });
    attributes.collect()
}

/// Invokes the function with a payload, at a moment in seconds, when the items are as the records leave them.
async fn invoke(name: &str, now: i64) -> anyhow::Result<(KeeperScene, Handled)> {
    let payload = read(name)?;
    let mut scene = KeeperScene::new().await?;
    for record in payload["Records"].as_array().into_iter().flatten() {
        scene.put_item(item(&record["dynamodb"]["NewImage"])).await?;
    }
    scene.writes().await?;
    let Event::Batch(batch) = serde_json::from_value(payload)? else { anyhow::bail!("{name} is no batch") };
    let handled = scene.invoke(&batch, now * 1_000).await;
    assert_eq!(failure(&handled), None);
    Ok((scene, handled))
}

fn check(handled: &Handled, expect: &Report) {
    assert_eq!(&handled.report, expect);
}

#[tokio::test]
async fn a_bucket_that_runs_dry_is_refilled() -> anyhow::Result<()> {
    let (scene, handled) = invoke("batch.json", 1_767_223_848).await?;
    check(&handled, &Report { records: 3, not_ours: 1, changes: 2, shards: 1, refilled: 1, ..Report::default() });
    // Ten a second have accrued from 1767223805 to the last record, at 1767223846.
    assert_eq!(tokens(&scene.state(&key("solo-0")).await?, "rpm"), 5_000 + 41 * 10_000);
    Ok(())
}

#[tokio::test]
async fn a_clients_doubling_is_carried_through() -> anyhow::Result<()> {
    let (scene, handled) = invoke("bump.json", 1_767_223_830).await?;
    assert_eq!((handled.report.records, handled.report.split, handled.report.incomplete), (1, 3, 0));
    let shards = scene.shards(&key("solo-0"), 8).await?.states;
    // Shard 0 has no write units left, so it is refilled: of 150 requests, it lacked 1.25.
    assert_eq!((shards.len(), shards.values().map(|state| tokens(state, "rpm")).sum()), (4, 595_000 + 1_250));
    assert!(!scene.item(&shard(&key("solo-0"), 3)).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_malformed_record_among_good_ones() -> anyhow::Result<()> {
    let (scene, handled) = invoke("malformed-among-good.json", 1_767_223_832).await?;
    let expect = Report { records: 3, changes: 2, poison: 1, parked: 1, shards: 2, refilled: 2, ..Report::default() };
    check(&handled, &expect);
    assert_eq!(scene.services.queue.messages().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_scheduled_bucket_is_left_to_its_clients() -> anyhow::Result<()> {
    let (mut scene, handled) = invoke("unfamiliar.json", 1_767_223_832).await?;
    check(&handled, &Report { records: 1, changes: 1, shards: 1, unfamiliar: 1, ..Report::default() });
    assert_eq!(scene.shards(&key("solo-4"), 1).await?.unfamiliar, [(Shard::ZERO, Unfamiliar::Schedule)].into());
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_empty_batch() -> anyhow::Result<()> {
    let (_, handled) = invoke("empty.json", 1_767_223_860).await?;
    check(&handled, &Report::default());
    Ok(())
}

#[test]
fn a_call_for_repair() -> anyhow::Result<()> {
    assert!(matches!(serde_json::from_value(read("repair.json")?)?, Event::Repair));
    Ok(())
}
