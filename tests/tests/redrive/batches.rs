//! Batches that the event source mapping gave up: their records are fetched from the stream.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::clock;
use tidegate_domain::{redrive::Decision, sequence::SequenceNumber, time::EpochMillis};
use tidegate_local::{faults::FaultRates, mapping::StreamRecord, queue::Message, redrive::Summary, stream};
use tidegate_tests::{Scene, event, failure};

use crate::scene::{BUCKET, redriver, tokens};

/// A real bucket of a real stream: one record an acquire of 2 tokens.
async fn acquired(records: usize) -> anyhow::Result<(Scene, Vec<StreamRecord>, String)> {
    written(&vec![(BUCKET, "2000"); records]).await
}

/// Real buckets of a real stream: one record for each bucket and its millitokens.
async fn written(taken: &[(&str, &str)]) -> anyhow::Result<(Scene, Vec<StreamRecord>, String)> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let text = |value: &str| AttributeValue::S(value.to_owned());
    for (at, (bucket, taken)) in (1..).zip(taken) {
        let update = scene.services.dynamodb.update_item().table_name(&scene.services.table);
        let update = update.key("PK", text(bucket)).key("SK", text("#STATE")).update_expression("ADD b_rpm_tc :taken");
        let taken = AttributeValue::N((*taken).to_owned());
        update.expression_attribute_values(":taken", taken).send().await?;
        if at == 2 {
            // Another item, which the mapping's filter would not let through.
            let put = scene.services.dynamodb.put_item().table_name(&scene.services.table);
            put.item("PK", text("_/SYSTEM#")).item("SK", text("#VERSION")).send().await?;
        }
    }
    let arn = scene.services.stream_arn().await?;
    let described = scene.services.streams.describe_stream().stream_arn(&arn).send().await?.stream_description;
    let shard = described.and_then(|stream| stream.shards?.first()?.shard_id.clone()).unwrap_or_default();
    let mut reader = stream::StreamReader::new(scene.services.streams.clone(), &arn);
    let all: Vec<_> = reader.drain(EpochMillis::EPOCH).await?.into_values().flatten().collect();
    let ends = [all.first(), all.last()].map(|record| SequenceNumber::parse(&record.unwrap().sequence).unwrap());
    // With the times that the stream gives them.
    let all = stream::range(&scene.services.streams, &arn, &shard, ends[0], ends[1]).await?;
    assert_eq!(all.len(), taken.len() + 1);
    let records = all.into_iter().filter(|record| record.json.contains("#STATE")).collect();
    Ok((scene, records, shard))
}

async fn deliver(scene: &Scene, records: &[StreamRecord]) -> anyhow::Result<()> {
    let records: Vec<Value> =
        records.iter().map(|record| serde_json::from_str(&record.json)).collect::<Result<_, _>>()?;
    assert_eq!(failure(&scene.invoke(&event(&records)?).await), None);
    Ok(())
}

async fn give_up(
    scene: &Scene,
    batch: &[StreamRecord],
    shard: &str,
    change: impl FnOnce(&mut Value),
) -> anyhow::Result<()> {
    let [first, .., last] = batch else { anyhow::bail!("a batch of two or more") };
    let mut message = json!({
        "requestContext": {
            "requestId": "316aa6d0-8154-4e6d-8b1e-6b2f0a0e0001",
            "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:tidegate-UsageRollup-1A2B3C:$LATEST",
            "condition": "RetryAttemptsExhausted", "approximateInvokeCount": 3
        },
        "version": "1.0", "timestamp": "2025-01-01T00:00:00.000Z",
        "DDBStreamBatchInfo": {
            "shardId": shard, "startSequenceNumber": first.sequence, "endSequenceNumber": last.sequence,
            "batchSize": batch.len(), "streamArn": scene.services.stream_arn().await?
        }
    });
    change(&mut message);
    scene.services.queue.put(Message { body: message.to_string(), attributes: BTreeMap::default() });
    Ok(())
}

/// The counts of the four decisions.
fn decisions(summary: &Summary) -> [usize; 4] {
    [Decision::Count, Decision::AlreadyCounted, Decision::AlreadyRedriven, Decision::Undecided]
        .map(|decision| summary.decisions.get(&decision).copied().unwrap_or_default())
}

async fn redrive(scene: &Scene) -> anyhow::Result<Summary> {
    redriver(scene).run(clock::now()?).await
}

#[tokio::test]
async fn a_batch_that_nothing_came_after_counts_whole() -> anyhow::Result<()> {
    let (scene, records, shard) = acquired(6).await?;
    give_up(&scene, &records[..4], &shard, |_| ()).await?;
    let summary = redrive(&scene).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([12, 0, 0, 0], 1), "{summary}");
    assert_eq!(tokens(&scene).await?, (8, 4));
    // The stream goes on behind it.
    deliver(&scene, &records[4..]).await?;
    assert_eq!(tokens(&scene).await?, (12, 6));
    Ok(())
}

#[tokio::test]
async fn of_a_batch_that_was_counted_in_part_the_rest_counts() -> anyhow::Result<()> {
    let (scene, records, shard) = acquired(6).await?;
    deliver(&scene, &records[..2]).await?;
    give_up(&scene, &records[..5], &shard, |_| ()).await?;
    let summary = redrive(&scene).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([9, 6, 0, 0], 1), "{summary}");
    assert_eq!(tokens(&scene).await?, (10, 5));
    // Again, as if the message had not been deleted, and with later records in.
    deliver(&scene, &records[5..]).await?;
    give_up(&scene, &records[2..5], &shard, |_| ()).await?;
    let summary = redrive(&scene).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 0, 9, 0], 1), "{summary}");
    assert_eq!(tokens(&scene).await?, (12, 6));
    Ok(())
}

#[tokio::test]
async fn a_batch_behind_the_watermark_is_undecided() -> anyhow::Result<()> {
    let (scene, records, shard) = acquired(6).await?;
    deliver(&scene, &records[4..]).await?;
    give_up(&scene, &records[..4], &shard, |_| ()).await?;
    let summary = redrive(&scene).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 0, 0, 12], 0), "{summary}");
    for record in &records[..4] {
        assert!(summary.left[0].1.contains(&record.sequence), "{summary}");
    }
    assert_eq!(tokens(&scene).await?, (4, 2));

    let mut decided_by_a_person = redriver(&scene);
    decided_by_a_person.redrive.count_undecided = true;
    let summary = decided_by_a_person.run(clock::now()?).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([12, 0, 0, 0], 1), "{summary}");
    assert_eq!(tokens(&scene).await?, (12, 6));
    Ok(())
}

#[tokio::test]
async fn a_record_that_cannot_be_settled_stops_its_own_bucket_alone() -> anyhow::Result<()> {
    const OTHER: &str = "TQ5vSMvQTm4/BUCKET#user-2#api#0";
    let taken = [(BUCKET, "0.5"), (OTHER, "2000"), (BUCKET, "2000"), (OTHER, "2000")];
    let (scene, records, shard) = written(&taken).await?;
    give_up(&scene, &records, &shard, |_| ()).await?;
    for expect in [[6, 0, 0, 0], [0, 0, 6, 0]] {
        let summary = redrive(&scene).await?;
        assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), (expect, 0, 1), "{summary}");
        let [(_, reason)] = &summary.left[..] else { panic!("{summary}") };
        let (why, behind) = reason.split_once("not tried").unwrap();
        assert!(why.contains(&records[0].sequence) && why.contains("b_rpm_tc"), "{summary}");
        assert!(behind.contains(&records[2].sequence) && !reason.contains(&records[1].sequence), "{summary}");
        assert_eq!((tokens(&scene).await?, scene.services.queue.messages().len()), ((4, 2), 1));
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_that_is_not_to_be_had_stays() -> anyhow::Result<()> {
    let (scene, records, shard) = acquired(4).await?;
    let gone = "000000000000000000001";
    give_up(&scene, &records, &shard, |message| {
        message["DDBStreamBatchInfo"]["endSequenceNumber"] = json!("9".repeat(21));
    })
    .await?;
    give_up(&scene, &records, &shard, |message| message["DDBStreamBatchInfo"]["shardId"] = json!("shardId-0")).await?;
    give_up(&scene, &records, &shard, |message| {
        message["requestContext"]["functionArn"] =
            json!("arn:aws:lambda:us-east-1:123456789012:function:bucket-keeper");
    })
    .await?;
    give_up(&scene, &records, &shard, |message| message["timestamp"] = json!("2100-01-01T00:00:00Z")).await?;
    give_up(&scene, &records, &shard, |message| message["DDBStreamBatchInfo"]["startSequenceNumber"] = json!(gone))
        .await?;
    let summary = redrive(&scene).await?;
    assert_eq!((summary.received, summary.deleted, decisions(&summary)), (5, 0, [0; 4]), "{summary}");
    for ((_, reason), expect) in
        summary.left.iter().zip(["does not hold", "does not hold", "bucket-keeper", "15 minutes", gone])
    {
        assert!(reason.contains(expect), "{reason:?} does not say {expect:?}");
    }
    Ok(())
}
