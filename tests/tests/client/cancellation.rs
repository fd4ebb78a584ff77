//! Callers that are cancelled after any number of polls. Their tokens are given back or were never taken.

use std::task::Poll;

use tidegate::AcquireBuilder;
use tidegate_tests::client::prelude::*;

/// More polls than any acquire here needs.
const POLLS: usize = 40;
const PARENT: &str = "team-1";

/// Polls a request so many times and drops it. Returns whether it was granted; its lease keeps the tokens.
async fn cancel_after(polls: usize, request: AcquireBuilder, scene: &ClientScene) -> anyhow::Result<bool> {
    let mut acquire = request.into_future();
    let mut is_granted = false;
    for _ in 0..polls {
        if let Poll::Ready(acquired) = futures::poll!(&mut acquire) {
            is_granted = acquired.map(drop).is_ok();
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(acquire);
    scene.limiter.flush().await;
    Ok(is_granted)
}

/// Cancels requests for ten tokens after each number of polls. Before each, `prepare` changes the bucket. Checks that the
/// consumption is what was granted. Returns how many requests were granted.
async fn check(
    scene: &ClientScene,
    entities: &[&'static str],
    shards: u32,
    prepare: impl AsyncFn(&ClientScene) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let mut granted = 0;
    for polls in 0..POLLS {
        prepare(scene).await?;
        let mut before = Vec::new();
        for entity in entities {
            before.push(scene.totals_of(entity, "tokens", shards).await?.1);
        }
        let is_granted = cancel_after(polls, scene.acquire(10), scene).await?;
        granted += usize::from(is_granted);
        for (entity, before) in entities.iter().zip(before) {
            let consumed = scene.totals_of(entity, "tokens", shards).await?.1 - before;
            assert_eq!(consumed, if is_granted { 10_000 } else { 0 }, "{entity}, after {polls} polls");
        }
    }
    Ok(granted)
}

#[tokio::test]
async fn a_known_bucket() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let granted = check(&scene, &[ENTITY], 1, async |_| Ok(())).await?;
    assert!(granted > 0 && granted < POLLS, "{granted}");
    Ok(())
}

#[tokio::test]
async fn a_bucket_that_is_created() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let granted = check(&scene, &[ENTITY], 1, async |scene| scene.delete(0).await).await?;
    assert!(granted > 0 && granted < POLLS, "{granted}");
    Ok(())
}

#[tokio::test]
async fn a_bucket_that_is_refilled() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let drain = async |scene: &ClientScene| {
        scene.clock.advance(Duration::from_secs(2));
        scene.change(0, |item| drop(item.insert("b_tokens_tk".to_owned(), number(0)))).await
    };
    let granted = check(&scene, &[ENTITY], 1, drain).await?;
    assert!(granted > 0 && granted < POLLS, "{granted}");
    Ok(())
}

#[tokio::test]
async fn a_cascade() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    scene.set_parent(ENTITY, PARENT).await?;
    let _first = scene.acquire(1).await?;
    let granted = check(&scene, &[ENTITY, PARENT], 1, async |_| Ok(())).await?;
    assert!(granted > 0 && granted < POLLS, "{granted}");
    Ok(())
}

/// Throttled writes are repeated, and writes whose response is lost are found.
#[tokio::test]
async fn a_bucket_with_faults() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let calls = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        match (operation, call % 5) {
            ("UpdateItem", 1) => Some(Fault::Throttled),
            ("UpdateItem", 3) => Some(Fault::DroppedAfter),
            _ => None,
        }
    });
    let granted = check(&scene, &[ENTITY], 1, async |_| Ok(())).await?;
    assert!(granted < POLLS, "{granted}");
    Ok(())
}

/// A caller that waits for its turn or for tokens.
#[tokio::test]
async fn a_caller_that_waits() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _all = scene.acquire(60_000).await?;
    for polls in 0..10 {
        let granted = cancel_after(polls, scene.acquire(10).until(in_time()), &scene).await?;
        assert!(!granted, "there are no tokens");
    }
    assert_eq!(scene.totals("tokens", 1).await?, (0, 60_000_000));
    // The line is free.
    scene.clock.advance(Duration::from_secs(1));
    let _next = scene.acquire(10).until(in_time()).await?;
    Ok(())
}
