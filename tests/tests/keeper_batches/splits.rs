//! The shards that a bucket should have are created, whoever doubled it.

use bucket_keeper::report::Report;
use tidegate_aws::registry::Entry;
use tidegate_domain::{bucket::Shard, state::BucketState, tokens::Millitokens};
use tidegate_tests::keeper::{
    KeeperScene, count, full, in_time, item, key, set_tokens, shard, take, text, time, tokens,
};

use crate::{LATER, create};

/// What the shards hold of a limit, shard by shard.
async fn held(scene: &KeeperScene, name: &'static str) -> anyhow::Result<Vec<i64>> {
    let shards = scene.shards(&key("user"), 16).await?;
    Ok(shards.states.values().map(|state| tokens(state, name)).collect())
}

#[tokio::test]
async fn a_clients_doubling_is_carried_through_once() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    scene.change(&key("user"), |state| state.shards = count(4)).await?;
    let bump = scene.event(LATER).await?;
    let report = scene.invoke(&bump, LATER).await.report;
    assert_eq!((report.split, report.raised, report.unsettled), (3, 0, 0));

    let expect = (0..4).map(|number| (Shard::new(number), full(4))).collect();
    assert_eq!(scene.shards(&key("user"), 16).await?.states, expect, "each has its share");
    let entry = Entry { bucket: key("user"), shards: count(4), written: Millitokens::default() };
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
    create(&mut scene, "user", &[full(1)]).await?;
    scene
        .change(&key("user"), |state| {
            state.shards = count(2);
            // Somebody gave back far more than was taken.
            set_tokens(state, "rpm", 129_000);
        })
        .await?;
    let bump = scene.event(LATER).await?;
    let report = scene.invoke(&bump, LATER).await.report;
    assert_eq!((report.split, report.refilled, report.trimmed, report.waiting), (1, 1, 1, 0));
    // The new shard has half of what there was before the trim.
    assert_eq!(held(&scene, "rpm").await?, [50_000, 64_500]);
    assert_eq!(held(&scene, "tpm").await?, [5_000_000, 5_000_000]);

    let echo = scene.event(LATER).await?;
    let report = scene.invoke(&echo, LATER + 1_000).await.report;
    assert_eq!((report.split, report.trimmed), (0, 1));
    assert_eq!(held(&scene, "rpm").await?, [50_000, 50_000]);
    let echo = scene.event(LATER + 1_000).await?;
    scene.invoke(&echo, LATER + 9_000).await;
    assert_eq!(scene.writes().await?, 0, "it has come to rest");
    Ok(())
}

#[tokio::test]
async fn an_overfull_shard_that_cannot_give_waits() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    // Three shards are no doubling.
    scene.change(&key("user"), |state| state.shards = count(3)).await?;
    let bump = scene.event(LATER).await?;
    let report = scene.invoke(&bump, LATER).await.report;
    let expect = Report { records: 1, changes: 1, shards: 1, misshapen: 1, waiting: 1, ..Report::default() };
    assert_eq!((report, scene.writes().await?), (expect, 0));
    Ok(())
}

#[tokio::test]
async fn tokens_are_conserved_in_debt_and_with_odd_numbers() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    scene
        .change(&key("user"), |state| {
            state.shards = count(8);
            take(state, "rpm", 137_005);
            take(state, "tpm", 9_999_989);
        })
        .await?;
    let bump = scene.event(LATER).await?;
    // Since the end of the second in which all was full, nothing has accrued.
    let report = scene.invoke(&bump, LATER).await.report;
    assert_eq!((report.split, report.refilled), (7, 0));
    assert_eq!(held(&scene, "rpm").await?.iter().sum::<i64>(), -37_005);
    assert_eq!(held(&scene, "tpm").await?.iter().sum::<i64>(), 11);
    assert_eq!(held(&scene, "wcu").await?, [1_000_000; 8]);
    Ok(())
}

#[tokio::test]
async fn a_clients_clone_is_not_overwritten() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    create(&mut scene, "user", &[full(1)]).await?;
    let mut theirs = full(2);
    take(&mut theirs, "rpm", 7_000);
    let mut clone = item(&shard(&key("user"), 1), &theirs);
    clone.insert("unheard_of".to_owned(), text("kept"));
    scene.put_item(clone.clone()).await?;
    scene.change(&key("user"), |state| state.shards = count(2)).await?;
    let batch = scene.event(LATER).await?;
    let report = scene.invoke(&batch, LATER).await.report;
    assert_eq!((report.split, report.trimmed), (0, 1));
    assert_eq!(scene.item(&shard(&key("user"), 1)).await?, clone);
    // Shard 0 had the tokens of both.
    assert_eq!(held(&scene, "rpm").await?, [50_000, 43_000]);
    Ok(())
}

#[tokio::test]
async fn a_clone_that_knows_of_fewer_shards_is_told() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&shard(&key("user"), 1), &BucketState { shards: count(1), ..full(4) }).await?;
    scene.put(&key("user"), &full(4)).await?;
    let batch = scene.event(LATER).await?;
    let report = scene.invoke(&batch, LATER).await.report;
    // Shard 1 learns of 2 shards and then, by its own split, of 4.
    assert_eq!((report.split, report.raised), (2, 1));
    let shards = scene.shards(&key("user"), 16).await?.states;
    assert!(shards.len() == 4 && shards.values().all(|state| state.shards == count(4)), "{shards:?}");
    assert_eq!(held(&scene, "rpm").await?, [12_500, 12_500, 12_500, 12_500]);
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
