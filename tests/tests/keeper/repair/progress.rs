//! How far a repair comes.

use bucket_keeper::report::Report;
use futures::{TryStreamExt as _, stream};
use tidegate_aws::registry::sort_key;
use tidegate_domain::bucket::BucketKey;
use tidegate_tests::keeper::{Item, KeeperScene, START, full, item, key, number, set_tokens, shard, text, time};
use tokio::time::{Duration, Instant};

/// Enters so many buckets, which do not exist.
async fn enter_many(scene: &KeeperScene, buckets: usize) -> anyhow::Result<()> {
    let entries = (0..buckets).map(anyhow::Ok);
    stream::iter(entries).try_for_each_concurrent(32, async |at| scene.enter(&key(&name(at)), 2).await).await
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

fn name(at: usize) -> String {
    format!("user-{at:05}")
}

/// A registry entry as an item.
fn entry(bucket: &BucketKey<'_>, shards: u32) -> Item {
    [("PK", text("_/SYSTEM#")), ("SK", text(sort_key(bucket))), ("shards", number(shards))]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Repairs with all the time that it takes: whether it reached the end, what it did, and the read and write units
/// that it took, but for the reads of the registry.
async fn run(scene: &KeeperScene, now: i64) -> anyhow::Result<(bool, Report, usize, u64)> {
    let before = (scene.observed.read_units(), scene.http.write_units());
    let repaired = scene.keeper.repair(time(now), Instant::now() + Duration::from_mins(10)).await;
    let (read, written) = (scene.observed.read_units() - before.0, scene.http.write_units() - before.1);
    Ok((repaired.complete?, repaired.report, read, written))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_mends_ten_thousand_buckets_at_most() -> anyhow::Result<()> {
    const BUCKETS: usize = 10_050;
    const SHARDS: u32 = 4;
    let mut scene = KeeperScene::new().await?;
    let mut dry = full(SHARDS);
    set_tokens(&mut dry, "rpm", 0);
    let states = std::iter::once(dry).chain((1..SHARDS).map(|_| full(SHARDS))).collect::<Vec<_>>();
    let items = (0..BUCKETS).flat_map(|at| {
        let bucket = key(&name(at));
        let shards = (0..).zip(&states).map(|(number, state)| item(&shard(&bucket, number), state));
        shards.chain([entry(&bucket, SHARDS)]).collect::<Vec<_>>()
    });
    scene.put_all(items).await?;
    // A look at each bucket, a consistent read and a write; one more of either for the place where it stops.
    let shards = SHARDS as usize;
    let report = |buckets| Report { buckets, shards: buckets * shards, ..Report::default() };
    let cost = |buckets: usize| (buckets * shards * 3 / 2 + 1, buckets as u64 + 1);

    let (complete, first, read, written) = run(&scene, START + 60_000).await?;
    assert_eq!((complete, first), (false, Report { refilled: 10_000, ..report(10_000) }));
    assert_eq!((read, written), cost(10_000));
    assert_eq!(scene.keeper.registry.stopped().await?, Some(sort_key(&key(&name(9_999)))));

    scene.keeper = scene.another_process()?;
    let (complete, second, read, written) = run(&scene, START + 60_000).await?;
    assert_eq!((complete, second), (true, Report { refilled: 50, ..report(50) }));
    assert_eq!((read, written), cost(50));
    assert_eq!(scene.keeper.registry.stopped().await?, None);

    let third = run(&scene, START + 61_000).await?;
    assert_eq!(third, (false, report(10_000), 10_000 * shards / 2 + 1, 1), "nothing is left to be done");
    Ok(())
}
