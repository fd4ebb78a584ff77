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

/// `set_limits` marks all shards; a large request clamps those that it takes from.
#[tokio::test]
async fn a_large_request_takes_from_marked_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(4).await?;
    for shard in 0..4 {
        scene.change(shard, |item| drop(item.insert("vu".to_owned(), number(0)))).await?;
    }
    let _large = scene.acquire(59_000).await?;
    assert_eq!(scene.totals("tokens", 4).await?, (999_000, 59_001_000));
    assert_eq!(scene.attribute(3, "vu").await?, None);
    Ok(())
}

/// Another client has doubled the bucket, and the new shard does not exist yet.
#[tokio::test]
async fn a_large_request_creates_missing_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    spread(&scene, 2).await?;
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    let _large = other.acquire(ENTITY, RESOURCE).take("tokens", 59_000).await?;
    assert_eq!(scene.totals("tokens", 2).await?, (999_000, 59_001_000));
    Ok(())
}

/// A bucket whose partition is too hot is doubled once, however many callers meet it.
#[tokio::test]
async fn a_hot_bucket_is_doubled_once() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.change(0, |item| drop(item.insert("b_wcu_tk".to_owned(), number(0)))).await?;
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    let all = (0..100).map(|at| {
        let limiter = if at % 2 == 0 { &scene.limiter } else { &other };
        limiter.acquire(ENTITY, RESOURCE).take("requests", 1).into_future()
    });
    let _leases = futures::future::try_join_all(all).await?;
    assert_eq!(scene.attribute(0, "shard_count").await?, Some(number(2)));
    assert_eq!(scene.totals("requests", 2).await?, (499_000, 101_000));
    Ok(())
}

/// A partition that is too hot leads to another shard.
#[tokio::test]
async fn another_shard_takes_the_load_of_a_hot_one() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(2).await?;
    scene.http.on_call(|operation, body| {
        (operation == "UpdateItem" && body.contains("#gpt-4#0\"")).then_some(Fault::HotPartition)
    });
    let _seen = scene.limiter.acquire(ENTITY, RESOURCE).take("tokens", 30_000).check().await?;
    for _ in 0..20 {
        let _lease = scene.acquire(1).await?;
    }
    assert_eq!(scene.attribute(0, "shard_count").await?, Some(number(2)));
    Ok(())
}

/// A throttled table is no reason for more shards.
#[tokio::test]
async fn a_throttled_table_does_not_double_buckets() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.http.on_call(|operation, _| (operation == "UpdateItem").then_some(Fault::Throttled));
    let error = scene.acquire(1).await.expect_err("the table is throttled");
    assert!(matches!(error, AcquireError::Denied(_)), "{error}");
    assert_eq!(scene.attribute(0, "shard_count").await?, Some(number(1)));
    Ok(())
}

/// A bucket that has expired and was created again has one shard, whatever a process remembers.
#[tokio::test]
async fn a_new_bucket_is_not_spread_again() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(4).await?;
    for _ in 0..20 {
        let _lease = scene.acquire(1).await?;
    }
    for shard in 0..4 {
        scene.delete(shard).await?;
    }
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    let _created = other.acquire(ENTITY, RESOURCE).take("tokens", 1).await?;
    for _ in 0..20 {
        let _lease = scene.acquire(1).await?;
    }
    assert_eq!(scene.attribute(0, "shard_count").await?, Some(number(1)));
    assert_eq!(scene.totals("requests", 4).await?.1, 20_000);
    Ok(())
}
