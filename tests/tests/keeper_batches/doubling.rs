//! Hot shards are doubled where that helps.

use bucket_keeper::report::Report;
use tidegate_aws::stream::StreamEvent;
use tidegate_domain::state::BucketState;
use tidegate_tests::keeper::{KeeperScene, count, full, key, set_tokens, shard, take, time};

use crate::{LATER, create};

/// What became of a bucket with shard 0 under pressure, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Left,
    Doubled,
    Held,
    AtLimit,
}

fn fate(report: &Report) -> Fate {
    match (report.doubled, report.held, report.at_limit, report.double_lost) {
        (0, 0, 0, 0) => Fate::Left,
        (1, 0, 0, 0) => Fate::Doubled,
        (0, 1, 0, 0) => Fate::Held,
        (0, 0, 1, 0) => Fate::AtLimit,
        _ => panic!("{report:?}"),
    }
}

/// So many write units, in thousandths, of shard 0 in one second.
async fn heat(scene: &mut KeeperScene, taken: i64) -> anyhow::Result<StreamEvent> {
    scene.change(&key("user"), |state| take(state, "wcu", taken)).await?;
    scene.event(LATER).await
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
async fn a_bucket_that_is_written_once_a_second_is_left() -> anyhow::Result<()> {
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

/// A batch too short to hold a whole second: so much of it, and so much left 749 ms after a refill.
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
async fn a_short_batch_of_a_shard_without_write_units_is_believed() -> anyhow::Result<()> {
    check_short(400_000, 199_999, Fate::Doubled).await?;
    check_short(400_000, 200_000, Fate::Left).await?;
    check_short(399_999, 0, Fate::Left).await
}

#[tokio::test]
async fn there_are_no_more_shards_than_there_may_be() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.keeper.pressure.max_shards = count(2);
    scene.enter(&key("user"), 2, 0).await?;
    scene.writes().await?;
    create(&mut scene, "user", &[full(2), full(2)]).await?;
    let batch = heat(&mut scene, 900_000).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), Fate::AtLimit);
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

/// A hot bucket of two shards: when it got them, shard 0 had consumed `then`; now it has `zero`, and the
/// other `one`.
async fn check_two(then: i64, zero: i64, one: i64, expect: Fate) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.enter(&key("user"), 2, then).await?;
    let mut shards = [full(2), full(2)];
    take(&mut shards[0], "wcu", zero - 800_000);
    take(&mut shards[1], "wcu", one);
    for (number, state) in (0..).zip(&mut shards) {
        set_tokens(state, "wcu", 1_000_000);
        scene.put(&shard(&key("user"), number), state).await?;
    }
    scene.writes().await?;
    let batch = heat(&mut scene, 800_000).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), expect, "{then} {zero} {one}");
    let shards = if expect == Fate::Doubled { 4 } else { 2 };
    assert_eq!(scene.shards(&key("user"), 8).await?.states.len(), shards);
    Ok(())
}

#[tokio::test]
async fn a_bucket_whose_writes_do_not_spread_is_held() -> anyhow::Result<()> {
    // The parent of a cascade: all writes go to shard 0.
    check_two(0, 800_000, 0, Fate::Held).await?;
    check_two(0, 800_000, 199_999, Fate::Held).await?;
    check_two(0, 800_000, 200_000, Fate::Doubled).await?;
    // What shard 0 had consumed before is no matter.
    check_two(5_000_000, 5_800_000, 199_999, Fate::Held).await?;
    check_two(5_000_000, 5_800_000, 200_000, Fate::Doubled).await
}

#[tokio::test]
async fn a_shard_beside_shard_0_doubles_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create_two(&mut scene).await?;
    scene.change(&shard(&key("user"), 1), |state| take(state, "wcu", 900_000)).await?;
    let batch = scene.event(LATER).await?;
    assert_eq!(fate(&scene.invoke(&batch, LATER).await.report), Fate::Left);
    Ok(())
}

async fn create_two(scene: &mut KeeperScene) -> anyhow::Result<()> {
    scene.enter(&key("user"), 2, 0).await?;
    scene.writes().await?;
    create(scene, "user", &[full(2), full(2)]).await
}

#[tokio::test]
async fn a_client_that_doubles_first_wins() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    let batch = heat(&mut scene, 900_000).await?;
    scene.change(&key("user"), |state| state.shards = count(2)).await?;
    let report = scene.invoke(&batch, LATER).await.report;
    assert_eq!((report.doubled, report.double_lost), (0, 1));
    assert_eq!(scene.state(&key("user")).await?.shards, count(2));

    let bump = scene.event(LATER + 1_000).await?;
    let report = scene.invoke(&bump, LATER + 1_000).await.report;
    assert_eq!(report.split, 1);
    Ok(())
}
