//! Usage snapshots, as operators read them.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::{UsageSnapshot, Window};
use tidegate_domain::bucket::Resource;
use tidegate_sandbox::item::Item;
use tidegate_tests::client::prelude::*;

fn hour(number: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(START.unsigned_abs()) + Duration::from_hours(number)
}

/// A snapshot with one request and ten tokens.
pub fn snapshot(
    scene: &ClientScene,
    entity: &str,
    resource: &str,
    window: Window,
    start: &str,
) -> anyhow::Result<Item> {
    let suffix = if window == Window::Hourly { String::new() } else { format!("#{window}") };
    let mut item: Item = [
        ("PK", text(format!("{}/ENTITY#{entity}", scene.namespace))),
        ("SK", text(format!("#USAGE#{resource}#{start}{suffix}"))),
        ("GSI2PK", text(tidegate_aws::schema::resource_pk(&scene.namespace, &Resource::new(resource)?))),
        ("GSI2SK", text(format!("USAGE#{start}#{entity}"))),
        ("entity_id", text(entity)),
        ("resource", text(resource)),
        ("window", text(window.as_str())),
        ("window_start", text(start)),
        ("total_events", number(1)),
        ("requests", number(1)),
        ("tokens", number(10)),
        ("ttl", number(1)),
        ("#seq#0", text("x")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if resource == "gpt-5" {
        item.insert("tokens#od".to_owned(), number(2));
        item.insert("resource#".to_owned(), number(3));
    }
    Ok(item)
}

pub async fn put(scene: &ClientScene, item: Item) -> anyhow::Result<()> {
    scene.services.dynamodb.put_item().table_name(&scene.services.table).set_item(Some(item)).send().await?;
    Ok(())
}

/// Four hours of two entities on two resources, and their day.
async fn scene() -> anyhow::Result<ClientScene> {
    let scene = ClientScene::new().await?;
    for entity in ["key-1", "key-2"] {
        for resource in ["gpt-4", "gpt-5", "gpt-4-32k"] {
            for hour in 0..4 {
                let start = format!("2026-01-01T{hour:02}:00:00Z");
                put(&scene, snapshot(&scene, entity, resource, Window::Hourly, &start)?).await?;
            }
            put(&scene, snapshot(&scene, entity, resource, Window::Daily, "2026-01-01T00:00:00Z")?).await?;
        }
    }
    Ok(scene)
}

fn starts(snapshots: &[UsageSnapshot]) -> Vec<String> {
    snapshots.iter().map(|of| format!("{} {} {}", &of.start[11..13], of.resource, of.entity)).collect()
}

#[tokio::test]
async fn snapshots_are_read_by_entity_resource_and_time() -> anyhow::Result<()> {
    let scene = scene().await?;
    let hourly = || scene.limiter.usage(Window::Hourly);
    let one = hourly().entity("key-1").resource("gpt-4").snapshots().await?;
    assert_eq!(starts(&one), ["00 gpt-4 key-1", "01 gpt-4 key-1", "02 gpt-4 key-1", "03 gpt-4 key-1"]);
    let some = hourly().entity("key-1").resource("gpt-4").from(hour(1)).to(hour(3)).snapshots().await?;
    assert_eq!(starts(&some), ["01 gpt-4 key-1", "02 gpt-4 key-1"]);
    let second = Duration::from_millis(1);
    let some = hourly().entity("key-1").resource("gpt-4").from(hour(1) + second).to(hour(3) + second);
    assert_eq!(starts(&some.snapshots().await?), ["02 gpt-4 key-1", "03 gpt-4 key-1"]);
    let all = hourly().entity("key-1").from(hour(3)).snapshots().await?;
    assert_eq!(starts(&all), ["03 gpt-4 key-1", "03 gpt-4-32k key-1", "03 gpt-5 key-1"]);
    let resource = hourly().resource("gpt-4").to(hour(1)).snapshots().await?;
    assert_eq!(starts(&resource), ["00 gpt-4 key-1", "00 gpt-4 key-2"]);
    let daily = scene.limiter.usage(Window::Daily).resource("gpt-4").entity("key-2").snapshots().await?;
    assert_eq!(starts(&daily), ["00 gpt-4 key-2"]);
    assert_eq!(scene.limiter.usage(Window::Monthly).entity("key-1").snapshots().await?, []);
    Ok(())
}

#[tokio::test]
async fn a_summary_adds_up_all_limits() -> anyhow::Result<()> {
    let scene = scene().await?;
    let summary = scene.limiter.usage(Window::Hourly).entity("key-1").resource("gpt-5").summary().await?;
    assert_eq!((summary.snapshots, summary.events), (4, 4));
    assert_eq!(summary.first.as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(summary.last.as_deref(), Some("2026-01-01T03:00:00Z"));
    let tokens: Vec<_> = summary.tokens.iter().map(|(limit, tokens)| (limit.as_str(), *tokens)).collect();
    // A limit that is named as an attribute of the snapshot has a counter of its own.
    assert_eq!(tokens, [("requests", 4), ("resource", 12), ("tokens", 40)]);
    assert_eq!(summary.overdrawn, BTreeMap::from([("tokens".to_owned(), 8)]));
    let none = scene.limiter.usage(Window::Hourly).entity("key-9").summary().await?;
    assert_eq!((none.snapshots, none.first), (0, None));
    Ok(())
}

/// Two megabytes of snapshots are more than one page.
#[tokio::test]
async fn all_pages_are_read() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    for day in 1..=28 {
        let start = format!("2026-01-{day:02}T00:00:00Z");
        let mut item = snapshot(&scene, "key-1", "gpt-4", Window::Hourly, &start)?;
        item.insert("#padding".to_owned(), text("x".repeat(70_000)));
        put(&scene, item).await?;
    }
    scene.calls();
    let query = || scene.limiter.usage(Window::Hourly);
    assert_eq!(query().entity("key-1").resource("gpt-4").summary().await?.snapshots, 28);
    assert!(scene.calls()["Query"] > 1);
    assert_eq!(query().resource("gpt-4").summary().await?.tokens["tokens"], 280);
    assert_eq!(query().entity("key-1").from(hour(27 * 24)).summary().await?.snapshots, 1);
    // The range of time is part of the key, so one page is read.
    scene.calls();
    query().entity("key-1").resource("gpt-4").from(hour(27 * 24)).summary().await?;
    assert_eq!(scene.calls()["Query"], 1);
    Ok(())
}

#[tokio::test]
async fn an_impossible_query_reads_nothing() -> anyhow::Result<()> {
    let scene = ClientScene::new().await?;
    let error = scene.limiter.usage(Window::Daily).snapshots().await.expect_err("whose usage?");
    assert!(error.to_string().contains("name an entity or a resource"), "{error}");
    let error = scene.limiter.usage(Window::Daily).entity("a#b").snapshots().await.expect_err("no entity");
    assert!(error.to_string().contains(r#""a#b""#), "{error}");
    let range = scene.limiter.usage(Window::Daily).entity(ENTITY).from(hour(2));
    let error = range.clone().to(hour(1)).snapshots().await.expect_err("a range that ends before it begins");
    assert!(error.to_string().contains("from 2026-01-01T02:00:00Z to 2026-01-01T01:00:00Z"), "{error}");
    assert!(scene.calls().is_empty());
    assert_eq!(range.resource(RESOURCE).to(hour(2)).snapshots().await?, []);
    Ok(())
}
