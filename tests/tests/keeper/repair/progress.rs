//! How far a repair comes: within its time, within its limit, and after a crash.

use futures::{TryStreamExt as _, stream};
use tidegate_aws::{
    registry::sort_key,
    schema::{bucket, system},
};
use tidegate_tests::keeper::prelude::*;

/// Enters so many buckets, which do not exist.
async fn enter_many(scene: &KeeperScene, buckets: usize) -> anyhow::Result<()> {
    let entries = (0..buckets).map(anyhow::Ok);
    stream::iter(entries).try_for_each_concurrent(32, async |at| scene.enter(&key(&name(at)), 2).await).await
}

#[tokio::test]
async fn a_repair_without_time_keeps_its_place() -> anyhow::Result<()> {
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
async fn repairs_with_little_time_finish_in_turns() -> anyhow::Result<()> {
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

/// Repairs with more time than it needs. Returns whether it reached the end, what it did, and its read and write units
/// without the pages of the registry.
async fn run(scene: &KeeperScene, now: i64) -> anyhow::Result<(bool, KeeperReport, u64, u64)> {
    let before = (scene.http.half_read_units(), scene.http.write_units());
    drop(scene.http.calls());
    let repaired = scene.keeper.repair(time(now), Instant::now() + Duration::from_mins(10)).await;
    // A page is read eventually consistently.
    let pages = scene.http.calls()["Query"] as u64;
    let (half_read, written) = (scene.http.half_read_units() - before.0 - pages, scene.http.write_units() - before.1);
    Ok((repaired.complete?, repaired.report, half_read / 2, written))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_handles_at_most_ten_thousand_buckets() -> anyhow::Result<()> {
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
    // Each bucket costs an eventually consistent read, a consistent read and a write. The place where the run stops costs
    // one more read and write.
    let report = |buckets| KeeperReport { buckets, shards: buckets * SHARDS as usize, ..KeeperReport::default() };
    let cost = |buckets: u64| (buckets * u64::from(SHARDS) * 3 / 2 + 1, buckets + 1);

    let (complete, first, read, written) = run(&scene, START + 60_000).await?;
    assert_eq!((complete, first), (false, KeeperReport { refilled: 10_000, ..report(10_000) }));
    assert_eq!((read, written), cost(10_000));
    assert_eq!(scene.keeper.registry.stopped().await?, Some(sort_key(&key(&name(9_999)))));

    scene.keeper = scene.another_process()?;
    let (complete, second, read, written) = run(&scene, START + 60_000).await?;
    assert_eq!((complete, second), (true, KeeperReport { refilled: 50, ..report(50) }));
    assert_eq!((read, written), cost(50));
    assert_eq!(scene.keeper.registry.stopped().await?, None);

    let third = run(&scene, START + 61_000).await?;
    assert_eq!(third, (false, report(10_000), 10_000 * u64::from(SHARDS) / 2 + 1, 1), "nothing is left to be done");
    Ok(())
}

/// Every shard could be full by now.
const NOW: i64 = START + 120_000;

/// Buckets that need every kind of repair.
async fn with_all_kinds_of_work() -> anyhow::Result<KeeperScene> {
    let scene = KeeperScene::new().await?;
    let mut whole = BucketState { shards: count(8), ..full(1) };
    set_tokens(&mut whole, "rpm", 70_003);
    set_tokens(&mut whole, "tpm", -5_001);
    scene.put(&key("unsplit"), &whole).await?;

    let mut zero = BucketState { expires: Some(NOW / 1_000 + 9), ..full(2) };
    limit_of(&mut zero, "rpm").terms = a_minute(40);
    scene.put(&key("shrunken"), &zero).await?;
    scene.put(&shard(&key("shrunken"), 1), &BucketState { expires: Some(5), ..full(2) }).await?;

    scene.put(&key("behind"), &full(4)).await?;
    for number in 1..4 {
        scene.put(&shard(&key("behind"), number), &BucketState { shards: count(1), ..full(4) }).await?;
    }
    for (number, held) in [(0, 50_000), (1, 0), (2, 50_000), (3, 20_000)] {
        // Nothing accrues to it meanwhile.
        let mut state = BucketState { last_refill: time(NOW + 60_000), ..full(2) };
        set_tokens(&mut state, "rpm", held);
        let entity = if number < 2 { "uneven" } else { "idle" };
        scene.put(&shard(&key(entity), number % 2), &state).await?;
    }
    scene.change(&shard(&key("idle"), 1), |state| state.last_refill = time(START)).await?;
    scene.put(&key("single"), &full(1)).await?;
    for entity in ["unsplit", "shrunken", "behind", "uneven", "idle", "single", "gone"] {
        scene.enter(&key(entity), 2).await?;
    }
    Ok(scene)
}

/// Repairs until nothing is left to do. Returns the table without the times of refills and checks.
async fn repair_until_quiet(scene: &mut KeeperScene) -> anyhow::Result<BTreeMap<String, Item>> {
    scene.writes().await?;
    for _ in 0..3 {
        scene.repair(NOW).await?;
        if scene.writes().await? == 0 {
            let mut table = scene.table().await?;
            for item in table.values_mut() {
                item.retain(|name, _| ![bucket::LAST_REFILL, system::CHECKED].contains(&name.as_str()));
            }
            return Ok(table);
        }
    }
    anyhow::bail!("the repair does not come to rest")
}

#[tokio::test]
async fn the_next_repair_finishes_a_crashed_one() -> anyhow::Result<()> {
    let expect = repair_until_quiet(&mut with_all_kinds_of_work().await?).await?;
    assert_eq!(expect.len(), 8 + 2 + 4 + 2 + 2 + 1 + 5, "shards and entries");
    let mut crashes = 0;
    for writes in 0.. {
        let mut scene = with_all_kinds_of_work().await?;
        scene.http.crash_after(writes);
        let is_done = tokio::select! {
            repaired = scene.keeper.repair(time(NOW), in_time()) => repaired.complete.is_ok(),
            () = scene.http.crashed() => false,
        };
        scene.http.heal();
        scene.keeper = scene.another_process()?;
        assert!(repair_until_quiet(&mut scene).await? == expect, "a crash after {writes} writes");
        if is_done {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 10, "{crashes}");
    Ok(())
}
