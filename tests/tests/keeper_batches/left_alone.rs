//! Buckets with rules that are not fully understood are left alone.

use aws_sdk_dynamodb::types::AttributeValue;
use bucket_keeper::report::Report;
use tidegate_domain::state::BucketState;
use tidegate_tests::keeper::{Item, KeeperScene, full, item, key, number, set_tokens, shard, take, text};

use crate::LATER;

/// Two shards, of which one is missing; dry, hot and over-full: there is much to do about it.
fn needy() -> BucketState<'static> {
    let mut state = full(2);
    set_tokens(&mut state, "rpm", 0);
    set_tokens(&mut state, "tpm", 9_000_000);
    state
}

/// The needy bucket with a change is written to: what the function does about that.
async fn invoke(scene: &mut KeeperScene, entity: &str, change: impl Fn(&mut Item)) -> anyhow::Result<Report> {
    let mut state = needy();
    for _ in 0..2 {
        take(&mut state, "rpm", 1_000);
        take(&mut state, "wcu", 900_000);
        let mut item = item(&key(entity), &state);
        change(&mut item);
        scene.put_item(item).await?;
    }
    let event = scene.event(LATER).await?;
    let before = scene.table().await?;
    let report = scene.invoke(&event, LATER + 60_000).await.report;
    if report.unfamiliar > 0 {
        assert_eq!((scene.table().await?, scene.writes().await?), (before, 0));
    }
    Ok(report)
}

async fn check(scene: &mut KeeperScene, change: impl Fn(&mut Item)) -> anyhow::Result<()> {
    let report = invoke(scene, "user", change).await?;
    assert_eq!(report, Report { records: 2, changes: 2, shards: 1, unfamiliar: 1, ..Report::default() });
    Ok(())
}

#[tokio::test]
async fn a_plain_bucket_is_not() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let switched_on = |item: &mut Item| _ = item.insert("disabled".to_owned(), AttributeValue::Bool(false));
    let soft = |item: &mut Item| _ = item.insert("b_rpm_soft".to_owned(), number(LATER));
    let changes: [&dyn Fn(&mut Item); 3] = [&|_| (), &switched_on, &soft];
    for (at, change) in changes.into_iter().enumerate() {
        let report = invoke(&mut scene, &format!("user-{at}"), change).await?;
        assert!(report.unfamiliar == 0 && report.split > 0, "{report:?}");
        scene.writes().await?;
    }
    Ok(())
}

#[tokio::test]
async fn other_rules_leave_a_bucket_to_its_clients() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let schedules = ["sched", "rsched", "b_rpm_sched", "b_tpm_rsched"].map(|name| (name, text("0 9 * * 1-5")));
    let quotas = ["ws", "rsa", "wa", "wtc", "gc", "tu", "rn"].map(|field| format!("b_rpm_{field}"));
    let quotas = quotas.iter().map(|name| (name.as_str(), number(1)));
    let switches = [("disabled", AttributeValue::Bool(true)), ("bypass", number(LATER))];
    for (name, value) in schedules.into_iter().chain(quotas).chain(switches) {
        check(&mut scene, |item| _ = item.insert(name.to_owned(), value.clone())).await?;
    }
    Ok(())
}

#[tokio::test]
async fn numbers_that_cannot_be_leave_a_bucket_to_its_clients() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    for (name, value) in [
        ("b_rpm_ra", 0),
        ("b_rpm_ra", -1),
        ("b_rpm_rp", 0),
        ("b_rpm_rp", -60_000),
        ("b_rpm_cp", -1),
        ("shard_count", 0),
        ("shard_count", -2),
        ("shard_count", 4_294_967_296),
        ("rf", -1),
        ("rf", i64::MAX),
    ] {
        check(&mut scene, |item| _ = item.insert(name.to_owned(), number(value))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn missing_parts_leave_a_bucket_to_its_clients() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    for name in ["rf", "shard_count", "b_rpm_tk", "b_rpm_tc", "b_rpm_cp", "b_rpm_ra", "b_tpm_rp"] {
        check(&mut scene, |item| _ = item.remove(name)).await?;
    }
    check(&mut scene, |item| item.retain(|name, _| !name.starts_with("b_wcu_"))).await
}

#[tokio::test]
async fn an_unfamiliar_shard_stops_the_splits_of_its_bucket() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut one = item(&shard(&key("user"), 1), &full(4));
    one.insert("b_rpm_gc".to_owned(), number(2));
    scene.put_item(one).await?;
    scene.writes().await?;
    scene.put(&key("user"), &full(4)).await?;
    let event = scene.event(LATER).await?;
    let report = scene.invoke(&event, LATER).await.report;
    assert_eq!((report.split, report.raised, scene.writes().await?), (0, 0, 0), "{report:?}");
    Ok(())
}
