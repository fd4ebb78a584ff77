//! The calls that a redrive makes, and what happens between them.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_domain::redrive::Decision;
use tidegate_sandbox::s3::EmbeddedS3;
use tidegate_tests::rollup::prelude::*;

use crate::{decisions, deliver, discard, later, redrive_failures, redrive_queue, redriver, redriver_by};

#[tokio::test]
async fn a_transaction_counts_99_records_of_a_snapshot() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    (0..250).for_each(|at| scene.services.queue.put(dead_letter(&acquire(at))));
    let http = FaultyHttp::undisturbed();
    let summary = redrive_queue(&scene, &redriver_by(&scene, http.clone()), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([750, 0, 0, 0], 250));
    // Three snapshots, of 99, 99 and 52 records.
    let calls = http.calls();
    let expected = [("BatchGetItem", 9), ("GetItem", 9), ("TransactWriteItems", 9)];
    assert_eq!(calls, expected.map(|(operation, count)| (operation.to_owned(), count)).into());
    assert_eq!(scene.counted().await?, (500, 250));
    Ok(())
}

#[tokio::test]
async fn cancelled_transactions_are_sent_again() -> anyhow::Result<()> {
    for fault in [Fault::Conflict, Fault::Throttled] {
        let scene = RollupScene::new().await?;
        scene.services.queue.put(dead_letter(&acquire(0)));
        let http = FaultyHttp::undisturbed();
        let transactions = AtomicUsize::new(0);
        http.on_call(move |operation, _| {
            let fails = operation == "TransactWriteItems" && transactions.fetch_add(1, Ordering::Relaxed) < 6;
            fails.then_some(fault)
        });
        let summary = redrive_queue(&scene, &redriver_by(&scene, http.clone()), later()).await?;
        assert_eq!((decisions(&summary), http.counts().total()), ([3, 0, 0, 0], 6), "{summary}");
        assert_eq!(scene.counted().await?, (2, 1));
    }
    Ok(())
}

#[tokio::test]
async fn every_read_is_consistent() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.services.queue.put(dead_letter(&acquire(0)));
    let http = FaultyHttp::undisturbed();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    http.on_call(move |operation, body| {
        if operation != "TransactWriteItems" {
            assert!(body.contains(r#""ConsistentRead":true"#), "{operation}: {body}");
            counted.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    redrive_queue(&scene, &redriver_by(&scene, http), later()).await?;
    assert_eq!(reads.load(Ordering::Relaxed), 6);
    Ok(())
}

#[tokio::test]
async fn a_marker_is_kept_for_thirty_days() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.services.queue.put(dead_letter(&acquire(0)));
    redrive_queue(&scene, &redriver(&scene), later()).await?;
    let scan = scene.services.dynamodb.scan().table_name(&scene.services.table).send().await?;
    let markers =
        scan.items().iter().filter(|item| item["SK"].as_s().is_ok_and(|sk| sk.starts_with("#TIDEGATE#REDRIVEN#")));
    let expires: Vec<_> = markers.map(|marker| marker["ttl"].clone()).collect();
    let expected = AttributeValue::N((later().get() / 1000 + 30 * 86_400).to_string());
    assert_eq!(expires, vec![expected; 3]);
    Ok(())
}

/// Between the reads and the transaction of a redrive, the function counts a record that is on its way still.
#[tokio::test]
async fn a_watermark_that_rises_concurrently_is_noticed() -> anyhow::Result<()> {
    for before in [&[][..], &[acquire(0)]] {
        let (scene, s3) = (RollupScene::new().await?, EmbeddedS3::start(None).await?);
        deliver(&scene, before).await?;
        discard(&s3, "batch", &[acquire(1)]);
        let http = FaultyHttp::undisturbed();
        http.hold("TransactWriteItems");
        let redriver = redriver_by(&scene, http.clone());
        let meanwhile = async {
            http.held().await;
            deliver(&scene, &[acquire(1)]).await?;
            http.release();
            anyhow::Ok(())
        };
        let (summary, ()) = futures::try_join!(redrive_failures(&s3, &redriver, later()), meanwhile)?;
        assert_eq!(decisions(&summary), [0, 0, 0, 3], "{summary}");
        let records = 1 + before.len() as u64;
        assert_eq!(scene.counted().await?, (2 * i128::from(records), records));
    }
    Ok(())
}

/// The redrive decides anew only where a decision rests on what has changed.
#[tokio::test]
async fn a_watermark_above_a_record_may_rise() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    deliver(&scene, &[acquire(0), acquire(2)]).await?;
    scene.services.queue.put(dead_letter(&acquire(1)));
    let http = FaultyHttp::undisturbed();
    http.hold("TransactWriteItems");
    let redriver = redriver_by(&scene, http.clone());
    let meanwhile = async {
        http.held().await;
        deliver(&scene, &[acquire(3)]).await?;
        http.release();
        anyhow::Ok(())
    };
    let (summary, ()) = futures::try_join!(redrive_queue(&scene, &redriver, later()), meanwhile)?;
    assert_eq!((decisions(&summary), http.calls()["TransactWriteItems"]), ([3, 0, 0, 0], 3), "{summary}");
    assert_eq!(scene.counted().await?, (8, 4));
    Ok(())
}

/// Two operators decide on the same record, and one of them is slower.
#[tokio::test]
async fn a_marker_that_appears_concurrently_is_noticed() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    deliver(&scene, &[acquire(2)]).await?;
    (0..2).for_each(|_| scene.services.queue.put(dead_letter(&acquire(1))));
    let http = FaultyHttp::undisturbed();
    http.hold("TransactWriteItems");
    let slow = redriver_by(&scene, http.clone());
    let meanwhile = async {
        http.held().await;
        scene.services.queue.put(dead_letter(&acquire(1)));
        let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
        http.release();
        anyhow::Ok(summary)
    };
    let (slow, fast) = futures::try_join!(redrive_queue(&scene, &slow, later()), meanwhile)?;
    assert_eq!([slow, fast].map(|summary| summary.decided(Decision::Count)), [0, 3]);
    assert_eq!(scene.counted().await?, (4, 2));
    Ok(())
}
