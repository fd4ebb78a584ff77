//! Hot shards are doubled where that helps.

use futures::future::try_join;
use tidegate_domain::pressure::SpreadCheck;
use tidegate_tests::keeper::prelude::*;

use super::{LATER, create, created};

/// The outcome for a bucket whose shard 0 may be under pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Left,
    Doubled,
    Held,
    Indivisible,
    AtLimit,
    Lost,
}

fn fate(report: &KeeperReport) -> Fate {
    match [report.doubled, report.held, report.indivisible, report.at_limit, report.double_lost] {
        [0, 0, 0, 0, 0] => Fate::Left,
        [1, 0, 0, 0, 0] => Fate::Doubled,
        [0, 1, 0, 0, 0] => Fate::Held,
        [0, 0, 1, 0, 0] => Fate::Indivisible,
        [0, 0, 0, 1, 0] => Fate::AtLimit,
        [0, 0, 0, 0, 1] => Fate::Lost,
        _ => panic!("{report:?}"),
    }
}

/// So many write units, in thousandths, of shard 0 in one second.
async fn heat(scene: &mut KeeperScene, taken: i64) -> anyhow::Result<StreamEvent> {
    scene.change(&key("user"), |state| take(state, "wcu", taken)).await?;
    scene.event(LATER).await
}

/// A bucket of one shard that is written so hard that it is doubled.
async fn hot() -> anyhow::Result<(KeeperScene, StreamEvent)> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    let batch = heat(&mut scene, 900_000).await?;
    Ok((scene, batch))
}

async fn check_one(taken: i64, expect: Fate) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    let batch = heat(&mut scene, taken).await?;
    let report = scene.invoke(&batch, LATER).await.report;
    assert_eq!(fate(&report), expect, "{taken}");
    let shards = if expect == Fate::Doubled { 2 } else { 1 };
    let states = scene.shards(&key("user"), 4).await?.states;
    assert_eq!(states.len(), shards);
    assert!(states.values().all(|state| state.shards.get() as usize == shards), "{states:?}");
    assert_eq!(scene.keeper.registry.find(&key("user")).await?.is_some(), expect == Fate::Doubled);

    // Neither its own writes nor the same batch double it again.
    let echo = scene.event(LATER).await?;
    for batch in [&echo, &batch] {
        scene.invoke(batch, LATER + 100).await;
    }
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn four_fifths_of_a_partition_are_too_much() -> anyhow::Result<()> {
    check_one(800_000, Fate::Doubled).await?;
    check_one(799_999, Fate::Left).await
}

#[tokio::test]
async fn items_above_a_kilobyte_count_twice() -> anyhow::Result<()> {
    for (taken, expect) in [(400_000, Fate::Doubled), (399_999, Fate::Left)] {
        let mut scene = KeeperScene::new().await?;
        create(&mut scene, "user", &[full(1)]).await?;
        scene.change_item(&key("user"), insert("note", text("x".repeat(1_024)))).await?;
        scene.writes().await?;
        let batch = heat(&mut scene, taken).await?;
        assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), expect, "{taken}");
    }
    Ok(())
}

#[tokio::test]
async fn old_records_double_nothing() -> anyhow::Result<()> {
    for (age, expect) in [(3_000, Fate::Doubled), (3_001, Fate::Left), (300_000, Fate::Left)] {
        let (mut scene, batch) = hot().await?;
        let report = scene.invoke(&batch, created(LATER) + age).await.report;
        assert_eq!((fate(&report), report.stale > 0), (expect, expect == Fate::Left), "{age}");
        assert_eq!(scene.writes().await? > 0, expect == Fate::Doubled, "{age}");
    }
    Ok(())
}

#[tokio::test]
async fn one_write_a_second_is_bearable() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    let mut records = Vec::new();
    for second in 0..30 {
        scene.change(&key("user"), |state| take(state, "wcu", 1_000)).await?;
        records.extend(scene.event(LATER + second * 1_000).await?.records);
    }
    let report = scene.invoke(&StreamEvent { records }, LATER + 30_000).await.report;
    assert_eq!((fate(&report), report.changes), (Fate::Left, 30));
    Ok(())
}

/// A batch of less than a second that consumes `taken` and, 749 ms after a refill, has `left` write units.
async fn check_short(taken: i64, left: i64, expect: Fate) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut state = BucketState { last_refill: time(LATER), ..full(1) };
    set_tokens(&mut state, "wcu", left - 749_000 + taken);
    scene.put(&key("user"), &state).await?;
    scene.writes().await?;
    let batch = heat(&mut scene, taken).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), expect, "{taken} {left}");
    Ok(())
}

#[tokio::test]
async fn a_short_batch_without_write_units_is_believed() -> anyhow::Result<()> {
    check_short(400_000, 199_999, Fate::Doubled).await?;
    check_short(400_000, 200_000, Fate::Left).await?;
    check_short(399_999, 0, Fate::Left).await
}

#[tokio::test]
async fn shares_stay_as_large_as_acquires() -> anyhow::Result<()> {
    for (acquired, expect) in [(50_000, Fate::Doubled), (50_001, Fate::Indivisible)] {
        let mut scene = KeeperScene::new().await?;
        create(&mut scene, "user", &[full(1)]).await?;
        scene.change(&key("user"), |state| take(state, "rpm", acquired)).await?;
        let batch = heat(&mut scene, 800_000).await?;
        // Both records are in this batch.
        assert_eq!(batch.records.len(), 2);
        assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), expect, "{acquired}");
    }
    Ok(())
}

#[tokio::test]
async fn there_are_no_more_shards_than_allowed() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.keeper.pressure.max_shards = count(2);
    create_two(&mut scene).await?;
    let batch = heat(&mut scene, 900_000).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), Fate::AtLimit);
    assert_eq!(scene.shards(&key("user"), 8).await?.states.len(), 2);
    Ok(())
}

/// What shard 0 of a hot bucket of two had consumed in the end, and its other shard.
const ZERO: i64 = 5_800_000;
const ONE: i64 = 4_000_000;

/// Handles that bucket with the stored check `earlier`. Asserts the outcome and the new check.
async fn check_two(earlier: Option<SpreadCheck>, expect: Fate, check: SpreadCheck) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let entry = Entry { bucket: key("user"), shards: count(2), check: earlier };
    scene.keeper.registry.enter(&entry).await?;
    for (number, consumed) in [(0, ZERO - 800_000), (1, ONE)] {
        let mut state = full(2);
        take(&mut state, "wcu", consumed);
        set_tokens(&mut state, "wcu", 1_000_000);
        scene.put(&shard(&key("user"), number), &state).await?;
    }
    scene.writes().await?;
    let batch = heat(&mut scene, 800_000).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), expect, "{earlier:?}");
    let shards = if expect == Fate::Doubled { 4 } else { 2 };
    assert_eq!(scene.shards(&key("user"), 8).await?.states.len(), shards as usize);
    let entry = Entry { shards: count(shards), check: Some(check), ..entry };
    assert_eq!(scene.keeper.registry.find(&key("user")).await?, Some(entry), "{earlier:?}");
    Ok(())
}

#[tokio::test]
async fn writes_must_spread_since_the_last_check() -> anyhow::Result<()> {
    let now = spread(LATER, ZERO, ONE);
    // Its newest shards are those that are created.
    let doubled = spread(LATER, ZERO, 0);
    // The parent of a cascade: all writes go to shard 0, whatever went to the other before.
    check_two(Some(spread(LATER - 9_000, ZERO - 800_000, ONE)), Fate::Held, now).await?;
    check_two(Some(spread(LATER - 9_000, ZERO - 800_000, ONE - 199_999)), Fate::Held, now).await?;
    check_two(Some(spread(LATER - 9_000, ZERO - 800_000, ONE - 200_000)), Fate::Doubled, doubled).await?;
    check_two(Some(spread(LATER - 60_000, ZERO - 800_000, ONE - 200_000)), Fate::Doubled, doubled).await?;
    // Too old, of another bucket of the same name, or none at all.
    check_two(Some(spread(LATER - 60_001, ZERO - 800_000, ONE - 200_000)), Fate::Held, now).await?;
    check_two(Some(spread(LATER - 9_000, ZERO + 1, ONE)), Fate::Held, now).await?;
    check_two(None, Fate::Held, now).await?;
    // Too little has been written to judge.
    let just_now = spread(LATER - 9_000, ZERO - 199_999, ONE - 199_999);
    check_two(Some(just_now), Fate::Held, just_now).await
}

#[tokio::test]
async fn only_shard_0_shows_pressure() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create_two(&mut scene).await?;
    scene.change(&shard(&key("user"), 1), |state| take(state, "wcu", 900_000)).await?;
    let batch = scene.event(LATER).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), Fate::Left);
    Ok(())
}

async fn create_two(scene: &mut KeeperScene) -> anyhow::Result<()> {
    scene.enter(&key("user"), 2).await?;
    scene.writes().await?;
    create(scene, "user", &[full(2), full(2)]).await
}

#[tokio::test]
async fn a_client_that_doubles_first_wins() -> anyhow::Result<()> {
    let (mut scene, batch) = hot().await?;
    scene.change(&key("user"), |state| state.shards = count(2)).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), Fate::Lost);
    assert_eq!(scene.state(&key("user")).await?.shards, count(2));

    let bump = scene.event(LATER + 1_000).await?;
    let report = scene.invoke(&bump, LATER + 1_000).await.report;
    assert_eq!(report.split, 1);
    Ok(())
}

/// A client changes shard 0 between the function's read and its transaction.
async fn check_raced(meanwhile: impl FnOnce(&mut BucketState<'static>), expect: Fate) -> anyhow::Result<()> {
    let (scene, batch) = hot().await?;
    scene.http.hold("TransactWriteItems");
    let change = async {
        scene.http.held().await;
        scene.change(&key("user"), meanwhile).await?;
        scene.http.release();
        Ok(())
    };
    let (handled, ()) = try_join(async { anyhow::Ok(scene.invoke(&batch, LATER).await) }, change).await?;
    assert_eq!((fate(&handled.report), handled.report.split_lost), (expect, 1));
    let states = scene.shards(&key("user"), 4).await?.states;
    assert_eq!(states.len(), if expect == Fate::Doubled { 2 } else { 1 });
    Ok(())
}

#[tokio::test]
async fn a_lost_doubling_is_tried_again() -> anyhow::Result<()> {
    // A slow path, and a client's own doubling.
    check_raced(|state| state.last_refill = time(LATER), Fate::Doubled).await?;
    check_raced(|state| state.shards = count(2), Fate::Lost).await
}

#[tokio::test]
async fn a_crash_leaves_the_repair_an_entry() -> anyhow::Result<()> {
    let mut crashes = 0;
    for writes in 0.. {
        let (mut scene, batch) = hot().await?;
        scene.http.crash_after(writes);
        let is_done = tokio::select! {
            handled = scene.keeper.handle(&batch, time(LATER), in_time()) => handled.report.doubled == 1,
            () = scene.http.crashed() => false,
        };
        scene.http.heal();
        let shards = scene.state(&key("user")).await?.shards;
        let entry = scene.keeper.registry.find(&key("user")).await?;
        assert!(shards == count(1) || entry.is_some_and(|entry| entry.shards == shards), "{writes} writes");
        scene.keeper = scene.another_process()?;
        scene.repair(LATER).await?;
        assert_eq!(scene.shards(&key("user"), 4).await?.states.len(), shards.get() as usize);
        if is_done {
            break;
        }
        crashes += 1;
    }
    assert_eq!(crashes, 4, "before and after the refill, the entry and the transaction");
    Ok(())
}
