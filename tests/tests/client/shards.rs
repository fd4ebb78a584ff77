//! Buckets of several shards.

use std::time::Duration;

use tidegate_tests::client::prelude::*;

/// Another client has counted up the shards: the missing ones are split off, so that no token is created.
async fn spread(scene: &ClientScene, shards: u32) -> anyhow::Result<()> {
    scene.change(0, |item| drop(item.insert("shard_count".to_owned(), number(shards)))).await?;
    Ok(())
}

#[tokio::test]
async fn missing_shards_take_their_part() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(20_000).await?;
    spread(&scene, 4).await?;
    for _ in 0..40 {
        let _lease = scene.acquire(10).await?;
    }
    assert_eq!(scene.shards(4).await?.states.len(), 4);
    assert_eq!(scene.totals("tokens", 4).await?, (39_600_000, 20_400_000));
    Ok(())
}

/// A dry shard is avoided, and no bucket is denied while another shard has tokens.
#[tokio::test]
async fn dry_shards_are_avoided() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    spread(&scene, 2).await?;
    for _ in 0..20 {
        let _lease = scene.acquire(1).await?;
    }
    for shard in [0, 1] {
        let tokens = if shard == 0 { 0 } else { 20_000_000 };
        scene.change(shard, |item| drop(item.insert("b_tokens_tk".to_owned(), number(tokens)))).await?;
    }
    for _ in 0..10 {
        let _lease = scene.acquire(1_000).await?;
    }
    assert_eq!(scene.totals("tokens", 2).await?.0, 10_000_000);
    Ok(())
}

/// A request larger than one shard can hold takes from several, in one transaction.
#[tokio::test]
async fn a_large_request_takes_from_several_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    spread(&scene, 4).await?;
    for _ in 0..40 {
        let _lease = scene.acquire(1).await?;
    }
    let (before, _) = scene.totals("tokens", 4).await?;
    let lease = scene.acquire(40_000).await?;
    assert_eq!(scene.totals("tokens", 4).await?.0, before - 40_000_000);
    lease.refund().await?;
    assert_eq!(scene.totals("tokens", 4).await?.0, before);
    let denied = scene.acquire(59_999).await.expect_err("some tokens were taken before");
    let AcquireError::Denied(denied) = denied else { panic!("{denied:?}") };
    assert!(denied.retry_after() <= Duration::from_secs(1), "{denied}");
    let never = scene.acquire(60_001).await.expect_err("more than the bucket");
    assert!(matches!(never, AcquireError::Never(_)), "{never:?}");
    Ok(())
}
