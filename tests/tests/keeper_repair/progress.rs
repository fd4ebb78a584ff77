//! How far a repair comes.

use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use futures::{TryStreamExt as _, stream};
use tidegate_aws::{registry::sort_key, schema};
use tidegate_local::services::Services;
use tidegate_tests::keeper::{Item, KeeperScene, START, key, number, text, time};
use tokio::time::{Duration, Instant};

/// Enters so many buckets, which do not exist.
async fn enter_many(scene: &KeeperScene, buckets: usize) -> anyhow::Result<()> {
    let entries = (0..buckets).map(anyhow::Ok);
    stream::iter(entries)
        .try_for_each_concurrent(32, async |at| scene.enter(&key(&format!("user-{at:05}")), 2, 0).await)
        .await
}

#[tokio::test]
async fn a_repair_without_time_keeps_its_place_and_answers() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    enter_many(&scene, 3).await?;
    let place = sort_key(&key("user-00000"));
    scene.keeper.registry.stop(Some(&place)).await?;
    scene.writes().await?;
    for _ in 0..2 {
        let repaired = scene.keeper.repair(time(START), Instant::now()).await;
        assert_eq!((repaired.complete?, repaired.report.dropped), (false, 0));
        assert_eq!(scene.keeper.registry.stopped().await?.as_ref(), Some(&place));
    }
    assert_eq!(scene.writes().await?, 0);

    let repaired = scene.repair(START).await?;
    assert_eq!((repaired.complete?, repaired.report.buckets), (true, 2), "those behind the place");
    assert_eq!(scene.keeper.registry.stopped().await?, None);
    let repaired = scene.repair(START).await?;
    assert_eq!((repaired.complete?, repaired.report.buckets), (true, 1), "the next begins at the beginning");
    Ok(())
}

#[tokio::test]
async fn repairs_with_too_little_time_come_to_the_end() -> anyhow::Result<()> {
    const BUCKETS: usize = 350;
    let scene = KeeperScene::new().await?;
    enter_many(&scene, BUCKETS).await?;
    let (mut dropped, mut runs, mut place) = (0, 0, None);
    for doublings in 0.. {
        let deadline = Instant::now() + Duration::from_micros(500 << doublings);
        let repaired = scene.keeper.repair(time(START), deadline).await;
        dropped += repaired.report.dropped;
        runs += 1;
        if repaired.complete? {
            break;
        }
        let stopped = scene.keeper.registry.stopped().await?;
        assert!(stopped >= place, "{place:?}, and then {stopped:?}");
        place = stopped;
    }
    assert!(runs > 1, "half a millisecond is too little");
    // A write whose answer came too late was done, but is not counted.
    assert!(dropped <= BUCKETS);
    assert_eq!(scene.repair(START).await?.report.buckets, 0);
    assert!(scene.table().await?.is_empty());
    Ok(())
}

/// Writes so many unfamiliar buckets, and their entries.
async fn put_many(scene: &KeeperScene, buckets: usize) -> anyhow::Result<()> {
    let item = |parts: [(&str, _); 3]| Item::from(parts.map(|(name, value)| (name.to_owned(), value)));
    let items = (0..buckets).flat_map(|at| {
        let key = key(&format!("user-{at:05}"));
        let bucket = [("PK", text(schema::bucket_pk(&key))), ("SK", text("#STATE")), ("sched", text("0 9 * * 1-5"))];
        let mut entry = item([("PK", text("_/SYSTEM#")), ("SK", text(sort_key(&key))), ("shards", number(2))]);
        entry.insert("written".to_owned(), number(0));
        [item(bucket), entry]
    });
    let put = |item| PutRequest::builder().set_item(Some(item)).build();
    let puts = items.map(|item| Ok(WriteRequest::builder().put_request(put(item)?).build()));
    let puts: Vec<_> = puts.collect::<anyhow::Result<_>>()?;
    let batches = puts.chunks(25).map(|batch| anyhow::Ok(batch.to_vec()));
    let write = async |batch| {
        let Services { dynamodb, table, .. } = &scene.services;
        dynamodb.batch_write_item().request_items(table, batch).send().await?;
        Ok(())
    };
    stream::iter(batches).try_for_each_concurrent(8, write).await
}

#[tokio::test]
async fn a_repair_looks_at_ten_thousand_buckets_and_the_next_goes_on() -> anyhow::Result<()> {
    const BUCKETS: usize = 10_050;
    let mut scene = KeeperScene::new().await?;
    // Nothing is to be done about an unfamiliar bucket, and one read tells.
    put_many(&scene, BUCKETS).await?;
    let first = scene.repair(START).await?;
    assert_eq!((first.complete?, first.report.buckets, first.report.unfamiliar), (false, 10_000, 10_000));
    assert_eq!(scene.keeper.registry.stopped().await?, Some(sort_key(&key("user-09999"))));
    scene.keeper = scene.another_process()?;
    let second = scene.repair(START).await?;
    assert_eq!((second.complete?, second.report.buckets), (true, 50));
    assert_eq!(scene.keeper.registry.stopped().await?, None);
    Ok(())
}
