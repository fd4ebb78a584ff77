//! What a batch writes to its snapshots, when, and how often.

use std::{collections::HashMap, num::NonZeroUsize};

use aws_sdk_dynamodb::types::AttributeValue;
use tidegate_aws::snapshots::Snapshots;
use tidegate_domain::window::Window;
use tidegate_tests::rollup::prelude::*;

/// A write to a bucket shard: limits with their millitokens before and after.
fn change(at: u64, shard: u32, created: i64, counters: &[(&str, i64, i64)]) -> Value {
    let pk = format!("{}{shard}", BUCKET.trim_end_matches('0'));
    let image = |is_new: bool| -> Value {
        let attribute = |(limit, before, after): &(&str, i64, i64)| {
            (format!("b_{limit}_tc"), json!({"N": if is_new { after } else { before }.to_string()}))
        };
        counters.iter().map(attribute).collect()
    };
    let mut record = record(&pk, at, Some(image(false)), &image(true));
    record["dynamodb"]["ApproximateCreationDateTime"] = json!(created);
    record
}

async fn item(scene: &RollupScene, sk: &str) -> anyhow::Result<HashMap<String, AttributeValue>> {
    let get = scene.services.dynamodb.get_item().table_name(&scene.services.table).consistent_read(true);
    let output = get.key("PK", text("TQ5vSMvQTm4/ENTITY#user-1")).key("SK", text(sk)).send().await?;
    Ok(output.item.unwrap_or_default())
}

#[tokio::test]
async fn a_hundred_hot_records_are_two_writes() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let scene = scene.with(|function| function.windows = vec![Window::Hourly, Window::Daily]);
    let records: Vec<_> = (0..100)
        .map(|at: u64| {
            let before = i64::try_from(at).unwrap_or_default() * 1000;
            change(at, 0, CREATED, &[("rpm", before, before + 1000), ("tpm", before * 7, (before + 1000) * 7)])
        })
        .collect();
    let handled = scene.invoke(&event(&records)?).await;
    assert_eq!(scene.http.writes(), 2);
    assert_eq!((handled.report.postings, handled.report.posted, handled.report.writes), (2, 2, 2));
    Ok(())
}

#[tokio::test]
async fn a_snapshot_has_all_attributes_of_its_readers() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let records = [
        change(1, 0, CREATED, &[("rpm", 999, 1000), ("tpm", 0, 2500), ("wcu", 0, 1000)]),
        change(2, 3, CREATED, &[("rpm", 0, -500), ("wcu", 0, 1000)]),
        // Nothing but the write units moved: no event.
        change(3, 3, CREATED, &[("rpm", -500, -500), ("wcu", 1000, 2000)]),
    ];
    scene.invoke(&event(&records)?).await;
    let expected = HashMap::from([
        ("PK", text("TQ5vSMvQTm4/ENTITY#user-1")),
        ("SK", text("#USAGE#api#2025-12-31T00:00:00Z#daily")),
        ("entity_id", text("user-1")),
        ("resource", text("api")),
        ("window", text("daily")),
        ("window_start", text("2025-12-31T00:00:00Z")),
        ("GSI2PK", text("TQ5vSMvQTm4/RESOURCE#api")),
        ("GSI2SK", text("USAGE#2025-12-31T00:00:00Z#user-1")),
        ("GSI4PK", text("TQ5vSMvQTm4")),
        ("GSI4SK", text("TQ5vSMvQTm4/ENTITY#user-1")),
        // 90 days after the day has ended.
        ("ttl", number(1_767_225_600 + 90 * 86_400)),
        ("total_events", number(2)),
        // For `rpm`, 1 - 0 and floor(-0.5) - 0 add up to 0.
        ("tpm", number(2)),
        ("#seq#0", text(format!("2026-01-01T00:00:00.000#{:0>40}", sequence(1)))),
        ("#seq#3", text(format!("2026-01-01T00:00:00.000#{:0>40}", sequence(2)))),
    ]);
    let expected: HashMap<_, _> = expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let daily = item(&scene, "#USAGE#api#2025-12-31T00:00:00Z#daily").await?;
    assert_eq!(daily, expected);
    assert!(!item(&scene, "#USAGE#api#2025-12-31T23:00:00Z").await?.is_empty());
    assert!(!item(&scene, "#USAGE#api#2025-12-01T00:00:00Z#monthly").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_day_and_its_first_hour_are_separate() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let midnight = 1_767_225_600;
    scene.invoke(&event(&[change(1, 0, midnight, &[("rpm", 0, 1000)])])?).await;
    scene.invoke(&event(&[change(2, 0, midnight + 3600, &[("rpm", 1000, 3000)])])?).await;
    assert_eq!(item(&scene, "#USAGE#api#2026-01-01T00:00:00Z").await?["rpm"], number(1));
    assert_eq!(item(&scene, "#USAGE#api#2026-01-01T00:00:00Z#daily").await?["rpm"], number(3));
    Ok(())
}

#[tokio::test]
async fn a_limit_named_like_an_attribute_counts() -> anyhow::Result<()> {
    let names =
        ["ttl", "window", "window_start", "resource", "entity_id", "total_events", "PK", "SK", "GSI2PK", "LSI5SK"];
    let scene = RollupScene::new().await?;
    let counters: Vec<_> = names.iter().map(|name| (*name, 0, 5000)).collect();
    let handled = scene.invoke(&event(&[change(1, 0, CREATED, &counters)])?).await;
    assert_eq!(handled.report.posted, 3);
    for (_, usage) in scene.usage().await?.iter() {
        assert_eq!(usage.events, 1);
        for name in names {
            assert_eq!(usage.tokens[&format!("{name}#")], 5, "{name}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn overdrafts_of_soft_limits_are_counted() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let changes = [(0, 0, 1000, "-1"), (1, 1000, 2000, "-1000"), (2, 2000, 1500, "-500"), (3, 1500, 2500, "0")];
    let records = changes.map(|(at, before, after, left)| {
        let mut record = change(at, 0, CREATED, &[("tpm", before, after)]);
        record["dynamodb"]["NewImage"]["b_tpm_tk"] = json!({"N": left});
        record["dynamodb"]["NewImage"]["b_tpm_soft"] = json!({"BOOL": true});
        record
    });
    scene.invoke(&event(&records)?).await;
    for (_, usage) in scene.usage().await?.iter() {
        assert_eq!((usage.tokens["tpm"], usage.tokens["tpm#od"], usage.events), (2, 2, 4));
    }
    Ok(())
}

#[tokio::test]
async fn only_what_is_missing_is_added() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let consumed = |at: u64| at.cast_signed() * 1000;
    let records: Vec<_> = (0..6_u64)
        .map(|at| change(at, u32::from(at % 2 == 1), CREATED, &[("rpm", consumed(at), consumed(at + 1))]))
        .collect();
    assert_eq!(scene.invoke(&event(&records[..3])?).await.report.posted, 3);
    let report = scene.invoke(&event(&records)?).await.report;
    assert_eq!((report.posted, report.remainders, report.already_posted, report.writes), (0, 3, 0, 6));
    let report = scene.invoke(&event(&records[2..])?).await.report;
    assert_eq!((report.posted, report.remainders, report.already_posted, report.writes), (0, 0, 3, 3));
    for (_, usage) in scene.usage().await?.iter() {
        assert_eq!((usage.tokens["rpm"], usage.events), (6, 6));
    }
    Ok(())
}

#[tokio::test]
async fn many_shards_are_written_in_parts() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let scene = scene.with(|function| function.windows = vec![Window::Hourly]);
    let records: Vec<_> = (0..200).map(|shard| change(shard.into(), shard, CREATED, &[("rpm", 0, 1000)])).collect();
    let report = scene.invoke(&event(&records)?).await.report;
    assert_eq!((report.posted, report.writes), (1, 4));
    let report = scene.invoke(&event(&records)?).await.report;
    assert_eq!((report.already_posted, report.writes), (1, 4));
    for (_, usage) in scene.usage().await?.iter() {
        assert_eq!((usage.tokens["rpm"], usage.events), (200, 200));
    }
    Ok(())
}

#[tokio::test]
async fn a_late_batch_fails_and_may_be_repeated() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let records: Vec<_> = (3..6_i64)
        .map(|at| change(at.unsigned_abs(), 0, CREATED + 3600 * at, &[("rpm", at * 1000, at * 1000 + 1000)]))
        .collect();
    let batch = event(&records)?;
    let handled = scene.function.handle(&batch, Instant::now()).await;
    assert_eq!(failure(&handled.answer), Some(sequence(3)));
    assert!(handled.report.failed > 0 && handled.report.posted < handled.report.postings);
    assert_eq!(failure(&scene.invoke(&batch).await.answer), None);
    let all: i128 = scene.usage().await?.iter().map(|(_, usage)| usage.tokens["rpm"]).sum();
    assert_eq!(all, 9);
    Ok(())
}

#[tokio::test]
async fn errors_fail_the_batch_at_its_lowest_record() -> anyhow::Result<()> {
    for rates in [
        FaultRates { throttled: 1.0, ..FaultRates::default() },
        FaultRates { conflict: 1.0, ..FaultRates::default() },
        FaultRates { internal_before: 1.0, ..FaultRates::default() },
        FaultRates { dropped_before: 1.0, ..FaultRates::default() },
    ] {
        let scene = RollupScene::with_faults(rates, 0).await?;
        let records = [change(8, 0, CREATED, &[("rpm", 0, 1000)]), change(9, 1, CREATED, &[("rpm", 0, 1000)])];
        let deadline = Instant::now() + Duration::from_millis(200);
        let handled = scene.function.handle(&event(&records)?, deadline).await;
        assert_eq!(failure(&handled.answer), Some(sequence(8)));
        assert_eq!((handled.report.failed, scene.http.writes()), (3, 0));
        // However old a record is, what may succeed later is delivered again.
        assert_eq!(scene.services.queue.messages(), []);
        assert!(Instant::now() >= deadline, "calls are tried again until there is no time left");
        assert!(scene.http.counts().total() > 3, "each call was tried again");
    }
    Ok(())
}

#[tokio::test]
async fn a_silent_table_fails_the_batch_in_time() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.http.crash_after(0);
    let batch = event(&[change(8, 0, CREATED, &[("rpm", 0, 1000)])])?;
    let handled = scene.function.handle(&batch, Instant::now() + Duration::from_millis(100)).await;
    assert_eq!((failure(&handled.answer), handled.report.failed), (Some(sequence(8)), 3));
    Ok(())
}

#[tokio::test]
async fn a_hanging_posting_delays_only_itself() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    // One at a time, so that the others wait for it.
    let scene = scene.with(|function| {
        function.windows = vec![Window::Hourly];
        function.concurrency = NonZeroUsize::MIN;
    });
    scene.http.on_call(|_, body| body.contains("ENTITY#user-1").then_some(Fault::Hang));
    let handled = scene.invoke(&event(&[acquire(0), acquire_of("user-2", 1), acquire_of("user-3", 2)])?).await;
    assert_eq!(failure(&handled.answer), Some(sequence(0)));
    assert_eq!((handled.report.posted, handled.report.failed), (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_conflict_with_a_transaction_is_tried_again() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let conflicts = AtomicUsize::new(0);
    scene.http.on_call(move |_, _| (conflicts.fetch_add(1, Ordering::Relaxed) < 9).then_some(Fault::Conflict));
    let handled = scene.invoke(&event(&[acquire(0)])?).await;
    assert_eq!((failure(&handled.answer), scene.counted().await?), (None, (2, 1)));
    assert_eq!((scene.http.counts().conflict, handled.report.writes), (9, 3));
    Ok(())
}

#[tokio::test]
async fn a_snapshots_first_expiry_stays() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.invoke(&event(&[change(1, 0, CREATED, &[("rpm", 0, 1000)])])?).await;
    let before = item(&scene, "#USAGE#api#2025-12-31T23:00:00Z").await?;
    let shorter = Snapshots::new(scene.services.dynamodb.clone(), &scene.services.table, 7);
    let scene = scene.with(|function| function.snapshots = shorter);
    scene.invoke(&event(&[change(2, 0, CREATED, &[("rpm", 1000, 3000)])])?).await;
    let after = item(&scene, "#USAGE#api#2025-12-31T23:00:00Z").await?;
    assert_eq!((&after["ttl"], &after["rpm"]), (&before["ttl"], &number(3)));
    Ok(())
}

#[tokio::test]
async fn a_write_with_a_lost_answer_counts_once() -> anyhow::Result<()> {
    let rates = FaultRates { internal_after: 0.5, dropped_after: 0.4, ..FaultRates::default() };
    let scene = RollupScene::with_faults(rates, 7).await?;
    for at in 0..10_i64 {
        let records = [change(at.unsigned_abs(), 0, CREATED, &[("rpm", at * 1000, at * 1000 + 1000)])];
        assert_eq!(failure(&scene.invoke(&event(&records)?).await.answer), None);
    }
    assert!(scene.http.counts().unacknowledged() > 5);
    for (_, usage) in scene.usage().await?.iter() {
        assert_eq!((usage.tokens["rpm"], usage.events), (10, 10));
    }
    Ok(())
}

#[tokio::test]
async fn our_own_writes_cost_no_work() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let mut snapshot = change(1, 0, CREATED, &[("rpm", 0, 1000)]);
    snapshot["dynamodb"]["Keys"] =
        json!({"PK": {"S": "TQ5vSMvQTm4/ENTITY#user-1"}, "SK": {"S": "#USAGE#api#2026-01-01T00:00:00Z"}});
    let handled = scene.invoke(&event(&[snapshot.clone(), snapshot])?).await;
    assert_eq!((handled.report.not_ours, handled.report.postings, scene.http.writes()), (2, 0, 0));
    assert_eq!(failure(&scene.invoke(&event([""; 0])?).await.answer), None);
    Ok(())
}
