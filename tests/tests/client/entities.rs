//! Entities, their parents and children.

use axum::{Router, http::HeaderMap, routing::post};
use tidegate::{NewEntity, Scope};
use tidegate_aws::client;
use tidegate_sandbox::loopback::LoopbackServer;
use tidegate_tests::client::prelude::*;
use tokio::sync::mpsc;

use crate::stored::{counts, events, plain, spread, table};

#[tokio::test]
async fn an_entity_is_stored_as_by_other_clients() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let entities = scene.limiter.entities();
    let new = NewEntity::new("key-1").name("Production").parent("team-1").cascade(true).metadata("owner", "ops");
    let created = entities.create(new).await?;
    entities.create(NewEntity::new("team-1")).await?;
    let table = table(&scene).await?;
    let mut item = plain(&table["ENTITY#key-1 #META"]);
    let incarnation = item.as_object_mut().and_then(|item| item.remove("pinc")).context("an incarnation")?;
    assert!(incarnation.as_str().is_some_and(|text| text.len() == 16), "{incarnation}");
    assert_eq!(
        item,
        json!({"entity_id": "key-1", "name": "Production", "parent_id": "team-1", "cascade": true, "pgen": START,
            "metadata": {"owner": "ops"}, "created_at": "2026-01-01T00:00:00Z"})
    );
    let keys = [
        ("GSI1PK", "{ns}/PARENT#team-1"),
        ("GSI1SK", "CHILD#key-1"),
        ("GSI4PK", "{ns}"),
        ("GSI4SK", "{ns}/ENTITY#key-1"),
    ];
    for (name, value) in keys {
        let value = value.replace("{ns}", scene.namespace.as_str());
        assert_eq!(table["ENTITY#key-1 #META"].get(name), Some(&text(value)), "{name}");
    }
    let parent = plain(&table["ENTITY#team-1 #META"]);
    assert_eq!(
        (&parent["name"], &parent["parent_id"], &parent["cascade"]),
        (&json!("team-1"), &Value::Null, &json!(false))
    );
    assert!(!table["ENTITY#team-1 #META"].contains_key("GSI1PK"));
    assert_eq!(entities.get("key-1").await?, Some(created));
    assert_eq!(entities.get("key-2").await?, None);
    let [event] = &events(&scene, "key-1").await?[..] else { panic!("one event") };
    assert_eq!((&event["action"], &event["resource"]), (&json!("entity_created"), &Value::Null));
    let details = json!({"name": "Production", "parent_id": "team-1", "cascade": true, "metadata": {"owner": "ops"}});
    assert_eq!(event["details"], details);
    Ok(())
}

#[tokio::test]
async fn an_entity_is_created_once() -> anyhow::Result<()> {
    for fault in [None, Some(Fault::DroppedAfter), Some(Fault::InternalAfter), Some(Fault::Conflict)] {
        let scene = ClientScene::new().await?;
        let calls = AtomicUsize::new(0);
        scene.http.on_call(move |operation, _| {
            (operation == "PutItem" && calls.fetch_add(1, Ordering::Relaxed) == 0).then_some(fault).flatten()
        });
        let entities = scene.limiter.entities();
        entities.create(NewEntity::new("key-1")).await?;
        let error = entities.create(NewEntity::new("key-1").name("other")).await.expect_err("it exists");
        assert_eq!(error.to_string(), r#"entity "key-1" exists already"#);
        assert_eq!(entities.get("key-1").await?.context("the entity")?.name, "key-1");
        assert_eq!(events(&scene, "key-1").await?.len(), 1, "{fault:?}");
    }
    Ok(())
}

/// What is created now takes effect in the next acquire.
#[tokio::test]
async fn a_created_child_cascades() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    scene.limiter.entities().create(NewEntity::new(ENTITY).parent("team-1").cascade(true)).await?;
    let _lease = scene.acquire(7).await?;
    let table = table(&scene).await?;
    for entity in [ENTITY, "team-1"] {
        let bucket = plain(&table[&format!("BUCKET#{entity}#{RESOURCE}#0 #STATE")]);
        assert_eq!(bucket["b_tokens_tc"], json!(7_000), "{entity}");
    }
    Ok(())
}

#[tokio::test]
async fn bad_input_writes_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let check = async |entity: NewEntity, expect: &[&str]| {
        let message = scene.limiter.entities().create(entity).await.expect_err("bad input").to_string();
        assert!(expect.iter().all(|part| message.contains(part)), "{message}");
    };
    check(NewEntity::new("a#b"), &["entity", r#""a#b""#]).await;
    check(NewEntity::new(""), &["entity", r#""""#]).await;
    check(NewEntity::new("key-1").parent("a b"), &["entity", r#""a b""#]).await;
    check(NewEntity::new("key-1").parent("key-1"), &["key-1", "own parent"]).await;
    assert!(scene.calls().is_empty());
    Ok(())
}

/// The children fill more than one page of the index.
#[tokio::test]
async fn all_children_are_read() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let entities = scene.limiter.entities();
    for number in 0..30 {
        let child = NewEntity::new(format!("key-{number:02}")).parent("team-1").metadata("notes", "x".repeat(60_000));
        entities.create(child).await?;
    }
    entities.create(NewEntity::new("other").parent("team-2")).await?;
    scene.calls();
    let children = entities.children("team-1").await?;
    assert_eq!(children.len(), 30);
    assert_eq!((children[0].id.as_str(), children[29].id.as_str()), ("key-00", "key-29"));
    assert!(scene.calls()["Query"] > 1);
    assert_eq!(entities.children("key-00").await?, []);
    Ok(())
}

/// A deletion finds all pages, deletes what DynamoDB left unprocessed, keeps audit events, and can be repeated.
#[tokio::test]
async fn a_deleted_entity_leaves_audit_events_only() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    scene.limiter.entities().create(NewEntity::new(ENTITY)).await?;
    spread(&scene).await?;
    scene.limiter.limits().set(Scope::entity(ENTITY), [tidegate::Limit::per_minute("requests", 60)]).await?;
    scene.limiter.disable(Scope::entity(ENTITY).on("gpt-5")).await?;
    scene.limiter.disable(Scope::entity("key-2").on("gpt-5")).await?;
    let put = async |pk: String, sk: String| {
        let item = [("PK", text(pk)), ("SK", text(sk)), ("padding", text("x".repeat(60_000)))];
        let item = item.map(|(name, value)| (name.to_owned(), value)).into();
        scene.services.dynamodb.put_item().table_name(&scene.services.table).set_item(Some(item)).send().await
    };
    for hour in 0..40 {
        let pk = format!("{}/ENTITY#{ENTITY}", scene.namespace);
        put(pk, format!("#USAGE#{RESOURCE}#2026-01-{:02}T{:02}:00:00Z", hour / 24 + 1, hour % 24)).await?;
    }
    put(format!("{}/BUCKET#{ENTITY}#{RESOURCE}#0", scene.namespace), "#OP#1".to_owned()).await?;
    let own = async || anyhow::Ok(table(&scene).await?.into_keys().filter(|key| key.contains(&format!("#{ENTITY}"))));

    // The first attempt ends half way.
    let (calls, (hang, mut hangs)) = (AtomicUsize::new(0), mpsc::unbounded_channel());
    scene.http.on_call(move |operation, _| {
        let is_third = operation == "BatchWriteItem" && calls.fetch_add(1, Ordering::Relaxed) == 2;
        // Fails when the test has ended.
        let _ = is_third.then(|| hang.send(()));
        is_third.then_some(Fault::Hang)
    });
    tokio::select! {
        deleted = scene.limiter.entities().delete(ENTITY) => panic!("{deleted:?} before the third call"),
        _ = hangs.recv() => {}
    }
    assert!(own().await?.any(|key| key.ends_with("#META")), "what leads to other items is deleted last");
    scene.http.on_call(|_, _| None);
    let deleted = scene.limiter.entities().delete(ENTITY).await?;
    assert!(deleted > 1, "{deleted}");
    let left: Vec<_> = own().await?.collect();
    assert!(left.iter().all(|key| key.starts_with("AUDIT#")), "{left:?}");
    assert_eq!(counts(&scene).await?, json!({"gpt-5": 1}));
    assert_eq!(scene.limiter.entities().delete(ENTITY).await?, 0);
    let events = events(&scene, ENTITY).await?;
    let deletions: Vec<_> = events.iter().filter(|event| event["action"] == "entity_deleted").collect();
    assert_eq!(deletions.len(), 1, "{events:?}");
    assert_eq!(deletions[0]["details"], json!({"records_deleted": deleted, "complete": true}));
    // The entity can take tokens again.
    let _lease = scene.acquire(1).await?;
    Ok(())
}

/// A table with five items of an entity, which leaves some deletions of each call unprocessed: all but two.
async fn busy_table(deletions: mpsc::UnboundedSender<usize>) -> anyhow::Result<LoopbackServer> {
    let answer = async move |headers: HeaderMap, body: String| {
        let operation = headers.get("x-amz-target").and_then(|target| target.to_str().ok()?.rsplit_once('.'));
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        let item = |sk: String| json!({"PK": {"S": "ns/ENTITY#key-1"}, "SK": {"S": sk}});
        let answer = match operation.map(|(_, operation)| operation) {
            Some("GetItem") => json!({"Item": {"namespace_id": {"S": "ns"}}}),
            Some("Query") if body.get("IndexName").is_none() => {
                let items: Value = (0..5).map(|hour| item(format!("#USAGE#gpt-4#2026-01-01T0{hour}:00:00Z"))).collect();
                json!({"Items": items, "Count": 5})
            }
            Some("BatchWriteItem") => {
                let mut writes = body["RequestItems"]["limits"].as_array().cloned().unwrap_or_default();
                // Fails when the test has ended.
                let _ = deletions.send(writes.len());
                writes.drain(..writes.len().min(2));
                json!({"UnprocessedItems": if writes.is_empty() { json!({}) } else { json!({"limits": writes}) }})
            }
            _ => json!({}),
        };
        answer.to_string()
    };
    LoopbackServer::start("a busy table", Router::new().route("/", post(answer))).await
}

#[tokio::test]
async fn unprocessed_deletions_are_made_again() -> anyhow::Result<()> {
    let (deletions, mut made) = mpsc::unbounded_channel();
    let server = busy_table(deletions).await?;
    let sdk = sdk_config(&format!("http://{}", server.address()), FaultyHttp::undisturbed());
    let limiter = Limiter::builder(client::dynamodb(&sdk), "limits").build().await?;
    assert_eq!(limiter.entities().delete(ENTITY).await?, 5);
    made.close();
    let mut sizes = Vec::new();
    while let Some(size) = made.recv().await {
        sizes.push(size);
    }
    assert_eq!(sizes, [5, 3, 1]);
    Ok(())
}
