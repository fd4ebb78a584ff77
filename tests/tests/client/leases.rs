//! Leases: adjustments, refunds, and what becomes of callers that go away.

use std::time::Duration;

use tidegate_tests::client::{calls, prelude::*};

#[tokio::test]
async fn a_commit_writes_the_adjustments() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let mut lease = scene.acquire(500).await?;
    scene.calls();
    lease.adjust("tokens", 420 - 500);
    lease.adjust("requests", 2);
    lease.commit().await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));
    assert_eq!(scene.totals("tokens", 1).await?, (59_580_000, 420_000));
    assert_eq!(scene.totals("requests", 1).await?, (597_000, 3_000));
    // Without adjustments there is nothing to write.
    scene.acquire(1).await?.commit().await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 1)]));
    Ok(())
}

/// An adjustment may take more than there is.
#[tokio::test]
async fn an_adjustment_may_leave_a_debt() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let mut lease = scene.acquire(60_000).await?;
    lease.adjust("tokens", 1_000);
    lease.commit().await?;
    assert_eq!(scene.totals("tokens", 1).await?, (-1_000_000, 61_000_000));
    let denied = scene.acquire(1).await.expect_err("there is a debt").to_string();
    assert!(denied.contains("1.001s") && denied.contains("-1000 of 1"), "{denied}");
    Ok(())
}

#[tokio::test]
async fn a_refund_gives_everything_back() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let mut lease = scene.acquire(500).await?;
    lease.adjust("tokens", 100);
    lease.refund().await?;
    assert_eq!(scene.totals("tokens", 1).await?, (60_000_000, 0));
    assert_eq!(scene.totals("requests", 1).await?, (600_000, 0));
    Ok(())
}

/// A refund never fills a bucket beyond its capacity, but always lowers what was consumed.
#[tokio::test]
async fn a_refund_does_not_overflow() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let lease = scene.acquire(500).await?;
    scene.clock.advance(Duration::from_mins(10));
    let _refilled = scene.acquire(60_000).await?;
    scene.clock.advance(Duration::from_millis(59_900));
    let _again = scene.acquire(1).await?;
    scene.change(0, |item| drop(item.insert("b_tokens_tk".to_owned(), number(59_800_000)))).await?;
    lease.refund().await?;
    let (tokens, consumed) = scene.totals("tokens", 1).await?;
    assert_eq!((tokens, consumed), (60_000_000, 60_001_000));
    Ok(())
}

/// A dropped lease keeps its tokens, and its adjustments are written all the same.
#[tokio::test]
async fn a_dropped_lease_is_adjusted() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let mut lease = scene.acquire(500).await?;
    lease.adjust("tokens", -400);
    drop(lease);
    drop(scene.acquire(7).await?);
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 1).await?, (59_893_000, 107_000));
    Ok(())
}

/// Wherever a caller goes away, its tokens are given back or were never taken.
#[tokio::test]
async fn a_cancelled_acquire_leaves_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    // The write is under way; two more requests wait for the next one.
    scene.http.hold("UpdateItem");
    {
        let mut writing = Box::pin(async { scene.acquire(100).await });
        let mut next = Box::pin(async { scene.acquire(200).await });
        let held = async {
            scene.http.held().await;
        };
        tokio::select! {
            biased;
            _ = &mut writing => panic!("the write is held"),
            _ = &mut next => panic!("the write is held"),
            () = held => {}
        }
    }
    scene.http.release();
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 1).await?, (59_999_000, 1_000));
    Ok(())
}

/// Tokens of a lease from several shards go back to the shards that they came from.
#[tokio::test]
async fn a_large_lease_is_adjusted_on_all_its_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(4).await?;
    let mut lease = scene.acquire(59_000).await?;
    lease.adjust("tokens", -50_000);
    lease.commit().await?;
    assert_eq!(scene.totals("tokens", 4).await?, (50_999_000, 9_001_000));
    Ok(())
}

/// An adjustment of what is no limit is an error; the others are written.
#[tokio::test]
async fn an_unknown_limit_is_reported() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let check = async |limit: &str, expect: &str| -> anyhow::Result<()> {
        let mut lease = scene.acquire(500).await?;
        lease.adjust("tokens", -500);
        lease.adjust(limit, 1);
        let error = lease.commit().await.expect_err("there is no such limit").to_string();
        assert!(error.contains(limit) && error.contains(expect), "{error}");
        assert_eq!(scene.totals("tokens", 1).await?, (60_000_000, 0));
        Ok(())
    };
    check("misspelt", "not configured").await?;
    check("a:b", "invalid limit").await
}

/// The largest adjustments are cut off; none makes the bucket unreadable.
#[tokio::test]
async fn enormous_adjustments_are_harmless() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    for tokens in [i64::MIN, i64::MAX] {
        let mut lease = scene.acquire(1).await?;
        lease.adjust("tokens", tokens);
        lease.commit().await?;
    }
    let denied = scene.acquire(1).await.expect_err("there is a debt");
    assert!(matches!(denied, AcquireError::Denied(_)), "{denied}");
    Ok(())
}

#[tokio::test]
async fn a_scope_commits_or_refunds() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let done = scene
        .limiter
        .scope(scene.acquire(500), async |lease| {
            lease.adjust("tokens", -400);
            Ok::<_, std::io::Error>(7)
        })
        .await?;
    assert_eq!(done, 7);
    assert_eq!(scene.totals("tokens", 1).await?, (59_900_000, 100_000));
    let failed = scene.limiter.scope(scene.acquire(500), async |lease| {
        lease.adjust("tokens", 1);
        Err::<(), _>(std::io::Error::other("the model is down"))
    });
    assert_eq!(failed.await.expect_err("the work failed").to_string(), "the model is down");
    assert_eq!(scene.totals("tokens", 1).await?, (59_900_000, 100_000));
    Ok(())
}

/// A look takes nothing, and tells what a request would get.
#[tokio::test]
async fn a_check_takes_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let check = async |tokens| scene.acquire(tokens).check().await;
    let before = check(500).await?;
    assert_eq!(before.retry_after(), Some(Duration::ZERO));
    let _taken = scene.acquire(59_900).await?;
    let after = check(500).await?;
    let tokens = after.limits().iter().find(|limit| limit.limit == "tokens").context("the limit")?;
    assert_eq!((tokens.available, tokens.capacity, tokens.requested), (100, 60_000, 500));
    assert_eq!(after.retry_after(), Some(Duration::from_millis(400)));
    assert_eq!(check(60_001).await?.retry_after(), None);
    assert_eq!(scene.totals("tokens", 1).await?, (100_000, 59_900_000));
    Ok(())
}
