//! Consumption that cascades from an entity to its parent.

use tidegate_tests::client::{calls, prelude::*};

const PARENT: &str = "team-1";

async fn family() -> anyhow::Result<ClientScene> {
    let scene = ClientScene::new().await?;
    scene.set_parent(ENTITY, PARENT).await?;
    Ok(scene)
}

/// The first acquire learns from the item who the parent is; later ones write to both at the same time.
#[tokio::test]
async fn both_are_charged_at_the_same_time() -> anyhow::Result<()> {
    let scene = family().await?;
    let _first = scene.acquire(100).await?;
    scene.calls();
    let mut lease = scene.acquire(100).await?;
    assert_eq!(scene.calls(), calls([("UpdateItem", 2)]));
    lease.adjust("tokens", 50);
    lease.commit().await?;
    assert_eq!(scene.totals("tokens", 1).await?.1, 250_000);
    assert_eq!(scene.totals_of(PARENT, "tokens", 1).await?.1, 250_000);
    scene.acquire(1_000).await?.refund().await?;
    assert_eq!(scene.totals("tokens", 1).await?.1, 250_000);
    assert_eq!(scene.totals_of(PARENT, "tokens", 1).await?.1, 250_000);
    Ok(())
}

/// What only one of them grants is given back, and a known denial takes nothing from the other one.
#[tokio::test]
async fn a_denial_of_one_is_a_denial() -> anyhow::Result<()> {
    let scene = family().await?;
    let _first = scene.acquire(100).await?;
    let _siblings = scene.limiter.acquire(PARENT, RESOURCE).take("tokens", 59_900).await?;
    let denied = scene.acquire(100).await.expect_err("the parent is empty");
    assert!(denied.to_string().contains("team-1"), "{denied}");
    scene.limiter.flush().await;
    assert_eq!(scene.totals("tokens", 1).await?.1, 100_000);
    scene.calls();
    let denied = scene.acquire(100).await.expect_err("the parent is empty");
    assert!(matches!(&denied, AcquireError::Denied(denied) if denied.decided_by() == DecidedBy::Cache), "{denied}");
    assert_eq!(scene.calls(), calls([]));
    Ok(())
}

/// A parent may have fewer limits than its children.
#[tokio::test]
async fn a_parent_takes_the_limits_that_it_has() -> anyhow::Result<()> {
    let scene = family().await?;
    scene.configure_entity(PARENT, &[("requests", [600, 600, 60])]).await?;
    for _ in 0..3 {
        let mut lease = scene.acquire(100).await?;
        lease.adjust("tokens", 1);
        lease.commit().await?;
    }
    assert_eq!(scene.totals("tokens", 1).await?.1, 303_000);
    assert_eq!(scene.totals_of(PARENT, "requests", 1).await?.1, 3_000);
    assert_eq!(scene.totals_of(PARENT, "tokens", 1).await?, (0, 0));
    Ok(())
}

#[tokio::test]
async fn a_large_request_charges_the_parent() -> anyhow::Result<()> {
    let scene = family().await?;
    let _first = scene.acquire(1).await?;
    scene.spread(4).await?;
    let _large = scene.acquire(40_000).await?;
    assert_eq!(scene.totals("tokens", 4).await?.1, 40_001_000);
    assert_eq!(scene.totals_of(PARENT, "tokens", 1).await?.1, 40_001_000);
    Ok(())
}

/// A bucket that is older than its entity's parent learns of it with a refill.
#[tokio::test]
async fn a_new_parent_reaches_the_bucket() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(60_000).await?;
    scene.set_parent(ENTITY, PARENT).await?;
    scene.clock.advance(Duration::from_secs(61));
    // Another process, which has read the configuration after the change.
    let other = scene.another(&FaultyHttp::undisturbed()).await?;
    let _refilled = other.acquire(ENTITY, RESOURCE).take("tokens", 60_000).await?;
    assert_eq!(scene.attribute(0, "parent_id").await?, Some(text(PARENT)));
    assert_eq!(scene.totals_of(PARENT, "tokens", 1).await?.1, 60_000_000);
    Ok(())
}
