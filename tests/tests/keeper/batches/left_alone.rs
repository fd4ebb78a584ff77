//! Buckets with rules that are not fully understood are left alone.

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_tests::keeper::prelude::*;

use super::LATER;

/// A bucket of two shards: one is missing, the other is dry, hot and over-full.
fn needy() -> BucketState<'static> {
    let mut state = full(2);
    set_tokens(&mut state, "rpm", 0);
    set_tokens(&mut state, "tpm", 9_000_000);
    state
}

/// Writes to the bucket with `change` applied. Returns the function's report.
async fn invoke(scene: &mut KeeperScene, entity: &str, change: impl Fn(&mut Item)) -> anyhow::Result<KeeperReport> {
    let mut state = needy();
    for _ in 0..2 {
        take(&mut state, "rpm", 1_000);
        take(&mut state, "wcu", 900_000);
        let mut item = item(&key(entity), &state);
        change(&mut item);
        scene.put_item(item).await?;
    }
    let event = scene.event(LATER).await?;
    Ok(scene.invoke(&event, LATER + 1_000).await.report)
}

async fn check(scene: &mut KeeperScene, change: impl Fn(&mut Item)) -> anyhow::Result<()> {
    let report = invoke(scene, "user", change).await?;
    assert_eq!(report, KeeperReport { records: 2, changes: 2, shards: 1, unfamiliar: 1, ..KeeperReport::default() });
    assert_eq!(scene.writes().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_plain_bucket_is_kept() -> anyhow::Result<()> {
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
async fn impossible_numbers_leave_a_bucket_to_its_clients() -> anyhow::Result<()> {
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
async fn an_unfamiliar_shard_stops_splits_but_no_refills() -> anyhow::Result<()> {
    for (name, value) in [("b_rpm_gc", 2), ("vu", 0), ("vu", LATER + 60_000)] {
        let mut scene = KeeperScene::new().await?;
        let mut one = item(&shard(&key("user"), 1), &full(4));
        one.insert(name.to_owned(), number(value));
        scene.put_item(one).await?;
        scene.writes().await?;
        let mut zero = full(4);
        set_tokens(&mut zero, "rpm", 200);
        take(&mut zero, "rpm", 100);
        scene.put(&key("user"), &zero).await?;
        let event = scene.event(LATER + 30_000).await?;
        let report = scene.invoke(&event, LATER + 31_000).await.report;
        assert_eq!((report.refilled, report.split, report.raised), (1, 0, 0), "{report:?}");
        assert_eq!((report.unfamiliar + report.awaits_client, report.incomplete), (1, 1), "{report:?}");
        assert!(tokens(&scene.state(&key("user")).await?, "rpm") > 12_500);
        assert_eq!(scene.shards(&key("user"), 4).await?.states.len(), 1);
    }
    Ok(())
}
