//! Disabled and enabled entities and resources.

use tidegate::Scope;
use tidegate_tests::client::{flag, prelude::*};

use crate::stored::{SHARDS, another, counts, events, plain, spread, table};

/// Whether an acquire is refused because an operator disabled it.
async fn is_disabled(limiter: &Limiter, entity: &str, resource: &str) -> bool {
    match limiter.acquire(entity, resource).take("requests", 1).await {
        Ok(_) => false,
        Err(AcquireError::Disabled { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_disabled_entity_is_refused_on_all_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    spread(&scene).await?;
    let reached = scene.limiter.disable(Scope::entity(ENTITY).on(RESOURCE)).await?;
    assert_eq!(reached.written, SHARDS as usize);
    for shard in 0..SHARDS {
        assert_eq!(scene.item(shard).await?.context("a shard")?.get("disabled"), Some(&flag()));
    }
    let other = another(&scene).await?;
    for limiter in [&scene.limiter, &other] {
        assert!(is_disabled(limiter, ENTITY, RESOURCE).await);
        assert!(!is_disabled(limiter, "key-2", RESOURCE).await);
    }
    scene.limiter.enable(Scope::entity(ENTITY).on(RESOURCE)).await?;
    for shard in 0..SHARDS {
        assert!(!scene.item(shard).await?.context("a shard")?.contains_key("disabled"));
    }
    assert!(!is_disabled(&scene.limiter, ENTITY, RESOURCE).await);
    let stub = plain(&table(&scene).await?[&format!("ENTITY#{ENTITY} #CONFIG#{RESOURCE}")]);
    assert_eq!(stub, json!({"entity_id": ENTITY, "resource": RESOURCE, "disabled": false}));
    assert_eq!(counts(&scene).await?, json!({RESOURCE: 1}));
    let details: Vec<_> = events(&scene, ENTITY).await?.into_iter().map(|event| event["details"].clone()).collect();
    let stamped = |disabled| json!({"disabled": disabled, "buckets_stamped": SHARDS});
    assert!(details.len() == 2 && details.contains(&stamped(true)) && details.contains(&stamped(false)), "{details:?}");
    Ok(())
}

/// The most specific scope decides.
#[tokio::test]
async fn an_entity_is_excepted_from_a_disabled_resource() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    for entity in [ENTITY, "key-2", "key-3"] {
        assert!(!is_disabled(&scene.limiter, entity, RESOURCE).await);
    }
    scene.limiter.enable(Scope::entity("key-2")).await?;
    scene.limiter.disable(Scope::resource(RESOURCE)).await?;
    let refused = async || {
        let mut refused = Vec::new();
        // The last one has no bucket yet.
        for entity in [ENTITY, "key-2", "key-3", "key-4"] {
            refused.push(is_disabled(&scene.limiter, entity, RESOURCE).await);
        }
        refused
    };
    assert_eq!(refused().await, [true, false, true, true]);
    scene.limiter.clear_disabled(Scope::entity("key-2")).await?;
    assert_eq!(refused().await, [true, true, true, true]);
    scene.limiter.enable(Scope::entity("key-3").on(RESOURCE)).await?;
    assert_eq!(refused().await, [true, true, false, true]);
    // The limits of the resource stay, and go with the switch.
    scene.limiter.clear_disabled(Scope::resource(RESOURCE)).await?;
    assert_eq!(refused().await, [false, false, false, false]);
    scene.limiter.disable(Scope::resource(RESOURCE)).await?;
    scene.limiter.limits().set(Scope::system(), [tidegate::Limit::per_minute("requests", 60)]).await?;
    scene.limiter.limits().delete(Scope::resource(RESOURCE)).await?;
    assert_eq!(refused().await, [false, false, false, false]);
    Ok(())
}

/// Whether a scope is disabled survives a change of its limits.
#[tokio::test]
async fn new_limits_enable_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let scope = || Scope::entity(ENTITY).on(RESOURCE);
    scene.limiter.disable(scope()).await?;
    scene.limiter.limits().set(scope(), [tidegate::Limit::per_minute("requests", 60)]).await?;
    assert!(is_disabled(&scene.limiter, ENTITY, RESOURCE).await);
    assert_eq!(scene.limiter.limits().get(scope()).await?.and_then(|configured| configured.is_disabled), Some(true));
    scene.limiter.limits().delete(scope()).await?;
    assert!(!is_disabled(&scene.limiter, ENTITY, RESOURCE).await);
    Ok(())
}

#[tokio::test]
async fn the_namespace_cannot_be_disabled() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let error = scene.limiter.disable(Scope::system()).await.expect_err("no such switch");
    assert!(error.to_string().contains("name an entity or a resource"), "{error}");
    assert!(scene.calls().is_empty());
    Ok(())
}

/// The buckets of a resource fill more than one page of the index.
#[tokio::test]
async fn all_pages_of_buckets_are_found() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let _first = scene.acquire(1).await?;
    let first = scene.item(0).await?.context("the bucket")?;
    for entity in 2..=40 {
        let mut item = first.clone();
        let pk = format!("{}/BUCKET#key-{entity}#{RESOURCE}#0", scene.namespace);
        for (name, value) in [
            ("PK", pk),
            ("entity_id", format!("key-{entity}")),
            ("GSI2SK", format!("BUCKET#key-{entity}#0")),
            ("GSI3PK", format!("{}/ENTITY#key-{entity}", scene.namespace)),
            ("padding", "x".repeat(60_000)),
        ] {
            item.insert(name.to_owned(), text(value));
        }
        scene.services.dynamodb.put_item().table_name(&scene.services.table).set_item(Some(item)).send().await?;
    }
    scene.calls();
    let reached = scene.limiter.disable(Scope::resource(RESOURCE)).await?;
    assert_eq!(reached.written, 40);
    assert!(scene.calls()["Query"] > 4, "two passes of several pages");
    assert!(is_disabled(&scene.limiter, "key-40", RESOURCE).await);
    Ok(())
}
