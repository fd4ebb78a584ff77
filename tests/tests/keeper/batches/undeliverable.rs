//! Records and buckets that cannot be processed stop no other bucket.

use tidegate_tests::keeper::prelude::*;

const DRY: i64 = START + 40_000;

/// When the function learns of it.
const NOW: i64 = DRY + 1_500;

/// Creates dry buckets. Returns the records of one write to each.
async fn run_dry(scene: &mut KeeperScene, entities: &[&str]) -> anyhow::Result<Vec<StreamRecord>> {
    let mut state = full(1);
    set_tokens(&mut state, "rpm", 3_000);
    for entity in entities {
        scene.put(&key(entity), &state).await?;
    }
    scene.writes().await?;
    for entity in entities {
        scene.change(&key(entity), |state| take(state, "rpm", 1_000)).await?;
    }
    scene.records(DRY).await
}

fn make_malformed(record: &mut StreamRecord) -> anyhow::Result<Value> {
    let mut json: Value = serde_json::from_str(&record.json)?;
    json["dynamodb"]["NewImage"]["b_rpm_tk"] = json!({"N": "0.5"});
    record.json = json.to_string().into();
    Ok(json)
}

async fn is_refilled(scene: &KeeperScene, entity: &str) -> anyhow::Result<bool> {
    Ok(tokens(&scene.state(&key(entity)).await?, "rpm") > 50_000)
}

/// A batch of three dry buckets. The record of the second one is malformed.
async fn with_poison(scene: &mut KeeperScene) -> anyhow::Result<(StreamEvent, String, Value)> {
    let mut records = run_dry(scene, &["a", "b", "c"]).await?;
    let poison = make_malformed(&mut records[1])?;
    Ok((event(&records)?, records[1].sequence.clone(), poison))
}

#[tokio::test]
async fn poison_is_parked_and_others_are_refilled() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let (batch, _, poison) = with_poison(&mut scene).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert!(handled.answer.as_ref().is_ok_and(|answer| answer.batch_item_failures.is_empty()));
    assert_eq!((handled.report.poison, handled.report.parked, handled.report.refilled), (1, 1, 2));
    let [parked] = &scene.services.queue.messages()[..] else { panic!("one message") };
    assert_eq!(serde_json::from_str::<Value>(&parked.body)?, poison);
    let reason = &parked.attributes["reason"];
    assert!(reason.contains("dynamodb.NewImage.b_rpm_tk") && reason.contains("0.5"), "{reason}");
    for (entity, expect) in [("a", true), ("b", false), ("c", true)] {
        assert_eq!(is_refilled(&scene, entity).await?, expect, "{entity}");
    }
    Ok(())
}

#[tokio::test]
async fn without_a_queue_poison_fails_the_batch() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.keeper.dead_letters = None;
    let (batch, sequence, _) = with_poison(&mut scene).await?;
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!(failure(&handled.answer), Some(sequence));
    assert_eq!((handled.report.unparked, handled.report.refilled), (1, 2));
    assert!(is_refilled(&scene, "a").await? && is_refilled(&scene, "c").await?);
    Ok(())
}

#[tokio::test]
async fn a_redelivery_parks_what_the_queue_rejected() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let (batch, sequence, _) = with_poison(&mut scene).await?;
    scene.services.queue.refuse(true);
    assert_eq!(failure(&scene.invoke(&batch, NOW).await.answer), Some(sequence));
    scene.services.queue.refuse(false);
    assert_eq!(failure(&scene.invoke(&batch, NOW).await.answer), None);
    assert_eq!(scene.services.queue.messages().len(), 1);
    Ok(())
}

#[tokio::test]
async fn poison_without_a_sequence_number_fails_the_batch() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.keeper.dead_letters = None;
    let mut records = run_dry(&mut scene, &["a", "b"]).await?;
    let mut nameless: Value = serde_json::from_str(&records[0].json)?;
    nameless["dynamodb"]["SequenceNumber"] = json!("");
    records[0].json = nameless.to_string().into();
    let handled = scene.invoke(&event(&records)?, NOW).await;
    assert!(handled.answer.is_err(), "the whole batch must be delivered again");
    assert!(is_refilled(&scene, "b").await?);
    Ok(())
}

/// A batch in which the first bucket needs nothing, and the second needs a write at its two records.
async fn needy_second(scene: &mut KeeperScene) -> anyhow::Result<(StreamEvent, String)> {
    let mut records = run_dry(scene, &["a", "b"]).await?;
    scene.change(&key("a"), |state| take(state, "rpm", -90_000)).await?;
    scene.change(&key("b"), |state| take(state, "rpm", 1_000)).await?;
    records.extend(scene.records(DRY).await?);
    Ok((event(&records)?, records[1].sequence.clone()))
}

#[tokio::test]
async fn a_throttled_batch_fails_from_its_first_failure() -> anyhow::Result<()> {
    let rates = FaultRates { throttled: 1.0, ..FaultRates::default() };
    let mut scene = KeeperScene::with_faults(rates, 0).await?;
    let (batch, sequence) = needy_second(&mut scene).await?;
    let deadline = Instant::now() + Duration::from_millis(100);
    let handled = scene.keeper.handle(&batch, time(NOW), deadline).await;
    assert_eq!(failure(&handled.answer), Some(sequence));
    assert_eq!((handled.report.failed, handled.report.enough, handled.report.refused), (1, 1, 0));
    assert!(scene.http.counts().throttled > 1, "it was tried again");
    Ok(())
}

#[tokio::test]
async fn a_late_batch_fails_from_its_first_failure() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let (batch, sequence) = needy_second(&mut scene).await?;
    let handled = scene.keeper.handle(&batch, time(NOW), Instant::now()).await;
    assert_eq!(failure(&handled.answer), Some(sequence));
    assert_eq!((handled.report.failed, handled.report.enough), (1, 1));
    // The same batch with time.
    assert_eq!(failure(&scene.invoke(&batch, NOW).await.answer), None);
    Ok(())
}

#[tokio::test]
async fn a_bucket_that_is_corrupt_blocks_nothing() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    let mut records = run_dry(&mut scene, &["a"]).await?;
    let mut corrupt = item(&shard(&key("b"), 1), &full(2));
    corrupt.insert("b_rpm_tk".to_owned(), number("0.5"));
    scene.put_item(corrupt).await?;
    scene.writes().await?;
    scene.put(&key("b"), &full(1)).await?;
    scene.change(&key("b"), |state| state.shards = count(2)).await?;
    records.splice(0..0, scene.records(DRY).await?);
    let handled = scene.invoke(&event(&records)?, NOW).await;
    assert_eq!(failure(&handled.answer), None, "it would fail for ever");
    assert_eq!((handled.report.unfamiliar, handled.report.failed, handled.report.refilled), (1, 0, 1));
    assert!(is_refilled(&scene, "a").await?);
    Ok(())
}

/// A bucket that a client has doubled, and two that have run dry: the function cannot complete the shards, and
/// does what it must about the others.
async fn check_incomplete(cancel: impl FnOnce(&KeeperScene)) -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&key("hot"), &full(1)).await?;
    scene.writes().await?;
    scene.change(&key("hot"), |state| state.shards = count(2)).await?;
    let mut records = scene.records(DRY).await?;
    records.extend(run_dry(&mut scene, &["a", "b"]).await?);
    cancel(&scene);
    let handled = scene.invoke(&event(&records)?, NOW).await;
    assert_eq!(failure(&handled.answer), None);
    assert_eq!((handled.report.incomplete, handled.report.split, handled.report.refilled), (1, 0, 2));

    // The repair does it.
    scene.http.release();
    scene.http.on_call(|_, _| None);
    let repaired = scene.repair(NOW).await?;
    assert_eq!((repaired.report.split, repaired.report.incomplete), (1, 0));
    Ok(())
}

#[tokio::test]
async fn a_contended_bucket_is_left_to_the_repair() -> anyhow::Result<()> {
    let conflict = |operation: &str, _: &str| (operation == "TransactWriteItems").then_some(Fault::Conflict);
    check_incomplete(|scene| scene.http.on_call(conflict)).await
}

#[tokio::test]
async fn a_stuck_transaction_is_left_to_the_repair() -> anyhow::Result<()> {
    let began = Instant::now();
    check_incomplete(|scene| scene.http.hold("TransactWriteItems")).await?;
    assert!(began.elapsed() < Duration::from_secs(10), "about two seconds");
    Ok(())
}

#[tokio::test]
async fn conflicts_are_tried_again() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&key("hot"), &full(1)).await?;
    scene.writes().await?;
    scene.change(&key("hot"), |state| state.shards = count(2)).await?;
    let batch = scene.event(DRY).await?;
    let transactions = AtomicUsize::new(0);
    scene.http.on_call(move |operation, _| {
        let is_early = operation == "TransactWriteItems" && transactions.fetch_add(1, Ordering::Relaxed) < 2;
        is_early.then_some(Fault::Conflict)
    });
    let report = scene.invoke(&batch, DRY).await.report;
    assert_eq!((report.split_lost, report.split, report.incomplete), (0, 1, 0), "a conflict decides nothing");
    Ok(())
}

/// The repair completes registered buckets only.
#[tokio::test]
async fn a_bucket_must_be_registered_before_it_splits() -> anyhow::Result<()> {
    let mut scene = KeeperScene::new().await?;
    scene.put(&key("hot"), &full(1)).await?;
    scene.writes().await?;
    scene.change(&key("hot"), |state| state.shards = count(2)).await?;
    let batch = scene.event(DRY).await?;
    scene.http.on_call(|_, body| body.contains("#TIDEGATE#").then_some(Fault::Throttled));
    let handled = scene.keeper.handle(&batch, time(NOW), Instant::now() + Duration::from_millis(100)).await;
    assert!(failure(&handled.answer).is_some());
    assert_eq!((handled.report.failed, handled.report.split), (1, 0));

    scene.http.on_call(|_, _| None);
    let handled = scene.invoke(&batch, NOW).await;
    assert_eq!((failure(&handled.answer), handled.report.split), (None, 1), "delivered again");
    Ok(())
}
