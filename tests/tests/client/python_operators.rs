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

/// The same changes, by Python and by Rust, leave the same items.
#[tokio::test(flavor = "multi_thread")]
async fn both_write_the_same_items() -> anyhow::Result<()> {
    let Some((python, [latest, _])) = versions().await? else { return Ok(()) };
    let scene = scene().await?;
    let mut theirs = Operator::open(&python, &latest, &scene).await?;
    let ours = &scene.limiter;
    // The names have the same length, so their keys have the same order.
    let (python_key, rust_key) = ("python-key", "rust-y-key");
    let check = async |step: &str| -> anyhow::Result<()> {
        let [python, rust] = [written_by(&scene, "python").await?, written_by(&scene, "rust-y").await?];
        assert_eq!(python.keys().collect::<Vec<_>>(), rust.keys().collect::<Vec<_>>(), "{step}");
        let events = |items: &BTreeMap<String, Value>| {
            let events = items.iter().filter(|(key, _)| key.starts_with("AUDIT#"));
            let mut events: Vec<_> = events.map(|(_, item)| item.to_string()).collect();
            // Ids are random within a millisecond.
            events.sort();
            events
        };
        assert_eq!(events(&python), events(&rust), "{step}");
        for (key, item) in python.iter().filter(|(key, _)| !key.starts_with("AUDIT#")) {
            assert!(rust[key] == *item, "{step}: {key}:\npython {item:#}\nrust   {:#}", rust[key]);
        }
        Ok(())
    };

    let arguments = json!({"entity_id": python_key, "name": "Key", "parent_id": "python-team", "cascade": true,
        "metadata": {"owner": "ops"}, "principal": "ops"});
    theirs.call("limiter", "create_entity", arguments).await?;
    let new = NewEntity::new(rust_key).name("Key").parent("rust-y-team").cascade(true).metadata("owner", "ops");
    ours.entities().create(new).await?;
    check("create_entity").await?;

    let limits = || [Limit::per_minute("requests", 600), Limit::per_minute("tokens", 60_000)];
    theirs
        .call(
            "limiter",
            "set_resource_defaults",
            json!({"resource": "python-api", "principal": "ops",
        "limits": [minute("requests", 600), minute("tokens", 60_000)]}),
        )
        .await?;
    ours.limits().set(Scope::resource("rust-y-api"), limits()).await?;
    check("set_resource_defaults").await?;

    // Both buckets are made by this crate, because Python writes no `#op`.
    for (entity, resource) in [(python_key, "python-api"), (rust_key, "rust-y-api")] {
        let _lease = ours.acquire(entity, resource).take("requests", 1).take("tokens", 7).await?;
    }
    check("acquire").await?;

    for tokens in [300, 900] {
        theirs
            .call(
                "limiter",
                "set_limits",
                json!({"entity_id": python_key, "resource": "python-api", "principal": "ops",
            "limits": [minute("requests", tokens), minute("tokens", 50)]}),
            )
            .await?;
        let limits = [Limit::per_minute("requests", tokens.unsigned_abs()), Limit::per_minute("tokens", 50)];
        ours.limits().set(Scope::entity(rust_key).on("rust-y-api"), limits).await?;
        check("set_limits").await?;
    }
    theirs
        .call(
            "limiter",
            "set_limits",
            json!({"entity_id": python_key, "principal": "ops",
        "limits": [minute("requests", 5), minute("tokens", 6)]}),
        )
        .await?;
    let limits = [Limit::per_minute("requests", 5), Limit::per_minute("tokens", 6)];
    ours.limits().set(Scope::entity(rust_key), limits).await?;
    check("set_limits of all resources").await?;

    for (method, disabled) in
        [("disable_entity", Some(true)), ("enable_entity", Some(false)), ("clear_entity_disabled", None)]
    {
        for resource in [Some("api"), None] {
            let mut arguments = json!({"entity_id": python_key, "principal": "ops"});
            let mut scope = Scope::entity(rust_key);
            if let Some(resource) = resource {
                arguments["resource"] = json!(format!("python-{resource}"));
                scope = scope.on(format!("rust-y-{resource}"));
            }
            theirs.call("repository", method, arguments).await?;
            match disabled {
                Some(true) => ours.disable(scope).await?,
                Some(false) => ours.enable(scope).await?,
                None => ours.clear_disabled(scope).await?,
            };
            check(method).await?;
        }
    }
    theirs.call("repository", "disable_resource", json!({"resource": "python-api", "principal": "ops"})).await?;
    ours.disable(Scope::resource("rust-y-api")).await?;
    check("disable_resource").await?;
    theirs.call("repository", "enable_resource", json!({"resource": "python-api", "principal": "ops"})).await?;
    ours.enable(Scope::resource("rust-y-api")).await?;
    check("enable_resource").await?;
    // An override of an entity that has no limits there.
    theirs
        .call(
            "repository",
            "disable_entity",
            json!({"entity_id": python_key, "resource": "python-new", "principal": "ops"}),
        )
        .await?;
    ours.disable(Scope::entity(rust_key).on("rust-y-new")).await?;
    check("disable_entity without limits").await?;

    // If the defaults of the entity still applied, Python would let the bucket expire, which only buckets of less specific
    // scopes should.
    theirs.call("limiter", "delete_limits", json!({"entity_id": python_key, "principal": "ops"})).await?;
    ours.limits().delete(Scope::entity(rust_key)).await?;
    check("delete_limits of all resources").await?;
    let arguments = json!({"entity_id": python_key, "resource": "python-api", "principal": "ops"});
    theirs.call("limiter", "delete_limits", arguments).await?;
    ours.limits().delete(Scope::entity(rust_key).on("rust-y-api")).await?;
    check("delete_limits").await?;
    theirs.call("limiter", "delete_resource_defaults", json!({"resource": "python-api", "principal": "ops"})).await?;
    ours.limits().delete(Scope::resource("rust-y-api")).await?;
    check("delete_resource_defaults").await?;
    let registry = counts(&scene).await?;
    assert_eq!(registry, json!({"python-new": 1, "rust-y-new": 1}), "each counts its own");
    theirs.call("limiter", "delete_entity", json!({"entity_id": python_key, "principal": "ops"})).await?;
    ours.entities().delete(rust_key).await?;
    check("delete_entity").await?;
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
