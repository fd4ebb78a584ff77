//! Changes of the limits: how they reach the buckets.

use futures::future::{join_all, try_join_all};
use tidegate_domain::time::EpochMillis;
use tidegate_sandbox::stream::StreamReader;
use tidegate_tests::client::prelude::*;

/// The default limits with so many tokens a minute.
fn limits(tokens: i64) -> [(&'static str, [i64; 3]); 2] {
    [("requests", [600, 600, 60]), ("tokens", [tokens, tokens, 60])]
}

/// Fifty processes share a bucket while its limits are changed and changed back. The bucket's terms change twice: no
/// process restores what it remembers.
#[tokio::test]
async fn old_limits_are_never_restored() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let processes = try_join_all((0..50).map(|_| async { scene.another(&FaultyHttp::undisturbed()).await })).await?;
    let mut stream = StreamReader::new(scene.services.streams.clone(), scene.services.stream_arn().await?);
    let load = async || {
        for _ in 0..3 {
            // Each wave takes more than is stored, so that the processes refill.
            scene.clock.advance(Duration::from_secs(1));
            join_all(
                processes.iter().map(|limiter| limiter.acquire(ENTITY, RESOURCE).take("tokens", 300).into_future()),
            )
            .await
            .into_iter()
            .for_each(|acquired| match acquired {
                Ok(_) | Err(AcquireError::Denied(_)) => {}
                Err(error) => panic!("{error}"),
            });
        }
    };
    let mut capacities = Vec::new();
    for tokens in [60_000, 6_000, 60_000] {
        scene.configure(&limits(tokens)).await?;
        // The processes remember the old limits for a minute.
        load().await;
        scene.clock.advance(Duration::from_secs(61));
        load().await;
    }
    let records = stream.drain(EpochMillis::new(START)?).await?;
    for record in records.values().flatten() {
        let change: Value = serde_json::from_str(&record.json)?;
        let capacity = &change["dynamodb"]["NewImage"]["b_tokens_cp"]["N"];
        if let Some(capacity) = capacity.as_str().filter(|capacity| capacities.last() != Some(&capacity.to_string())) {
            capacities.push(capacity.to_owned());
        }
    }
    assert_eq!(capacities, ["60000000", "6000000", "60000000"]);
    Ok(())
}

/// Lowered limits reach a bucket whose stored tokens would last.
#[tokio::test]
async fn lowered_limits_reach_a_full_bucket() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.configure(&limits(100)).await?;
    scene.clock.advance(Duration::from_mins(1));
    let _second = scene.acquire(1).await?;
    assert_eq!(scene.attribute(0, "b_tokens_cp").await?, Some(number(100_000)));
    assert_eq!(scene.totals("tokens", 1).await?.0, 99_000);
    Ok(())
}

/// A request that was larger than the bucket is granted after the limits were raised.
#[tokio::test]
async fn raised_limits_reach_a_bucket_that_denies() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let never = scene.acquire(100_000).await.expect_err("more than the bucket can hold");
    assert!(matches!(never, AcquireError::Never(_)), "{never}");
    scene.configure(&limits(200_000)).await?;
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    scene.clock.advance(Duration::from_mins(1));
    let _granted = other.acquire(ENTITY, RESOURCE).take("tokens", 100_000).await?;
    assert_eq!(scene.attribute(0, "b_tokens_cp").await?, Some(number(200_000_000)));
    Ok(())
}

/// Other clients write the terms of a new limit only, and mark the bucket.
#[tokio::test]
async fn a_limit_without_tokens_is_seeded() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.configure(&[limits(60_000)[0], limits(60_000)[1], ("images", [10, 10, 60])]).await?;
    scene
        .change(0, |item| {
            for (name, value) in [("b_images_cp", 10_000), ("b_images_ra", 10_000), ("b_images_rp", 60_000), ("vu", 0)]
            {
                item.insert(name.to_owned(), number(value));
            }
        })
        .await?;
    let _others = scene.acquire(1).await?;
    // The limiter asks for an unknown limit once a second.
    scene.clock.advance(Duration::from_secs(2));
    let _image = scene.acquire(1).take("images", 4).await?;
    assert_eq!(scene.totals("images", 1).await?, (6_000, 4_000));
    assert_eq!(scene.attribute(0, "vu").await?, None);
    Ok(())
}

/// Older clients leave an item without limits when they adjust a bucket that has expired.
#[tokio::test]
async fn an_incomplete_item_is_completed() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene
        .change(0, |item| {
            item.retain(|name, _| ["PK", "SK"].contains(&name.as_str()));
            item.insert("b_tokens_tk".to_owned(), number(-500_000));
            item.insert("b_tokens_tc".to_owned(), number(500_000));
        })
        .await?;
    let denied = scene.acquire(100).await.expect_err("there is a debt");
    assert!(matches!(denied, AcquireError::Denied(_)), "{denied}");
    scene.clock.advance(Duration::from_secs(1));
    let _granted = scene.acquire(500).await?;
    assert_eq!(scene.totals("tokens", 1).await?, (0, 1_000_000));
    assert_eq!(scene.attribute(0, "b_requests_cp").await?, Some(number(600_000)));
    Ok(())
}

/// A misspelt limit causes one read a second, whoever asks for it.
#[tokio::test]
async fn a_misspelt_limit_is_cheap() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.calls();
    for _ in 0..20 {
        let error = scene.acquire(1).take("misspelt", 1).await.expect_err("there is no such limit");
        assert!(matches!(error, AcquireError::UnknownLimit { .. }), "{error}");
    }
    assert!(scene.calls().get("BatchGetItem").is_none_or(|reads| *reads <= 2));
    Ok(())
}

#[tokio::test]
async fn a_missing_table_is_said() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let builder = Limiter::builder(scene.services.dynamodb.clone(), "no-such-table");
    let error = builder.build().await.expect_err("there is no table").to_string();
    assert!(error.contains("no-such-table") && error.contains("missing"), "{error}");
    let builder = Limiter::builder(scene.services.dynamodb.clone(), &scene.services.table);
    let error = builder.namespace("elsewhere").build().await.expect_err("there is no namespace").to_string();
    assert!(error.contains("elsewhere") && error.contains(&scene.services.table), "{error}");
    Ok(())
}
