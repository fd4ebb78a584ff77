//! What a repair does about one bucket.

use futures::future::try_join;
use tidegate_tests::keeper::prelude::*;

const SECOND: i64 = 1_000;

/// A bucket with these shards, which only the registry shows.
async fn scene(shards: &[BucketState<'static>], entered: u32) -> anyhow::Result<KeeperScene> {
    let mut scene = KeeperScene::new().await?;
    for (number, state) in (0..).zip(shards) {
        scene.put(&shard(&key("user"), number), state).await?;
    }
    scene.enter(&key("user"), entered).await?;
    scene.writes().await?;
    Ok(scene)
}

/// Repairs once; the report must be `expect`.
async fn check(scene: &KeeperScene, now: i64, expect: KeeperReport) -> anyhow::Result<()> {
    let repaired = scene.repair(now).await?;
    assert!(repaired.complete?);
    assert_eq!(repaired.report, KeeperReport { buckets: 1, ..expect });
    Ok(())
}

fn one() -> BucketKey<'static> {
    shard(&key("user"), 1)
}

#[tokio::test]
async fn an_empty_registry_is_done() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let repaired = scene.repair(START).await?;
    assert!(repaired.complete?);
    assert_eq!(repaired.report, KeeperReport::default());
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn missing_shards_are_created() -> anyhow::Result<()> {
    let whole = BucketState { shards: count(4), ..full(1) };
    let mut scene = scene(&[whole], 4).await?;
    // The shard that is read is over-full until it has given.
    check(&scene, START + SECOND, KeeperReport { shards: 1, split: 3, ..KeeperReport::default() }).await?;
    let expect = (0..4).map(|number| (Shard::new(number), full(4))).collect();
    assert_eq!(scene.shards(&key("user"), 8).await?.states, expect);
    scene.writes().await?;
    check(&scene, START + 9 * SECOND, KeeperReport { shards: 4, ..KeeperReport::default() }).await?;
    assert_eq!(scene.writes().await?, 0, "nothing is left to be done");
    Ok(())
}

#[tokio::test]
async fn shards_beyond_the_entry_are_created_and_entered() -> anyhow::Result<()> {
    let mut zero = BucketState { shards: count(8), ..full(2) };
    take(&mut zero, "wcu", 5_000);
    let scene = scene(&[zero, full(2)], 2).await?;
    let report = scene.repair(START + SECOND).await?.report;
    assert_eq!((report.split, report.incomplete), (6, 0));
    let entry = scene.keeper.registry.find(&key("user")).await?;
    assert_eq!(entry.map(|entry| (entry.shards, entry.check)), Some((count(8), None)));
    let shards = scene.shards(&key("user"), 16).await?.states;
    assert!(shards.len() == 8 && shards.values().all(|state| state.shards == count(8)));
    assert_eq!(shards.values().map(|state| tokens(state, "rpm")).sum::<i64>(), 100_000);
    Ok(())
}

/// A shard of two that holds so many of its 50 requests.
fn holding(tokens: i64) -> BucketState<'static> {
    let mut state = full(2);
    set_tokens(&mut state, "rpm", tokens);
    state
}

/// Asserts whether a new process's first repair refills shard 1, which holds `held` and was refilled `elapsed` ms ago.
async fn check_idle(held: i64, elapsed: i64, is_due: bool) -> anyhow::Result<()> {
    let mut scene = scene(&[full(2), holding(held)], 2).await?;
    scene.keeper = scene.another_process()?;
    let refilled = usize::from(is_due);
    check(&scene, START + elapsed, KeeperReport { shards: 2, refilled, ..KeeperReport::default() }).await?;
    let credit = tokens(&scene.state(&one()).await?, "rpm") - held;
    // The clock of a repair goes on while it works.
    let accrued = |elapsed: i64| (elapsed * 50_000 / 60_000).min(50_000 - held) * i64::from(is_due);
    assert!((accrued(elapsed - 2)..=accrued(elapsed + SECOND)).contains(&credit), "{credit} in {elapsed} ms");
    assert_eq!(scene.writes().await?, refilled);
    check(&scene, START + elapsed, KeeperReport { shards: 2, ..KeeperReport::default() }).await
}

#[tokio::test]
async fn the_first_repair_refills_idle_shards() -> anyhow::Result<()> {
    // Less than half of its share, of which a sixteenth accrues in 3,750 ms.
    check_idle(24_999, 4 * SECOND, true).await?;
    check_idle(0, 20 * SECOND, true).await?;
    check_idle(-30_000, 3_600 * SECOND, true).await?;
    // Nearly dry.
    check_idle(3_000, 2 * SECOND, true).await
}

#[tokio::test]
async fn nothing_is_refilled_below_the_thresholds() -> anyhow::Result<()> {
    check_idle(25_000, 20 * SECOND, false).await?;
    check_idle(24_999, 2 * SECOND, false).await?;
    // Nothing has accrued yet: clocks differ.
    check_idle(12_000, -10 * SECOND, false).await
}

/// A bucket of two shards with these requests, of which nothing has accrued.
async fn uneven(zero: i64, one: i64) -> anyhow::Result<KeeperScene> {
    let states = [zero, one].map(|held| BucketState { last_refill: time(START + 60 * SECOND), ..holding(held) });
    scene(&states, 2).await
}

async fn check_moved(before: [i64; 2], after: [i64; 2]) -> anyhow::Result<()> {
    let mut scene = uneven(before[0], before[1]).await?;
    let moved = usize::from(before != after);
    for moved in [moved, 0] {
        check(&scene, START, KeeperReport { shards: 2, moved, ..KeeperReport::default() }).await?;
        assert_eq!(scene.held(&key("user"), "rpm").await?, after);
        assert_eq!(scene.writes().await?, moved * 2);
    }
    Ok(())
}

#[tokio::test]
async fn tokens_move_from_full_to_dry_shards() -> anyhow::Result<()> {
    check_moved([50_000, 0], [25_000, 25_000]).await?;
    check_moved([3_000, 26_000], [14_500, 14_500]).await?;
    check_moved([50_000, -20_000], [15_000, 15_000]).await?;
    // Neither is dry, or the other has too little.
    check_moved([50_000, 3_125], [50_000, 3_125]).await?;
    check_moved([24_999, 0], [24_999, 0]).await
}

/// Runs a repair. At its first `operation`, a client takes the slow path of shard `place`.
async fn raced(scene: &KeeperScene, now: i64, operation: &'static str, place: u32) -> anyhow::Result<KeeperReport> {
    scene.http.hold(operation);
    let refill = async {
        scene.http.held().await;
        scene.change(&shard(&key("user"), place), |state| state.last_refill = time(START + 61 * SECOND)).await?;
        scene.http.release();
        Ok(())
    };
    let (repaired, ()) = try_join(Box::pin(scene.repair(now)), refill).await?;
    Ok(repaired.report)
}

#[tokio::test]
async fn a_concurrent_slow_path_stops_a_move() -> anyhow::Result<()> {
    for place in 0..2 {
        let scene = uneven(50_000, 0).await?;
        let report = raced(&scene, START, "TransactWriteItems", place).await?;
        assert_eq!((report.moved, report.move_lost), (0, 1));
        assert_eq!(scene.held(&key("user"), "rpm").await?, [50_000, 0]);
    }
    Ok(())
}

#[tokio::test]
async fn no_move_follows_a_lost_refill() -> anyhow::Result<()> {
    let scene = scene(&[full(2), holding(-20_000)], 2).await?;
    let report = raced(&scene, START + 5 * SECOND, "UpdateItem", 1).await?;
    assert_eq!((report.lost, report.moved, report.move_lost), (1, 0, 0));
    assert_eq!(scene.held(&key("user"), "rpm").await?, [50_000, -20_000]);
    Ok(())
}

/// A repair changes shard 1 to `expect` and leaves shard 0.
async fn check_aligned(
    zero: BucketState<'static>,
    found: BucketState<'static>,
    expect: BucketState<'static>,
    aligned: usize,
) -> anyhow::Result<()> {
    let mut scene = scene(&[zero.clone(), found], 2).await?;
    for aligned in [aligned, 0] {
        check(&scene, START, KeeperReport { shards: 2, aligned, ..KeeperReport::default() }).await?;
        assert_eq!(scene.state(&one()).await?, expect);
        assert_eq!(scene.state(&key("user")).await?, zero);
        assert_eq!(scene.writes().await?, aligned);
    }
    Ok(())
}

#[tokio::test]
async fn shards_expire_no_sooner_than_shard_0() -> anyhow::Result<()> {
    let expiring =
        |expires: Option<i64>| BucketState { expires: expires.map(|expires| START / SECOND + expires), ..full(2) };
    check_aligned(expiring(Some(100)), expiring(Some(40)), expiring(Some(100)), 1).await?;
    // Shard 0's is put off again and again: half of its time is enough.
    check_aligned(expiring(Some(100)), expiring(Some(60)), expiring(Some(60)), 0).await?;
    check_aligned(expiring(Some(50)), expiring(Some(100)), expiring(Some(100)), 0).await?;
    check_aligned(expiring(None), expiring(Some(100)), expiring(None), 1).await?;
    check_aligned(expiring(Some(100)), expiring(None), expiring(None), 0).await
}

#[tokio::test]
async fn shards_have_the_limits_of_shard_0() -> anyhow::Result<()> {
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(120);
    limit_of(&mut zero, "tpm").terms.period = 30_000;
    let mut expect = full(2);
    limit_of(&mut expect, "rpm").terms = a_minute(120);
    limit_of(&mut expect, "tpm").terms.period = 30_000;
    check_aligned(zero, full(2), expect, 1).await
}

#[tokio::test]
async fn a_new_limit_gets_its_share_of_tokens() -> anyhow::Result<()> {
    let mut zero = full(2);
    let mut daily = zero.limits[&limit("rpm")];
    daily.terms = a_minute(10);
    daily.tokens = Millitokens::new(4_321);
    zero.limits.insert(limit("rpd"), daily);
    let mut expect = full(2);
    daily.tokens = Millitokens::new(5_000);
    expect.limits.insert(limit("rpd"), daily);
    check_aligned(zero, full(2), expect, 1).await
}

#[tokio::test]
async fn a_shrunken_limit_is_trimmed_on_every_shard() -> anyhow::Result<()> {
    let mut zero = full(2);
    limit_of(&mut zero, "rpm").terms = a_minute(40);
    let scene = scene(&[zero, full(2)], 2).await?;
    check(
        &scene,
        START + SECOND,
        KeeperReport { shards: 2, aligned: 1, refilled: 2, trimmed: 2, ..KeeperReport::default() },
    )
    .await?;
    for number in 0..2 {
        assert_eq!(tokens(&scene.state(&shard(&key("user"), number)).await?, "rpm"), 20_000);
    }
    Ok(())
}

/// The bucket of an entry is `found` (or gone): whether the entry is dropped. No item may be touched.
async fn check_entry(found: Option<&BucketState<'static>>, expect: KeeperReport) -> anyhow::Result<()> {
    let mut scene = scene(found.map(std::slice::from_ref).unwrap_or_default(), 2).await?;
    let before = scene.item(&key("user")).await?;
    let expect = KeeperReport { shards: usize::from(found.is_some()), ..expect };
    check(&scene, START + 100 * SECOND, expect.clone()).await?;
    assert_eq!(scene.keeper.registry.find(&key("user")).await?.is_none(), expect.dropped == 1);
    assert_eq!(scene.item(&key("user")).await?, before);
    assert_eq!(scene.writes().await?, expect.dropped);
    Ok(())
}

#[tokio::test]
async fn an_entry_is_dropped_without_its_bucket() -> anyhow::Result<()> {
    let expiring = |shards, expires: i64| BucketState { expires: Some(START / SECOND + expires), ..full(shards) };
    let dropped = KeeperReport { dropped: 1, ..KeeperReport::default() };
    check_entry(None, dropped.clone()).await?;
    // It was deleted, and created anew.
    check_entry(Some(&full(1)), dropped).await?;
    let expired = KeeperReport { expired: 1, ..KeeperReport::default() };
    check_entry(Some(&expiring(2, 50)), expired.clone()).await?;
    check_entry(Some(&expiring(2, 100)), expired).await
}

#[tokio::test]
async fn unfamiliar_shards_stop_splits_but_no_refills() -> anyhow::Result<()> {
    for (name, value) in [("vu", 0), ("vu", START), ("b_rpm_gc", 1)] {
        let mut dry = BucketState { expires: Some(START / SECOND + 3_600), ..full(4) };
        set_tokens(&mut dry, "rpm", 0);
        let mut scene = scene(&[full(4), dry.clone(), dry.clone()], 4).await?;
        scene.change_item(&one(), insert(name, number(value))).await?;
        let marked = scene.item(&one()).await?;
        scene.writes().await?;
        // Shard 1 is left alone, shard 2 is aligned and refilled, shard 3 is still missing.
        let (awaits_client, unfamiliar) = if name == "vu" { (1, 0) } else { (0, 1) };
        let expect =
            KeeperReport { shards: 2, aligned: 1, refilled: 1, awaits_client, unfamiliar, ..KeeperReport::default() };
        check(&scene, START + 60 * SECOND, expect).await?;
        assert_eq!(scene.item(&one()).await?, marked);
        let two = scene.state(&shard(&key("user"), 2)).await?;
        assert_eq!((tokens(&two, "rpm"), two.expires), (25_000, None));
        assert_eq!(scene.shards(&key("user"), 4).await?.states.len(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn an_unfamiliar_shard_0_leaves_the_bucket_alone() -> anyhow::Result<()> {
    for (name, value) in [("vu", 0), ("b_rpm_gc", 1)] {
        let mut scene = scene(&[full(2), holding(0)], 2).await?;
        scene.change_item(&key("user"), insert(name, number(value))).await?;
        scene.writes().await?;
        let (awaits_client, unfamiliar) = if name == "vu" { (1, 0) } else { (0, 1) };
        let expect = KeeperReport { shards: 1, awaits_client, unfamiliar, ..KeeperReport::default() };
        check(&scene, START + 60 * SECOND, expect).await?;
        assert_eq!(scene.writes().await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_trimmed_while_splits_are_blocked() -> anyhow::Result<()> {
    // Clients have doubled twice: shard 0 still holds what is to become the half of shard 2.
    let mut zero = holding(50_000);
    zero.shards = count(4);
    let mut scene = scene(&[zero.clone(), full(4)], 4).await?;
    scene.change_item(&one(), insert("vu", number(0))).await?;
    scene.writes().await?;
    scene.repair(START + 60 * SECOND).await?;
    assert_eq!((scene.state(&key("user")).await?, scene.writes().await?), (zero, 0));
    Ok(())
}
