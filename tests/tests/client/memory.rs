//! The limiter whose buckets are in the process, as tests of applications use it.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tidegate::{AcquireBuilder, AdminError, BuildError, CommitError, Limit, NewEntity, Scope, ScopeError};
use tidegate_tests::client::prelude::*;
use tokio::time::{Instant, timeout};

struct MemoryScene {
    limiter: Limiter,
    clock: ManualClock,
}

impl MemoryScene {
    /// Ten requests and a thousand tokens a second, and as many at once.
    async fn new() -> anyhow::Result<Self> {
        let clock = ManualClock::new(START);
        let limits = [Limit::per_second("requests", 10), Limit::per_second("tokens", 1_000)];
        let limiter = Limiter::in_memory(limits).clock(clock.clone()).build().await?;
        Ok(Self { limiter, clock })
    }

    fn acquire(&self, tokens: u64) -> AcquireBuilder {
        self.limiter.acquire(ENTITY, RESOURCE).take("tokens", tokens)
    }

    /// What the bucket holds of the tokens.
    async fn tokens(&self) -> anyhow::Result<i64> {
        let available = self.limiter.acquire(ENTITY, RESOURCE).check().await?;
        let tokens = available.limits().iter().find(|limit| limit.limit == "tokens");
        Ok(tokens.context("the limit is configured")?.available)
    }
}

#[tokio::test]
async fn tokens_run_out_and_refill() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    drop(scene.acquire(900).await?);
    let Err(AcquireError::Denied(denied)) = scene.acquire(200).await else { anyhow::bail!("100 tokens are left") };
    assert_eq!(denied.retry_after(), Duration::from_millis(100));
    assert_eq!(denied.limits().len(), 1);
    assert_eq!((denied.limits()[0].requested, denied.limits()[0].available), (200, 100));
    scene.clock.advance(denied.retry_after());
    drop(scene.acquire(200).await?);
    assert_eq!(scene.tokens().await?, 0);
    // A bucket holds no more than its capacity.
    scene.clock.advance(Duration::from_mins(1));
    assert_eq!(scene.tokens().await?, 1_000);
    assert!(matches!(scene.acquire(1_001).await, Err(AcquireError::Never(_))));
    Ok(())
}

#[tokio::test]
async fn entities_and_resources_have_buckets_of_their_own() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    drop(scene.acquire(1_000).await?);
    assert!(scene.limiter.acquire("key-2", RESOURCE).take("tokens", 1_000).await.is_ok());
    assert!(scene.limiter.acquire(ENTITY, "gpt-5").take("tokens", 1_000).await.is_ok());
    assert!(scene.acquire(1).await.is_err());
    // Clones share them.
    assert!(scene.limiter.clone().acquire(ENTITY, RESOURCE).take("tokens", 1).await.is_err());
    Ok(())
}

#[tokio::test]
async fn leases_are_adjusted_and_refunded() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    let mut lease = scene.acquire(500).await?;
    lease.adjust("tokens", -80);
    lease.commit().await?;
    assert_eq!(scene.tokens().await?, 580);
    let mut lease = scene.acquire(500).await?;
    lease.adjust("tokens", 200);
    lease.commit().await?;
    assert_eq!(scene.tokens().await?, -120);
    scene.clock.advance(Duration::from_secs(1));
    scene.acquire(500).await?.refund().await?;
    assert_eq!(scene.tokens().await?, 880);
    let mut lease = scene.acquire(80).await?;
    lease.adjust("tokens", 100);
    drop(lease);
    scene.limiter.flush().await;
    assert_eq!(scene.tokens().await?, 700);
    let mut lease = scene.acquire(1).await?;
    lease.adjust("words", 1);
    let error = lease.commit().await.expect_err("the limit is not configured");
    assert!(matches!(error, CommitError::UnknownLimit { .. }) && error.to_string().contains("\"words\""), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_caller_waits_until_its_deadline() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    drop(scene.acquire(1_000).await?);
    let request = scene.acquire(500).until(Instant::now() + Duration::from_secs(10));
    let mut waiting = tokio::spawn(request.into_future());
    scene.clock.advance(Duration::from_millis(400));
    assert!(timeout(Duration::from_millis(20), &mut waiting).await.is_err(), "400 tokens have come back");
    scene.clock.advance(Duration::from_millis(100));
    drop(waiting.await??);
    assert_eq!(scene.tokens().await?, 0);
    // It is denied at once if the tokens come back after the deadline.
    let late = scene.acquire(1_000).until(Instant::now() + Duration::from_millis(500)).await;
    assert!(matches!(late, Err(AcquireError::Denied(_))), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_scope_commits_or_refunds() -> anyhow::Result<()> {
    let scene = Arc::new(MemoryScene::new().await?);
    // It can run in a task of its own.
    let shared = Arc::clone(&scene);
    let committed = tokio::spawn(async move {
        let work = async |lease: &mut tidegate::Lease| {
            lease.adjust("tokens", -100);
            Ok::<_, std::io::Error>("done")
        };
        shared.limiter.scope(shared.acquire(500), work).await
    });
    assert_eq!(committed.await??, "done");
    assert_eq!(scene.tokens().await?, 600);
    let failed = scene.limiter.scope(scene.acquire(500), async |_| Err::<(), _>(std::io::Error::other("failed"))).await;
    assert!(matches!(failed, Err(ScopeError::Work(_))));
    assert_eq!(scene.tokens().await?, 600);
    let denied = scene.limiter.scope(scene.acquire(601), async |_| Ok::<_, std::io::Error>(())).await;
    assert!(matches!(denied, Err(ScopeError::Acquire(AcquireError::Denied(_)))));
    Ok(())
}

#[tokio::test]
async fn a_check_takes_nothing() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    assert_eq!(scene.acquire(1_000).check().await?.retry_after(), Some(Duration::ZERO));
    assert_eq!(scene.acquire(1_001).check().await?.retry_after(), None);
    drop(scene.acquire(1_000).await?);
    assert_eq!(scene.acquire(500).check().await?.retry_after(), Some(Duration::from_millis(500)));
    assert_eq!(scene.tokens().await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_acquires_get_exactly_the_capacity() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    let acquires = (0..100).map(|_| tokio::spawn(scene.acquire(30).into_future()));
    let mut granted = Vec::new();
    for acquired in join_all(acquires).await {
        match acquired? {
            Ok(lease) => granted.push(lease),
            Err(error) => assert!(matches!(error, AcquireError::Denied(_)), "{error}"),
        }
    }
    assert_eq!(granted.len(), 33);
    assert_eq!(scene.tokens().await?, 10);
    Ok(())
}

#[tokio::test]
async fn invalid_limits_are_quoted() {
    let check = async |limits: Vec<Limit>, part: &str| {
        let error = Limiter::in_memory(limits).build().await.expect_err("the limit is wrong");
        assert!(matches!(error, BuildError::InvalidLimit(_)), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    };
    check(vec![Limit::per_second("requests", 0)], "limit \"requests\": the refill is 0 tokens").await;
    check(vec![Limit::per_second("a:b", 1)], "\"a:b\"").await;
    check(vec![Limit::per("requests", 1, Duration::from_millis(1_500))], "1.5s").await;
    check(vec![Limit::per_second("requests", 1), Limit::per_minute("requests", 2)], "\"requests\" is given twice")
        .await;
    check(vec![], "no limits are given").await;
}

#[tokio::test]
async fn an_unknown_limit_is_named() -> anyhow::Result<()> {
    let scene = MemoryScene::new().await?;
    let error = scene.limiter.acquire(ENTITY, RESOURCE).take("words", 1).await.expect_err("no such limit");
    assert!(matches!(error, AcquireError::UnknownLimit { .. }) && error.to_string().contains("\"words\""), "{error}");
    Ok(())
}

/// There is no table. The calls fail at once, and not after many attempts.
#[tokio::test]
async fn administration_is_rejected() -> anyhow::Result<()> {
    let limiter = MemoryScene::new().await?.limiter;
    let scope = || Scope::resource(RESOURCE);
    let calls = async {
        [
            limiter.limits().list().await.err(),
            limiter.limits().get(scope()).await.err(),
            limiter.limits().set(scope(), [Limit::per_second("requests", 1)]).await.err(),
            limiter.limits().delete(scope()).await.err(),
            limiter.disable(scope()).await.err(),
            limiter.entities().create(NewEntity::new("key-1")).await.err(),
            limiter.entities().get("key-1").await.err(),
            limiter.entities().children("key-1").await.err(),
            limiter.entities().delete("key-1").await.err(),
        ]
    };
    for error in timeout(Duration::from_secs(1), calls).await.context("the calls take longer than a second")? {
        assert!(matches!(error, Some(AdminError::Rejected(_))), "{error:?}");
    }
    Ok(())
}
