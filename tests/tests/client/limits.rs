//! Limits, as operators set them: what is stored, and what reaches the buckets.

use tidegate::{AdminError, Limit, NewEntity, Scope, ScopeLimits, Window};
use tidegate_tests::client::prelude::*;

use crate::stored::{SHARDS, counts, events, plain, spread, table};

fn own() -> Scope {
    Scope::entity(ENTITY).on(RESOURCE)
}

fn requests(tokens: u64) -> Limit {
    Limit::per_minute("requests", tokens)
}

/// The limits of a scope as text.
fn texts(configured: &ScopeLimits) -> Vec<String> {
    configured.limits.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn limits_are_stored_as_by_other_clients() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    limits.set(Scope::system(), [Limit::per_hour("requests", 10)]).await?;
    limits.set(Scope::resource("gpt-4"), [requests(20).burst(30)]).await?;
    limits.set(Scope::entity("key-1"), [requests(40)]).await?;
    limits.set(own(), [requests(50), Limit::per_day("tokens.in", 60)]).await?;
    let table = table(&scene).await?;
    let check = |key: &str, indexes: &[(&str, &str)], expect: Value| {
        let item = &table[key];
        assert_eq!(plain(item), expect, "{key}");
        let keys: Vec<_> = item.iter().filter(|(name, _)| name.starts_with("GSI")).collect();
        assert_eq!(keys.len(), indexes.len(), "{keys:?}");
        for (name, value) in indexes {
            let value = value.replace("{ns}", scene.namespace.as_str());
            assert_eq!(item.get(*name), Some(&text(value)), "{name} of {key}");
        }
    };
    let minute = |capacity: i64, refill: i64| json!({"config_version": 1, "l_requests_cp": capacity, "l_requests_ra": refill, "l_requests_rp": 60});
    let with = |mut item: Value, more: Value| {
        item.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        item
    };
    let system = json!({"config_version": 1, "l_requests_cp": 10, "l_requests_ra": 10, "l_requests_rp": 3600});
    check("SYSTEM# #CONFIG", &[("GSI4PK", "{ns}"), ("GSI4SK", "{ns}/SYSTEM#")], system);
    let resource = with(minute(30, 20), json!({"resource": "gpt-4"}));
    check("RESOURCE#gpt-4 #CONFIG", &[("GSI4PK", "{ns}"), ("GSI4SK", "{ns}/RESOURCE#gpt-4")], resource);
    let entity = with(minute(40, 40), json!({"entity_id": "key-1", "resource": "_default_"}));
    let indexes = |gsi3: &'static str| {
        [("GSI4PK", "{ns}"), ("GSI4SK", "{ns}/ENTITY#key-1"), ("GSI3PK", gsi3), ("GSI3SK", "key-1")]
    };
    check("ENTITY#key-1 #CONFIG#_default_", &indexes("{ns}/ENTITY_CONFIG#_default_"), entity);
    let own = json!({"entity_id": "key-1", "resource": "gpt-4", "l_tokens.in_cp": 60, "l_tokens.in_ra": 60, "l_tokens.in_rp": 86400});
    check("ENTITY#key-1 #CONFIG#gpt-4", &indexes("{ns}/ENTITY_CONFIG#gpt-4"), with(minute(50, 50), own));
    let registry = [("GSI4PK", "{ns}"), ("GSI4SK", "{ns}/SYSTEM#")];
    check("SYSTEM# #RESOURCES", &registry, json!({"resources": ["gpt-4"]}));
    check("SYSTEM# #ENTITY_CONFIG_RESOURCES", &registry, json!({"_default_": 1, "gpt-4": 1}));
    Ok(())
}

#[tokio::test]
async fn changes_leave_audit_events() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    limits.set(own(), [requests(50)]).await?;
    limits.set(Scope::system(), [requests(10)]).await?;
    scene.clock.advance(Duration::from_secs(1));
    limits.delete(own()).await?;
    limits.delete(Scope::system()).await?;
    limits.delete(Scope::resource(RESOURCE)).await?;
    limits.delete(Scope::resource(RESOURCE)).await?;
    let shown = |event: &Value| json!([event["action"], event["resource"], event["timestamp"], event["details"]]);
    let shown = async |subject| anyhow::Ok(events(&scene, subject).await?.iter().map(shown).collect::<Value>());
    let limit =
        |tokens| json!({"name": "requests", "capacity": tokens, "refill_amount": tokens, "refill_period_seconds": 60});
    let (set, deleted) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    assert_eq!(
        shown(ENTITY).await?,
        json!([
            ["limits_set", RESOURCE, set, {"limits": [limit(50)]}],
            ["limits_deleted", RESOURCE, deleted, {}],
        ])
    );
    assert_eq!(
        shown("$SYSTEM").await?,
        json!([
            ["limits_set", null, set, {"limits": [limit(10)], "on_unavailable": null}],
            ["limits_deleted", null, deleted, {"limits": ["requests"], "on_unavailable": null}],
        ])
    );
    // The second call found nothing to delete.
    assert_eq!(shown("$RESOURCE:gpt-4").await?, json!([["limits_deleted", RESOURCE, deleted, {}]]));
    let read = scene.limiter.audit_events(own()).await?;
    let actions: Vec<_> = read.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["limits_deleted", "limits_set"], "the latest first");
    let event = &events(&scene, ENTITY).await?[0];
    assert_eq!((&event["principal"], &event["ttl"]), (&Value::Null, &json!(START / 1_000 + 90 * 86_400)));
    Ok(())
}

#[tokio::test]
async fn events_name_the_principal() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let build = async |principal: &str| {
        let client = scene.services.client(FaultyHttp::undisturbed());
        Limiter::builder(client, &scene.services.table).principal(principal).build().await
    };
    let error = build("maria b").await.expect_err("no such name").to_string();
    assert!(error.contains("principal") && error.contains(r#""maria b""#), "{error}");
    for principal in ["maria@example.com", "arn:aws:iam::123456789012:user/Maria Brown"] {
        let limiter = build(principal).await?;
        let scope = Scope::resource(&principal[..3]);
        limiter.limits().set(scope.clone(), [requests(1)]).await?;
        let [event] = &limiter.audit_events(scope).await?[..] else { panic!("one event") };
        assert_eq!(event.principal.as_deref(), Some(principal));
    }
    Ok(())
}

/// A replacement keeps attributes that other clients have stored beside the limits, and unknown ones.
#[tokio::test]
async fn a_replacement_keeps_everything_but_limits() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    limits.set(Scope::system(), [requests(10)]).await?;
    let attributes = [("audit_retention_days", "7"), ("l_old_cp", "1"), ("w_old_rsa", "1"), ("future", "1")];
    let mut update = scene.services.dynamodb.update_item().table_name(&scene.services.table);
    update = update.key("PK", text(format!("{}/SYSTEM#", scene.namespace))).key("SK", text("#CONFIG"));
    for (at, (name, value)) in attributes.iter().enumerate() {
        let number = aws_sdk_dynamodb::types::AttributeValue::N((*value).to_owned());
        update = update.expression_attribute_names(format!("#{at}"), *name);
        update = update.expression_attribute_values(format!(":{at}"), number);
    }
    update.update_expression("SET #0 = :0, #1 = :1, #2 = :2, #3 = :3").send().await?;

    limits.set(Scope::system(), [Limit::per_minute("tokens", 5)]).await?;
    let kept = json!({"config_version": 1, "audit_retention_days": 7, "future": 1});
    let mut expect = kept.clone();
    for (name, value) in [("l_tokens_cp", 5), ("l_tokens_ra", 5), ("l_tokens_rp", 60)] {
        expect[name] = json!(value);
    }
    assert_eq!(plain(&table(&scene).await?["SYSTEM# #CONFIG"]), expect);
    let expiry = events(&scene, "$SYSTEM").await?.iter().map(|event| event["ttl"].clone()).max_by_key(Value::as_i64);
    assert_eq!(expiry, Some(json!(START / 1_000 + 90 * 86_400)), "the first event came before the retention");
    assert!(events(&scene, "$SYSTEM").await?.iter().any(|event| event["ttl"] == json!(START / 1_000 + 7 * 86_400)));

    limits.delete(Scope::system()).await?;
    assert_eq!(plain(&table(&scene).await?["SYSTEM# #CONFIG"]), kept);
    assert!(limits.get(Scope::system()).await?.is_some_and(|configured| configured.limits.is_empty()));
    Ok(())
}

/// A change of an entity's limits reaches all shards, and touches neither tokens nor the time of the refill.
#[tokio::test]
async fn an_entitys_limits_reach_all_shards() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    spread(&scene).await?;
    let limits = scene.limiter.limits();
    let before = items(&scene).await?;
    let reached = limits.set(own(), [requests(300), Limit::per_second("images", 7)]).await?;
    assert_eq!((reached.written, reached.left), (SHARDS as usize, 0));
    for (mut old, new) in before.into_iter().zip(items(&scene).await?) {
        for (name, value) in
            [("b_requests_cp", 300_000), ("b_requests_ra", 300_000), ("b_requests_rp", 60_000), ("vu", 0)]
        {
            old[name] = json!(value);
        }
        old.as_object_mut().context("a map")?.remove("ttl");
        assert_eq!(new, old);
    }
    // The next acquire clamps the shard that it meets.
    let _lease = scene.acquire(1).await?;
    let clamped: Vec<_> = items(&scene).await?.into_iter().filter(|item| item.get("vu").is_none()).collect();
    assert!(clamped.len() == 1 && clamped[0]["b_requests_tk"] == json!(74_000), "{clamped:?}");

    scene.configure(&[("requests", [600, 600, 60])]).await?;
    let reached = limits.delete(own()).await?.context("there were limits")?;
    assert_eq!(reached.written, SHARDS as usize);
    for item in items(&scene).await? {
        assert_eq!((&item["b_requests_cp"], &item["vu"]), (&json!(600_000), &json!(0)));
        assert_eq!(item["ttl"], json!(START / 1_000 + 420));
        // No level defines this limit any more.
        assert!(item.as_object().context("a map")?.keys().all(|name| !name.starts_with("b_tokens")), "{item}");
    }
    assert_eq!(counts(&scene).await?, json!({}));
    let _lease = scene.limiter.acquire(ENTITY, RESOURCE).take("requests", 1).await?;
    Ok(())
}

/// The defaults of an entity apply where it has no limits of its own.
#[tokio::test]
async fn an_entitys_defaults_reach_its_other_resources() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    limits.set(Scope::system(), [requests(10)]).await?;
    limits.set(own(), [requests(20)]).await?;
    for resource in [RESOURCE, "gpt-5"] {
        let _lease = scene.limiter.acquire(ENTITY, resource).take("requests", 1).await?;
    }
    let capacities = async || -> anyhow::Result<Vec<(Value, bool)>> {
        let table = table(&scene).await?;
        let of = |resource| plain(&table[&format!("BUCKET#{ENTITY}#{resource}#0 #STATE")]);
        Ok([RESOURCE, "gpt-5"].map(of).map(|item| (item["b_requests_cp"].clone(), item.get("ttl").is_some())).into())
    };
    assert_eq!(capacities().await?, [(json!(20_000), false), (json!(10_000), true)]);
    let reached = limits.set(Scope::entity(ENTITY), [requests(30)]).await?;
    assert_eq!(reached.written, 2);
    assert_eq!(capacities().await?, [(json!(20_000), false), (json!(30_000), false)]);
    limits.delete(own()).await?;
    assert_eq!(capacities().await?, [(json!(30_000), false), (json!(30_000), false)]);
    limits.delete(Scope::entity(ENTITY)).await?;
    // The resource has limits of its own, the other one has those of the namespace.
    assert_eq!(capacities().await?, [(json!(600_000), true), (json!(10_000), true)]);
    Ok(())
}

/// The limiter that made a change does not use what it remembers.
#[tokio::test]
async fn an_own_change_applies_at_once() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    let acquire = async || scene.limiter.acquire("key-2", "gpt-5").take("requests", 1).await;
    assert!(matches!(acquire().await, Err(AcquireError::NotConfigured { .. })));
    limits.set(Scope::resource("gpt-5"), [requests(1)]).await?;
    let _lease = acquire().await?;
    assert!(matches!(acquire().await, Err(AcquireError::Denied(_))));
    Ok(())
}

/// Applications administer limits in tasks of their own.
#[tokio::test]
async fn every_call_can_be_spawned() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limiter = scene.limiter.clone();
    let task = async move {
        limiter.limits().set(own(), [requests(1)]).await?;
        limiter.limits().get(own()).await?;
        limiter.limits().list().await?;
        limiter.limits().delete(own()).await?;
        limiter.disable(own()).await?;
        limiter.entities().create(NewEntity::new(ENTITY)).await?;
        limiter.entities().children(ENTITY).await?;
        limiter.usage(Window::Daily).entity(ENTITY).summary().await?;
        limiter.audit_events(own()).await?;
        limiter.entities().delete(ENTITY).await
    };
    assert_eq!(tokio::spawn(task).await??, 2);
    Ok(())
}

#[tokio::test]
async fn bad_input_writes_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    let before = table(&scene).await?;
    scene.calls();
    let check = async |scope: Scope, given: Vec<Limit>, expect: &[&str]| {
        let message = limits.set(scope, given).await.expect_err("bad input").to_string();
        for part in expect {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    };
    check(Scope::entity("a#b"), vec![requests(1)], &["entity", r#""a#b""#]).await;
    check(Scope::resource("_default_"), vec![requests(1)], &["resource", r#""_default_""#]).await;
    check(own(), vec![], &["no limits", ENTITY]).await;
    check(own(), vec![requests(1), requests(2)], &["requests", "twice"]).await;
    check(own(), vec![requests(0)], &["requests", "0 tokens"]).await;
    check(own(), vec![requests(1).burst(u64::MAX)], &["requests", "burst", &u64::MAX.to_string()]).await;
    check(own(), vec![Limit::per("requests", 1, Duration::ZERO)], &["requests", "period"]).await;
    assert!(scene.calls().is_empty());
    assert_eq!(table(&scene).await?, before);
    Ok(())
}

#[tokio::test]
async fn all_limits_are_listed() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    assert_eq!(limits.list().await?, []);
    // More than one BatchGetItem reads.
    for number in 0..120 {
        limits.set(Scope::entity(format!("key-{number}")).on("gpt-5"), [requests(number + 1)]).await?;
    }
    limits.set(Scope::system(), [requests(1)]).await?;
    limits.set(Scope::entity("key-7"), [requests(2)]).await?;
    limits.set(Scope::resource("gpt-5"), [requests(3), Limit::per("x", 1, Duration::from_secs(7))]).await?;
    let listed = limits.list().await?;
    assert_eq!(listed.len(), 123);
    assert_eq!((&listed[0].scope, texts(&listed[0])), (&Scope::system(), vec!["requests=1/minute".to_owned()]));
    assert_eq!(listed[1].scope, Scope::resource("gpt-5"));
    assert_eq!(texts(&listed[1]), ["requests=3/minute", "x=1/7s"]);
    for configured in &listed {
        assert_eq!(limits.get(configured.scope.clone()).await?.as_ref(), Some(configured));
    }
    assert_eq!(limits.get(Scope::entity("key-8")).await?, None);
    Ok(())
}

/// A bucket to which a schedule applies keeps its terms, because this crate does not know schedules.
#[tokio::test]
async fn buckets_with_schedules_are_left() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let limits = scene.limiter.limits();
    limits.set(own(), [requests(20)]).await?;
    let _lease = scene.limiter.acquire(ENTITY, RESOURCE).take("requests", 1).await?;
    let update = scene.services.dynamodb.update_item().table_name(&scene.services.table);
    let update = update.key("PK", text(format!("{}/RESOURCE#{RESOURCE}", scene.namespace))).key("SK", text("#CONFIG"));
    let update = update.update_expression("SET l_requests_sched = :schedule");
    update.expression_attribute_values(":schedule", text("1;9-17 * * * *=s500")).send().await?;
    let before = plain(&scene.item(0).await?.context("the bucket")?);
    let reached = limits.delete(own()).await?.context("there were limits")?;
    assert_eq!((reached.written, reached.left), (0, 1));
    assert_eq!(plain(&scene.item(0).await?.context("the bucket")?), before);
    let resource = limits.get(Scope::resource(RESOURCE)).await?.context("limits")?;
    assert_eq!(resource.unsupported.as_deref(), Some("l_requests_sched"));
    // New limits replace the schedule.
    limits.set(Scope::resource(RESOURCE), [requests(30)]).await?;
    assert_eq!(limits.get(Scope::resource(RESOURCE)).await?.context("limits")?.unsupported, None);
    Ok(())
}

/// An error says how far the change has come, and the same call completes it.
#[tokio::test]
async fn an_incomplete_change_is_reported() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    spread(&scene).await?;
    let http = FaultyHttp::undisturbed();
    let impatient = Limiter::builder(scene.services.client(http.clone()), &scene.services.table).build().await?;
    let updates = AtomicUsize::new(0);
    http.on_call(move |operation, body| {
        let is_bucket = operation == "UpdateItem" && body.contains("BUCKET#");
        (is_bucket && updates.fetch_add(1, Ordering::Relaxed) == 2).then_some(Fault::InternalBefore)
    });
    let error = impatient.limits().set(own(), [requests(20)]).await.expect_err("a write failed");
    assert!(matches!(&error, AdminError::Incomplete { reached, .. } if reached.written == 2), "{error:?}");
    assert!(error.to_string().contains("only 2 bucket items have it: make the same call again"), "{error}");
    assert_eq!(impatient.limits().set(own(), [requests(20)]).await?.written, SHARDS as usize);
    for item in items(&scene).await? {
        assert_eq!(item["b_requests_cp"], json!(20_000));
    }
    Ok(())
}

/// The shards without their keys, in order.
async fn items(scene: &ClientScene) -> anyhow::Result<Vec<Value>> {
    let mut items = Vec::new();
    for shard in 0..SHARDS {
        items.push(plain(&scene.item(shard).await?.context("a shard")?));
    }
    Ok(items)
}
