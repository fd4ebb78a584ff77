//! Lost responses, throttling and errors: a charge happens at most once, and tokens are never created.

use futures::StreamExt as _;
use tidegate_tests::client::prelude::*;

/// Acquires and refunds at these fault rates. Returns the granted and the refunded tokens that the callers know of,
/// and the requests whose outcome is unknown.
async fn work(scene: &ClientScene, acquires: u64) -> anyhow::Result<(i64, i64)> {
    let one = |number: u64| async move {
        match scene.acquire(10).await {
            Ok(lease) if number.is_multiple_of(3) => match lease.refund().await {
                Ok(()) => (0, 0),
                // The refund counts as not done.
                Err(_) => (10, 10),
            },
            Ok(_) => (10, 0),
            Err(AcquireError::Unavailable(_)) => (0, 10),
            Err(error) => panic!("{error}"),
        }
    };
    let results: Vec<_> = futures::stream::iter((0..acquires).map(one)).buffer_unordered(20).collect().await;
    Ok(results.into_iter().fold((0, 0), |(granted, unknown), (one, other)| (granted + one, unknown + other)))
}

/// What the table has charged is what the callers were granted, except for requests that were answered as unavailable.
#[tokio::test]
async fn no_fault_charges_twice() -> anyhow::Result<()> {
    let rates = FaultRates { dropped_after: 0.05, internal_after: 0.05, ..FaultRates::spread(0.2) };
    let scene = ClientScene::with_faults(rates, 7).await?;
    scene.configure(&[("requests", [1_000_000, 1, 60]), ("tokens", [1_000_000, 1, 60])]).await?;
    let (granted, unknown) = work(&scene, 1_500).await?;
    scene.limiter.flush().await;
    let (tokens, consumed) = scene.totals("tokens", 1).await?;
    let charged = consumed / 1_000;
    assert!(scene.http.counts().total() > 50, "{:?}", scene.http.counts());
    assert!(
        (granted..=granted + unknown).contains(&charged),
        "{charged} charged, {granted} granted, {unknown} unknown"
    );
    assert_eq!(tokens + consumed, 1_000_000_000, "tokens were created or lost");
    Ok(())
}

/// A response that is lost after the write is found by the id that the write left.
#[tokio::test]
async fn a_lost_response_is_found() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    for fault in [Fault::DroppedAfter, Fault::InternalAfter] {
        let hits = AtomicUsize::new(0);
        scene.http.on_call(move |operation, _| {
            (operation == "UpdateItem" && hits.fetch_add(1, Ordering::Relaxed) == 0).then_some(fault)
        });
        scene.calls();
        let _lease = scene.acquire(100).await?;
        assert_eq!(scene.calls().get("GetItem"), Some(&1), "{fault:?}");
    }
    assert_eq!(scene.totals("tokens", 1).await?, (59_799_000, 201_000));
    Ok(())
}

/// A request that never arrived is not made again, because it could still arrive.
#[tokio::test]
async fn a_lost_request_is_unavailable() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let hits = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        (operation == "UpdateItem" && hits.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::DroppedBefore)
    });
    let error = scene.acquire(100).await.expect_err("it cannot be known whether it will be charged");
    assert!(matches!(error, AcquireError::Unavailable(_)), "{error:?}");
    assert_eq!(scene.totals("tokens", 1).await?, (59_999_000, 1_000));
    let _later = scene.acquire(100).await?;
    Ok(())
}

/// Throttling is waited out.
#[tokio::test]
async fn a_throttled_write_is_made_again() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let hits = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        (operation == "UpdateItem" && hits.fetch_add(1, Ordering::Relaxed) < 3).then_some(Fault::Throttled)
    });
    let _lease = scene.acquire(100).await?;
    assert_eq!(scene.totals("tokens", 1).await?, (59_899_000, 101_000));
    Ok(())
}

#[tokio::test]
async fn an_unavailable_table_may_admit() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    scene.http.on_call(|_, _| Some(Fault::InternalBefore));
    let error = scene.acquire(1).await.expect_err("the table is down");
    assert!(error.to_string().starts_with("the table is unavailable"), "{error}");
    Ok(())
}
