//! The registry counts each entity's configuration once, whatever becomes of calls and responses.

use futures::{StreamExt as _, stream, try_join};
use tidegate::{Limit, Limiter, Scope};
use tidegate_tests::client::prelude::*;

use crate::stored::{another, counted, counts, events, table};

fn limit(tokens: u64) -> [Limit; 1] {
    [Limit::per_minute("requests", tokens)]
}

/// Every write's response is lost once, before or after the write.
#[tokio::test]
async fn lost_responses_count_once() -> anyhow::Result<()> {
    let scope = || Scope::entity(ENTITY).on(RESOURCE);
    for fault in [Fault::DroppedAfter, Fault::InternalAfter, Fault::DroppedBefore, Fault::Throttled, Fault::Conflict] {
        for operation in ["TransactWriteItems", "PutItem", "UpdateItem", "DeleteItem"] {
            let scene = ClientScene::new().await?;
            let _bucket = scene.acquire(1).await?;
            let limits = scene.limiter.limits();
            let lose = || {
                let calls = AtomicUsize::new(0);
                scene.http.on_call(move |called, _| {
                    (called == operation && calls.fetch_add(1, Ordering::Relaxed) == 0).then_some(fault)
                });
            };
            for tokens in [20, 30] {
                lose();
                limits.set(scope(), limit(tokens)).await?;
                assert_eq!(counts(&scene).await?, json!({RESOURCE: 1}), "{fault:?} of {operation}");
                let item = scene.item(0).await?.context("the bucket")?;
                assert_eq!(item.get("b_requests_cp"), Some(&number(tokens * 1_000)));
            }
            lose();
            limits.delete(scope()).await?;
            assert_eq!(counts(&scene).await?, json!({}), "{fault:?} of {operation}");
            lose();
            scene.limiter.disable(Scope::entity(ENTITY)).await?;
            assert_eq!(counts(&scene).await?, json!({"_default_": 1}), "{fault:?} of {operation}");
            lose();
            limits.set(Scope::resource("gpt-5"), limit(1)).await?;
            lose();
            limits.delete(Scope::resource("gpt-5")).await?;
            assert!(!table(&scene).await?.contains_key("RESOURCE#gpt-5 #CONFIG"));
            assert_eq!(events(&scene, ENTITY).await?.len(), 4, "{fault:?} of {operation}");
        }
    }
    Ok(())
}

/// A call that the caller gave up half way is made again.
#[tokio::test]
async fn a_repeated_call_completes_the_first() -> anyhow::Result<()> {
    for writes in 1..5 {
        let scene = ClientScene::new().await?;
        let _bucket = scene.acquire(1).await?;
        let set = async || scene.limiter.limits().set(Scope::entity(ENTITY).on(RESOURCE), limit(20)).await;
        let delete = async || scene.limiter.limits().delete(Scope::entity(ENTITY).on(RESOURCE)).await;
        scene.http.crash_after(writes);
        tokio::select! {
            set = set() => drop(set?),
            () = scene.http.crashed() => {}
        }
        scene.http.heal();
        set().await?;
        assert_eq!(counts(&scene).await?, json!({RESOURCE: 1}));
        assert_eq!(scene.item(0).await?.context("the bucket")?.get("b_requests_cp"), Some(&number(20_000)));
        scene.http.crash_after(writes);
        tokio::select! {
            deleted = delete() => drop(deleted?),
            () = scene.http.crashed() => {}
        }
        scene.http.heal();
        delete().await?;
        assert_eq!(counts(&scene).await?, json!({}));
        assert_eq!(scene.item(0).await?.context("the bucket")?.get("b_requests_cp"), Some(&number(600_000)));
    }
    Ok(())
}

/// Two processes change the same scopes at the same time, and lose responses.
#[tokio::test]
async fn two_processes_count_exactly() -> anyhow::Result<()> {
    let scene = ClientScene::with_faults(FaultRates::spread(0.1), 3).await?;
    let other = another(&scene).await?;
    let work = async |limiter: &Limiter, seed: u64| -> anyhow::Result<()> {
        let one = |number: u64| async move {
            let scope = Scope::entity(format!("key-{}", number % 5)).on("gpt-5");
            match (number + seed) % 4 {
                0 => drop(limiter.limits().delete(scope).await?),
                1 => drop(limiter.disable(scope).await?),
                _ => drop(limiter.limits().set(scope, limit(number + 1)).await?),
            }
            anyhow::Ok(())
        };
        let done: Vec<_> = stream::iter((0..60).map(one)).buffer_unordered(8).collect().await;
        done.into_iter().collect()
    };
    try_join!(work(&scene.limiter, 0), work(&other, 2))?;
    assert_eq!(counts(&scene).await?, counted(&scene).await?);
    assert!(scene.http.counts().total() > 10, "{:?}", scene.http.counts());
    Ok(())
}

/// Whatever the order of two changes of the same limits, the last one applies as a whole.
#[tokio::test]
async fn two_sets_at_once_do_not_mix() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let other = another(&scene).await?;
    let scope = || Scope::entity(ENTITY).on(RESOURCE);
    let two = || [Limit::per_minute("tokens", 1), Limit::per_minute("images", 1)];
    for _ in 0..10 {
        try_join!(scene.limiter.limits().set(scope(), limit(1)), other.limits().set(scope(), two()))?;
        let configured = other.limits().get(scope()).await?.context("limits")?;
        let names: Vec<_> = configured.limits.iter().map(Limit::name).collect();
        assert!(names == ["requests"] || names == ["images", "tokens"], "{names:?}");
        scene.limiter.limits().delete(scope()).await?;
    }
    Ok(())
}
