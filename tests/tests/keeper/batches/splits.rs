//! The function creates the missing shards of a bucket, whoever doubled it.

use tidegate_tests::keeper::prelude::*;

use super::{LATER, create};

/// What the shards hold of a limit, shard by shard.
async fn held(scene: &KeeperScene, name: &'static str) -> anyhow::Result<Vec<i64>> {
    scene.held(&key("user"), name).await
}

/// A bucket of one shard that a client changes: the batch that shows it, and the report of it.
async fn change(
    scene: &mut KeeperScene,
    change: impl FnOnce(&mut BucketState<'static>),
) -> anyhow::Result<KeeperReport> {
    create(scene, "user", &[full(1)]).await?;
    scene.change(&key("user"), change).await?;
    let batch = scene.event(LATER).await?;
    Ok(scene.invoke(&batch, LATER).await.report)
}

#[tokio::test]
async fn a_clients_doubling_is_completed_once() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    scene.change(&key("user"), |state| state.shards = count(4)).await?;
    let bump = scene.event(LATER).await?;
    let report = scene.invoke(&bump, LATER).await.report;
    assert_eq!((report.split, report.raised, report.incomplete), (3, 0, 0));

    let expect = (0..4).map(|number| (Shard::new(number), full(4))).collect();
    assert_eq!(scene.shards(&key("user"), 16).await?.states, expect, "each has its share");
    let entry = Entry { bucket: key("user"), shards: count(4), check: None };
    assert_eq!(scene.keeper.registry.find(&key("user")).await?, Some(entry));

    let echo = scene.event(LATER).await?;
    for process in [&scene.keeper, &scene.another_process()?] {
        for batch in [&bump, &echo, &bump] {
            let report = process.handle(batch, time(LATER + 1_000), in_time()).await.report;
            assert_eq!((report.split, report.failed, report.refused), (0, 0, 0));
        }
    }
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_overfull_shard_gives_before_it_is_trimmed() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    // Somebody gave back far more than was taken.
    let give = |state: &mut BucketState<'static>| {
        state.shards = count(2);
        set_tokens(state, "rpm", 129_000);
    };
    let report = change(&mut scene, give).await?;
    // The batch shows only shard 0, which waits; once all shards are read, both are trimmed.
    assert_eq!((report.waiting, report.split, report.refilled, report.trimmed), (1, 1, 2, 2));
    assert_eq!(held(&scene, "rpm").await?, [50_000, 50_000]);
    assert_eq!(held(&scene, "tpm").await?, [5_000_000, 5_000_000]);
    let echo = scene.event(LATER).await?;
    scene.invoke(&echo, LATER + 1_000).await;
    assert_eq!(scene.writes().await?, 0, "it has come to rest");
    Ok(())
}

#[tokio::test]
async fn a_shard_is_trimmed_only_after_its_split() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.enter(&key("user"), 2).await?;
    scene.writes().await?;
    create(&mut scene, "user", &[full(2), full(2)]).await?;
    // A client doubles: it writes shard 0, and then the number to shard 1.
    scene.change(&key("user"), |state| state.shards = count(4)).await?;
    let zero = scene.event(LATER).await?;
    scene.change(&shard(&key("user"), 1), |state| state.shards = count(4)).await?;
    let one = scene.event(LATER).await?;

    let report = scene.invoke(&one, LATER).await.report;
    assert_eq!(report, KeeperReport { records: 1, changes: 1, shards: 1, waiting: 1, ..KeeperReport::default() });
    assert_eq!(scene.writes().await?, 0);
    let report = scene.invoke(&zero, LATER).await.report;
    assert_eq!((report.split, report.trimmed), (2, 0));
    assert_eq!(held(&scene, "rpm").await?, [25_000; 4], "no token is lost");
    Ok(())
}

#[tokio::test]
async fn an_overfull_shard_without_write_units_is_refilled() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&key("user"), &full(2)).await?;
    let mut one = full(2);
    set_tokens(&mut one, "rpm", 60_000);
    set_tokens(&mut one, "wcu", 249_999);
    scene.writes().await?;
    scene.put(&shard(&key("user"), 1), &one).await?;
    let batch = scene.event(LATER).await?;
    // The batch does not tell whether it has split; a read of both shards does.
    let report = scene.invoke(&batch, LATER).await.report;
    assert_eq!((report.waiting, report.refilled, report.trimmed), (1, 1, 1));
    assert_eq!((held(&scene, "rpm").await?, held(&scene, "wcu").await?), (vec![50_000; 2], vec![1_000_000; 2]));
    Ok(())
}

#[tokio::test]
async fn three_shards_are_not_supported() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let report = change(&mut scene, |state| state.shards = count(3)).await?;
    assert_eq!((report.unsupported, report.waiting, report.incomplete, report.split), (1, 1, 1, 0));
    assert_eq!(held(&scene, "rpm").await?, [100_000]);
    Ok(())
}

#[tokio::test]
async fn debt_and_odd_numbers_are_conserved() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let spend = |state: &mut BucketState<'static>| {
        state.shards = count(8);
        // Nothing has accrued since.
        state.last_refill = time(LATER);
        take(state, "rpm", 137_005);
        take(state, "tpm", 9_999_989);
    };
    let report = change(&mut scene, spend).await?;
    assert_eq!((report.split, report.refilled), (7, 0));
    assert_eq!(held(&scene, "rpm").await?.iter().sum::<i64>(), -37_005);
    assert_eq!(held(&scene, "tpm").await?.iter().sum::<i64>(), 11);
    assert_eq!(held(&scene, "wcu").await?, [1_000_000; 8]);
    Ok(())
}

#[tokio::test]
async fn a_clients_clone_is_not_overwritten() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut theirs = full(2);
    take(&mut theirs, "rpm", 7_000);
    let mut clone = item(&shard(&key("user"), 1), &theirs);
    clone.insert("unheard_of".to_owned(), text("kept"));
    scene.put_item(clone.clone()).await?;
    scene.writes().await?;
    let report = change(&mut scene, |state| state.shards = count(2)).await?;
    assert_eq!((report.split, report.trimmed), (0, 1));
    assert_eq!(scene.item(&shard(&key("user"), 1)).await?, clone);
    // Shard 0 had the tokens of both.
    assert_eq!(held(&scene, "rpm").await?, [50_000, 43_000]);
    Ok(())
}

#[tokio::test]
async fn a_clone_learns_the_number_of_shards() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    for (number, known) in [(1, 1), (2, 2)] {
        scene.put(&shard(&key("user"), number), &BucketState { shards: count(known), ..full(4) }).await?;
    }
    scene.put(&key("user"), &full(4)).await?;
    let batch = scene.event(LATER).await?;
    let report = scene.invoke(&batch, LATER).await.report;
    // Shard 1 learns it by its split.
    assert_eq!((report.split, report.raised), (1, 1));
    let shards = scene.shards(&key("user"), 16).await?.states;
    assert!(shards.len() == 4 && shards.values().all(|state| state.shards == count(4)), "{shards:?}");
    assert_eq!(held(&scene, "rpm").await?, [25_000, 12_500, 25_000, 12_500]);
    Ok(())
}

#[tokio::test]
async fn a_batch_without_shard_0_creates_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&key("user"), &full(2)).await?;
    scene.writes().await?;
    scene.put(&shard(&key("user"), 1), &full(4)).await?;
    let batch = scene.event(LATER).await?;
    scene.invoke(&batch, LATER).await;
    assert_eq!(scene.writes().await?, 0, "shard 0 is the source of truth");
    Ok(())
}
