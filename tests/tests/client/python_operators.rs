//! Operators with the real Python clients, 0.17.0 and 0.10.3, beside one with this crate: they write the same items, and each
//! reads what the others wrote. The tests are skipped where Python does not have the library: see
//! `tidegate_tests::python`.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use tidegate::{Limit, NewEntity, Scope, ScopeLimits, Window};
use tidegate_aws::registry::Registry;
use tidegate_sandbox::item;
use tidegate_tests::{
    client::prelude::*,
    python::{another_version, interpreter, script},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use crate::{
    stored::{SHARDS, counts, plain, spread, table},
    usage,
};

/// The client answers within this time, or it hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// The process of an operator. Dropping it kills the process.
struct Operator {
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Operator {
    /// Opens the table with the client at this path, or with the interpreter's own if it is empty.
    async fn open(python: &std::ffi::OsStr, path: &Path, scene: &ClientScene) -> anyhow::Result<Self> {
        let mut process = script(python, "administrator.py", &scene.services.endpoint)
            .env("PYTHONPATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = process.stdin.take().context("the client has no input")?;
        let answers = BufReader::new(process.stdout.take().context("the client has no output")?).lines();
        let mut operator = Self { commands, answers, _process: process };
        operator.ask(json!({"open": {"table": scene.services.table, "at": START}})).await?;
        Ok(operator)
    }

    async fn ask(&mut self, command: Value) -> anyhow::Result<Value> {
        self.commands.write_all(format!("{command}\n").as_bytes()).await?;
        let answer = tokio::time::timeout(LIMIT, self.answers.next_line()).await.context("the client hangs")??;
        let answer = answer.with_context(|| format!("the client ended on {command}"))?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer)
    }

    /// Calls a method, which must succeed.
    async fn call(&mut self, on: &str, method: &str, arguments: Value) -> anyhow::Result<Value> {
        let answer = self.ask(json!({"call": {"on": on, "method": method, "arguments": arguments}})).await?;
        ensure!(answer.get("raised").is_none(), "{method}: {answer}");
        Ok(answer)
    }

    async fn acquire(&mut self, entity: &str, consume: Value) -> anyhow::Result<Value> {
        self.ask(json!({"acquire": {"entity": entity, "resource": RESOURCE, "consume": consume}})).await
    }
}

/// An interpreter, and the paths of the versions that it can import. `None` where there are none.
async fn versions() -> anyhow::Result<Option<(std::ffi::OsString, [PathBuf; 2])>> {
    let Some(python) = interpreter("zae_limiter").await? else { return Ok(None) };
    let Some(oldest) = another_version(&python, "zae-limiter-0.10.3")? else { return Ok(None) };
    Ok(Some((python, [PathBuf::new(), oldest])))
}

async fn scene() -> anyhow::Result<ClientScene> {
    let scene = ClientScene::new().await?;
    let registry = Registry::new(scene.services.dynamodb.clone(), &scene.services.table);
    ensure!(registry.enter_version(true).await?);
    Ok(scene)
}

/// A limit, as Python writes it.
fn minute(name: &str, tokens: i64) -> Value {
    json!({"name": name, "capacity": tokens, "refill_amount": tokens, "refill_period_seconds": 60})
}

/// The names and amounts of limits that Python returned.
fn amounts(limits: &Value) -> Vec<(String, i64)> {
    let limits = limits.as_array().into_iter().flatten();
    let of = |limit: &Value| {
        (limit["name"].as_str().unwrap_or_default().to_owned(), limit["capacity"].as_i64().unwrap_or(-1))
    };
    let mut amounts: Vec<_> = limits.map(of).collect();
    amounts.sort();
    amounts
}

/// All items about an operator's entities and resource, without what differs between two calls of the same method. The
/// operator's name stands in all names, and is replaced.
async fn written_by(scene: &ClientScene, operator: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let named = |text: &str| text.replace(operator, "operator").replace(scene.namespace.as_str(), "ns");
    let mut events = 0;
    let mut items = BTreeMap::new();
    for (key, item) in table(scene).await?.into_iter().filter(|(key, _)| key.contains(operator)) {
        let mut value = plain(&item);
        for (name, key) in item.iter().filter(|(name, _)| name.starts_with("GSI")) {
            value[name] = json!(key.as_s().map_err(|_| anyhow::anyhow!("{name} is a text"))?);
        }
        let mut key = key;
        if let Some((subject, _)) = key.clone().split_once(" #AUDIT#") {
            events += 1;
            key = format!("{subject} {events}");
        }
        for differs in ["event_id", "timestamp", "principal", "created_at", "pinc", "pgen", "#op"] {
            value.as_object_mut().context("a map")?.remove(differs);
        }
        items.insert(named(&key), serde_json::from_str(&named(&value.to_string()))?);
    }
    Ok(items)
}

/// Two operators who make the same changes, each to an entity and a resource of its own.
struct Pair {
    scene: ClientScene,
    python: Operator,
}

/// The names have the same length, so their keys have the same order.
const PYTHON: [&str; 2] = ["python-key", "python-api"];
const RUST: [&str; 2] = ["rust-y-key", "rust-y-api"];

impl Pair {
    async fn new() -> anyhow::Result<Option<Self>> {
        let Some((python, [latest, _])) = versions().await? else { return Ok(None) };
        let scene = scene().await?;
        let python = Operator::open(&python, &latest, &scene).await?;
        Ok(Some(Self { scene, python }))
    }

    /// Lets Python make a change, which the caller has made in Rust. Both must have left the same items.
    async fn check(&mut self, on: &str, method: &str, mut arguments: Value) -> anyhow::Result<()> {
        arguments["principal"] = json!("ops");
        self.python.call(on, method, arguments.clone()).await?;
        let step = format!("{method} {arguments}");
        let [python, rust] = [written_by(&self.scene, "python").await?, written_by(&self.scene, "rust-y").await?];
        assert_eq!(python.keys().collect::<Vec<_>>(), rust.keys().collect::<Vec<_>>(), "{step}");
        let is_event = |key: &String| key.starts_with("AUDIT#");
        let events = |items: &BTreeMap<String, Value>| {
            let events = items.iter().filter(|(key, _)| is_event(key));
            let mut events: Vec<_> = events.map(|(_, item)| item.to_string()).collect();
            // Ids are random within a millisecond.
            events.sort();
            events
        };
        assert_eq!(events(&python), events(&rust), "{step}");
        for (key, item) in python.iter().filter(|(key, _)| !is_event(key)) {
            assert!(rust[key] == *item, "{step}: {key}:\npython {item:#}\nrust   {:#}", rust[key]);
        }
        Ok(())
    }

    /// Gives both resources limits, and both entities buckets. Rust makes both buckets, because Python writes no `#op`.
    async fn start(&mut self) -> anyhow::Result<()> {
        let limits = [Limit::per_minute("requests", 600), Limit::per_minute("tokens", 60_000)];
        self.scene.limiter.limits().set(Scope::resource(RUST[1]), limits).await?;
        let limits = json!([minute("requests", 600), minute("tokens", 60_000)]);
        self.check("limiter", "set_resource_defaults", json!({"resource": PYTHON[1], "limits": limits})).await?;
        for [entity, resource] in [PYTHON, RUST] {
            let _lease = self.scene.limiter.acquire(entity, resource).take("requests", 1).take("tokens", 7).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_write_the_same_limits() -> anyhow::Result<()> {
    let Some(mut pair) = Pair::new().await? else { return Ok(()) };
    let limiter = pair.scene.limiter.clone();
    let ([key, api], limits) = (PYTHON, limiter.limits());
    let (own, default) = (Scope::entity(RUST[0]).on(RUST[1]), Scope::entity(RUST[0]));
    pair.start().await?;
    for tokens in [300, 900] {
        let new = [Limit::per_minute("requests", tokens), Limit::per_minute("tokens", 50)];
        limits.set(own.clone(), new).await?;
        let new = json!([minute("requests", tokens.cast_signed()), minute("tokens", 50)]);
        pair.check("limiter", "set_limits", json!({"entity_id": key, "resource": api, "limits": new})).await?;
    }
    limits.set(default.clone(), [Limit::per_minute("requests", 5), Limit::per_minute("tokens", 6)]).await?;
    let new = json!([minute("requests", 5), minute("tokens", 6)]);
    pair.check("limiter", "set_limits", json!({"entity_id": key, "limits": new})).await?;

    // If the defaults of the entity still applied, Python would let the bucket expire, which only buckets of less specific
    // scopes should.
    limits.delete(default).await?;
    pair.check("limiter", "delete_limits", json!({"entity_id": key})).await?;
    limits.delete(own).await?;
    pair.check("limiter", "delete_limits", json!({"entity_id": key, "resource": api})).await?;
    limits.delete(Scope::resource(RUST[1])).await?;
    pair.check("limiter", "delete_resource_defaults", json!({"resource": api})).await?;
    assert_eq!(counts(&pair.scene).await?, json!({}));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_write_the_same_entities() -> anyhow::Result<()> {
    let Some(mut pair) = Pair::new().await? else { return Ok(()) };
    let limiter = pair.scene.limiter.clone();
    let new = NewEntity::new(RUST[0]).name("Key").parent("rust-y-team").cascade(true).metadata("owner", "ops");
    limiter.entities().create(new).await?;
    let arguments = json!({"entity_id": PYTHON[0], "name": "Key", "parent_id": "python-team", "cascade": true,
        "metadata": {"owner": "ops"}});
    pair.check("limiter", "create_entity", arguments).await?;
    pair.start().await?;
    limiter.entities().delete(RUST[0]).await?;
    pair.check("limiter", "delete_entity", json!({"entity_id": PYTHON[0]})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_write_the_same_switches() -> anyhow::Result<()> {
    let Some(mut pair) = Pair::new().await? else { return Ok(()) };
    let limiter = pair.scene.limiter.clone();
    pair.start().await?;
    let switch = async |method: &str, scope: Scope| match method.split('_').next() {
        Some("disable") => limiter.disable(scope).await,
        Some("enable") => limiter.enable(scope).await,
        _ => limiter.clear_disabled(scope).await,
    };
    let ([key, api], own) = (PYTHON, || Scope::entity(RUST[0]));
    for method in ["disable_entity", "enable_entity", "clear_entity_disabled", "disable_entity"] {
        switch(method, own().on(RUST[1])).await?;
        pair.check("repository", method, json!({"entity_id": key, "resource": api})).await?;
        switch(method, own()).await?;
        pair.check("repository", method, json!({"entity_id": key})).await?;
    }
    switch("clear", own().on(RUST[1])).await?;
    pair.check("repository", "clear_entity_disabled", json!({"entity_id": key, "resource": api})).await?;
    switch("clear", own()).await?;
    pair.check("repository", "clear_entity_disabled", json!({"entity_id": key})).await?;
    for method in ["disable_resource", "enable_resource", "clear_resource_disabled"] {
        switch(method, Scope::resource(RUST[1])).await?;
        pair.check("repository", method, json!({"resource": api})).await?;
    }
    Ok(())
}

/// What was consumed of the requests on all shards, in millitokens.
async fn consumed(scene: &ClientScene) -> anyhow::Result<i64> {
    let mut sum = 0;
    for shard in 0..SHARDS {
        sum += item::read(&scene.item(shard).await?.context("a shard")?, "b_requests_tc")?;
    }
    Ok(sum)
}

/// Each version reads what this crate wrote, and acquires from buckets that a change has reached.
#[tokio::test(flavor = "multi_thread")]
async fn python_reads_what_rust_wrote() -> anyhow::Result<()> {
    let Some((python, versions)) = versions().await? else { return Ok(()) };
    for path in versions {
        let scene = scene().await?;
        let mut theirs = Operator::open(&python, &path, &scene).await?;
        let ours = &scene.limiter;
        spread(&scene).await?;
        let limit = |tokens| [Limit::per_minute("requests", tokens), Limit::per_minute("tokens", 1_000)];
        ours.limits().set(Scope::system(), limit(1)).await?;
        ours.limits().set(Scope::resource("gpt-5"), limit(2)).await?;
        ours.limits().set(Scope::entity(ENTITY), limit(3)).await?;
        ours.limits().set(Scope::entity(ENTITY).on(RESOURCE), limit(4_000)).await?;
        ours.entities().create(NewEntity::new("key-2").name("Two").parent("team").metadata("a", "b")).await?;

        let expect = |tokens| vec![("requests".to_owned(), tokens), ("tokens".to_owned(), 1_000)];
        let system = theirs.call("limiter", "get_system_defaults", json!({})).await?;
        assert_eq!(amounts(&system[0]), expect(1));
        let resource = theirs.call("limiter", "get_resource_defaults", json!({"resource": "gpt-5"})).await?;
        assert_eq!(amounts(&resource), expect(2));
        let entity = theirs.call("limiter", "get_limits", json!({"entity_id": ENTITY})).await?;
        assert_eq!(amounts(&entity), expect(3));
        let own = json!({"entity_id": ENTITY, "resource": RESOURCE});
        assert_eq!(amounts(&theirs.call("limiter", "get_limits", own).await?), expect(4_000));
        let listed = theirs.call("limiter", "list_resources_with_defaults", json!({})).await?;
        assert_eq!(listed, json!(["gpt-5"]));
        let listed = theirs.call("limiter", "list_resources_with_entity_configs", json!({})).await?;
        assert_eq!(listed, json!(["_default_", RESOURCE]));
        let read = theirs.call("limiter", "get_entity", json!({"entity_id": "key-2"})).await?;
        assert_eq!(
            (&read["name"], &read["parent_id"], &read["metadata"]),
            (&json!("Two"), &json!("team"), &json!({"a": "b"}))
        );
        assert_eq!(theirs.call("limiter", "get_children", json!({"parent_id": "team"})).await?[0]["id"], "key-2");
        let events = theirs.call("repository", "get_audit_events", json!({"entity_id": ENTITY})).await?;
        let resources: Vec<_> = events.as_array().into_iter().flatten().map(|event| &event["resource"]).collect();
        assert!(resources.len() == 2 && resources.contains(&&json!("_default_")), "{events}");
        assert!(events.to_string().contains("4000"), "{events}");

        for start in ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"] {
            usage::put(&scene, usage::snapshot(&scene, ENTITY, RESOURCE, Window::Hourly, start)?).await?;
        }
        let summary = theirs
            .call("repository", "get_usage_summary", json!({"entity_id": ENTITY, "window_type": "hourly"}))
            .await?;
        let own = ours.usage(Window::Hourly).entity(ENTITY).summary().await?;
        assert_eq!(summary["total"], json!(own.tokens));
        assert_eq!(summary["snapshot_count"], json!(own.snapshots));

        // The new limits reached all shards, whichever the client draws.
        let before = consumed(&scene).await?;
        for _ in 0..20 {
            assert_eq!(theirs.acquire(ENTITY, json!({"requests": 1})).await?, json!(true));
        }
        assert_eq!(consumed(&scene).await?, before + 20_000);
        let _lease = scene.acquire(1).await?;
        ours.disable(Scope::entity(ENTITY).on(RESOURCE)).await?;
        let refused = theirs.acquire(ENTITY, json!({"requests": 1})).await?;
        // Versions before 0.12 do not know the switch.
        assert!(refused["raised"] == "ResourceDisabled" || path != Path::new(""), "{refused}");
    }
    Ok(())
}

/// This crate reads what each version wrote, and acquires from buckets that a change has reached.
#[tokio::test(flavor = "multi_thread")]
async fn rust_reads_what_python_wrote() -> anyhow::Result<()> {
    let Some((python, versions)) = versions().await? else { return Ok(()) };
    for path in versions {
        let scene = scene().await?;
        let mut theirs = Operator::open(&python, &path, &scene).await?;
        let _lease = scene.acquire(1).await?;
        let requests = |tokens| json!([minute("requests", tokens)]);
        theirs.call("limiter", "set_system_defaults", json!({"limits": requests(1)})).await?;
        theirs.call("limiter", "set_resource_defaults", json!({"resource": "gpt-5", "limits": requests(2)})).await?;
        theirs.call("limiter", "set_limits", json!({"entity_id": ENTITY, "limits": requests(3)})).await?;
        let own = json!({"entity_id": ENTITY, "resource": RESOURCE, "limits": [minute("requests", 4_000), minute("tokens", 5)]});
        theirs.call("limiter", "set_limits", own).await?;
        let arguments = json!({"entity_id": "key-2", "name": "Two", "parent_id": "team", "metadata": {"a": "b"}});
        theirs.call("limiter", "create_entity", arguments).await?;

        let listed = scene.limiter.limits().list().await?;
        let shown: Vec<_> = listed
            .iter()
            .map(|ScopeLimits { scope, limits, .. }| {
                let limits: Vec<_> = limits.iter().map(ToString::to_string).collect();
                format!("{scope}: {}", limits.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "the namespace: requests=1/minute",
                r#"resource "gpt-5": requests=2/minute"#,
                r#"entity "key-1": requests=3/minute"#,
                r#"entity "key-1" on resource "gpt-4": requests=4000/minute tokens=5/minute"#,
            ]
        );
        let entities = scene.limiter.entities();
        let two = entities.get("key-2").await?.context("the entity")?;
        assert_eq!((two.name.as_str(), two.parent.as_deref(), two.metadata["a"].as_str()), ("Two", Some("team"), "b"));
        assert_eq!(entities.children("team").await?, [two]);
        let events = scene.limiter.audit_events(Scope::entity(ENTITY)).await?;
        let actions: Vec<_> = events.iter().map(|event| event.action.as_str()).collect();
        assert_eq!(actions, ["limits_set", "limits_set"]);
        // The bucket has the new limits, and the surplus of a lowered one is dropped where the client asks for that.
        let _lease = scene.limiter.acquire(ENTITY, RESOURCE).take("requests", 1).await?;
        let item = scene.item(0).await?.context("the bucket")?;
        assert_eq!(item.get("b_requests_cp"), Some(&number(4_000_000)));
        if path == Path::new("") {
            assert_eq!(scene.totals("tokens", 1).await?.0, 5_000);
        }
        // A deletion by this crate is what the other client reads.
        scene.limiter.limits().delete(Scope::entity(ENTITY)).await?;
        let left = theirs.call("limiter", "get_limits", json!({"entity_id": ENTITY})).await?;
        assert_eq!(left, json!([]));
        let deleted = json!({"entity_id": ENTITY, "resource": RESOURCE});
        theirs.call("limiter", "delete_limits", deleted).await?;
        assert_eq!(scene.limiter.limits().get(Scope::entity(ENTITY).on(RESOURCE)).await?, None);
        assert_eq!(counts(&scene).await?, json!({}));
    }
    Ok(())
}
