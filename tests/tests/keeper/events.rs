//! The payloads in `events/bucket-keeper` do what their names say.

use aws_sdk_dynamodb::types::AttributeValue;
use bucket_keeper::event::Event;
use tidegate_domain::state::Unfamiliar;
use tidegate_tests::keeper::prelude::*;

fn read(name: &str) -> anyhow::Result<Value> {
    Ok(serde_json::from_slice(&std::fs::read(root().join("events/bucket-keeper").join(name))?)?)
}

/// An item as a record's image shows it; of types that buckets have.
fn item_of(image: &Value) -> Item {
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
async fn invoke(name: &str, now: i64) -> anyhow::Result<(KeeperScene, KeeperReport)> {
    let payload = read(name)?;
    let mut scene = KeeperScene::new().await?;
    for record in payload["Records"].as_array().into_iter().flatten() {
        scene.put_item(item_of(&record["dynamodb"]["NewImage"])).await?;
    }
    scene.writes().await?;
    let Event::Batch(batch) = serde_json::from_value(payload)? else { anyhow::bail!("{name} is no batch") };
    let handled = scene.invoke(&batch, now * 1_000).await;
    assert_eq!(failure(&handled.answer), None, "{name}");
    Ok((scene, handled.report))
}

#[tokio::test]
async fn batches_do_what_they_say() -> anyhow::Result<()> {
    let (scene, report) = invoke("batch.json", 1_767_223_848).await?;
    assert_eq!(
        report,
        KeeperReport { records: 3, not_ours: 1, changes: 2, shards: 1, refilled: 1, ..KeeperReport::default() }
    );
    // Ten a second have accrued from 1767223805 to the last record, at 1767223846.
    assert_eq!(tokens(&scene.state(&key("solo-0")).await?, "rpm"), 5_000 + 41 * 10_000);

    let (scene, report) = invoke("malformed-among-good.json", 1_767_223_832).await?;
    let expect = KeeperReport {
        records: 3,
        changes: 2,
        poison: 1,
        parked: 1,
        shards: 2,
        refilled: 2,
        ..KeeperReport::default()
    };
    assert_eq!((report, scene.services.queue.messages().len()), (expect, 1));

    let (mut scene, report) = invoke("unfamiliar.json", 1_767_223_832).await?;
    assert_eq!(report, KeeperReport { records: 1, changes: 1, shards: 1, unfamiliar: 1, ..KeeperReport::default() });
    assert_eq!(scene.shards(&key("solo-4"), 1).await?.unfamiliar, [(Shard::ZERO, Unfamiliar::Schedule)].into());
    assert_eq!(scene.writes().await?, 0);

    assert_eq!(invoke("empty.json", 1_767_223_860).await?.1, KeeperReport::default());
    assert!(matches!(serde_json::from_value(read("repair.json")?)?, Event::Repair));
    Ok(())
}

#[tokio::test]
async fn a_clients_doubling_is_completed() -> anyhow::Result<()> {
    let (scene, report) = invoke("bump.json", 1_767_223_830).await?;
    assert_eq!((report.records, report.split, report.incomplete), (1, 3, 0));
    let shards = scene.shards(&key("solo-0"), 8).await?.states;
    // Shard 0 has no write units left, so it is refilled: of 150 requests, it lacked 1.25.
    assert_eq!((shards.len(), shards.values().map(|state| tokens(state, "rpm")).sum()), (4, 595_000 + 1_250));
    assert!(!scene.item(&shard(&key("solo-0"), 3)).await?.is_empty());
    Ok(())
}
