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

/// What an acquire returns while the table is down is the caller's choice.
#[tokio::test]
async fn an_unavailable_table_may_admit() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let error = {
        scene.http.on_call(|_, _| Some(Fault::DroppedBefore));
        scene.acquire(1).await.expect_err("the table is down")
    };
    assert!(error.to_string().starts_with("the table is unavailable"), "{error}");
    scene.http.on_call(|_, _| None);
    let http = FaultyHttp::undisturbed();
    let allow = scene.another_with(&http, |builder| builder.on_unavailable(OnUnavailable::Allow)).await?;
    let local = OnUnavailable::Local(2.try_into()?);
    let local = scene.another_with(&http, |builder| builder.on_unavailable(local)).await?;
    http.on_call(|_, _| Some(Fault::DroppedBefore));
    let acquire = |limiter: &Limiter| limiter.acquire(ENTITY, RESOURCE).take("tokens", 1).into_future();
    assert!(acquire(&allow).await?.is_degraded());
    let both = futures::future::try_join(acquire(&local), acquire(&local)).await?;
    assert!(both.0.is_degraded() && both.1.is_degraded());
    let denied = acquire(&local).await.expect_err("two per second");
    let AcquireError::Denied(denied) = denied else { panic!("{denied}") };
    assert_eq!((denied.decided_by(), denied.retry_after()), (DecidedBy::LocalRate, Duration::from_millis(500)));
    Ok(())
}

/// A table that rejects the request is no outage, which would admit it.
#[tokio::test]
async fn a_missing_table_admits_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let allow = |builder: LimiterBuilder| builder.on_unavailable(OnUnavailable::Allow);
    let limiter = scene.another_with(&FaultyHttp::undisturbed(), allow).await?;
    scene.services.dynamodb.delete_table().table_name(&scene.services.table).send().await?;
    let error = limiter.acquire(ENTITY, RESOURCE).take("tokens", 1).await.expect_err("there is no table");
    assert!(matches!(error, AcquireError::Rejected(_)), "{error}");
    assert!(error.to_string().contains("the table or a permission is missing"), "{error}");
    let late = limiter.acquire(ENTITY, RESOURCE).take("tokens", 1).until(Instant::now()).await;
    assert!(late.is_err(), "a deadline that has passed is no outage");
    Ok(())
}

/// A connection that breaks without a sign does not block the bucket.
#[tokio::test]
async fn a_call_without_an_answer_ends() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let http = FaultyHttp::undisturbed();
    let limiter = scene.impatient(&http).await?;
    let acquire = || limiter.acquire(ENTITY, RESOURCE).take("tokens", 1).into_future();
    let _first = acquire().await?;
    let calls = AtomicUsize::new(0);
    http.on_call(move |_, _| (calls.fetch_add(1, Ordering::Relaxed) == 0).then_some(Fault::Hang));
    let error = acquire().await.expect_err("the write may have happened");
    assert!(matches!(error, AcquireError::Unavailable(_)), "{error}");
    let _next = acquire().await?;
    Ok(())
}

/// A caller that goes away while a transaction takes from several shards loses nothing.
#[tokio::test]
async fn a_cancelled_large_request_leaves_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(4).await?;
    scene.http.hold("TransactWriteItems");
    {
        let mut large = Box::pin(async { scene.acquire(40_000).await });
        let held = scene.http.held();
        tokio::select! {
            biased;
            acquired = &mut large => panic!("the transaction is held: {acquired:?}"),
            () = held => {}
        }
    }
    scene.http.release();
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 4).await?, (59_999_000, 1_000));
    Ok(())
}

/// A runtime that has shut down answers its callers, and a lease can be dropped without any.
#[test]
fn a_runtime_that_is_gone_blocks_no_caller() -> anyhow::Result<()> {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (first, second) = (runtime()?, runtime()?);
    let (scene, mut lease) = first.block_on(async {
        let scene = ClientScene::new().await?;
        let lease = scene.acquire(1).await?;
        anyhow::Ok((scene, lease))
    })?;
    lease.adjust("tokens", 5);
    drop(lease);
    first.block_on(scene.limiter.flush());
    first.shutdown_background();
    let error = second.block_on(async { scene.acquire(1).await }).expect_err("there is no writer");
    assert!(matches!(error, AcquireError::Unavailable(_)), "{error}");
    Ok(())
}
