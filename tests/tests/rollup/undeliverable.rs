//! Records that cannot be processed are parked whole, or are the failure. They never stop the others.

use tidegate_aws::{client, dead_letters::DeadLetterQueue, error::causes, schema};
use tidegate_tests::rollup::prelude::*;

/// The scene with a dead-letter queue whose messages meet the faults that `hook` picks.
fn with_faulty_queue(
    scene: RollupScene,
    hook: impl Fn(&str, &str) -> Option<Fault> + Send + Sync + 'static,
) -> RollupScene {
    let http = FaultyHttp::undisturbed();
    http.on_call(hook);
    let sqs = client::sqs(&sdk_config(scene.services.queue.endpoint(), http));
    let queue = DeadLetterQueue::new(sqs, scene.services.queue.url(), "usage-rollup");
    scene.with(|function| function.dead_letters = Some(queue))
}

#[tokio::test]
async fn poison_is_parked_whole() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let records = [acquire(0), poisoned(1), acquire(2)];
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled.answer), None);
    assert!(handled.answer.as_ref().is_ok_and(|answer| answer.batch_item_failures.is_empty()));
    assert_eq!((handled.report.poison, handled.report.parked), (1, 1));
    assert_eq!(scene.counted().await?, (4, 2));
    let [parked] = &scene.services.queue.messages()[..] else { panic!("one message") };
    assert_eq!(serde_json::from_str::<Value>(&parked.body)?, records[1]);
    let reason = &parked.attributes["reason"];
    assert!(reason.contains("dynamodb.NewImage.b_rpm_tc") && reason.contains("0.5"), "{reason}");
    assert!(!parked.attributes.contains_key("snapshot"));
    Ok(())
}

#[tokio::test]
async fn without_a_queue_poison_is_the_failure() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?.with(|function| function.dead_letters = None);
    let handled = scene.invoke(&event(&[acquire(0), poisoned(1), poisoned(2), acquire(3)])?).await;
    assert_eq!(failure(&handled.answer), Some(sequence(1)));
    assert_eq!((handled.report.unparked, handled.report.withheld), (2, 1));
    // Changes before the poison are counted. Later changes are delivered again.
    assert_eq!(scene.counted().await?, (2, 1));
    Ok(())
}

#[tokio::test]
async fn unparked_poison_counts_once_it_is_readable() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&[acquire(0), poisoned(1), acquire(2)])?).await.answer), Some(sequence(1)));
    // A new version of the function can decode the record.
    assert_eq!(failure(&scene.invoke(&event(&[acquire(1), acquire(2)])?).await.answer), None);
    assert_eq!(scene.counted().await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn poison_that_cannot_be_parked_is_the_failure() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.services.queue.refuse(true);
    let batch = event(&[acquire(0), poisoned(1), acquire(2)])?;
    let handled = scene.invoke(&batch).await;
    assert_eq!(failure(&handled.answer), Some(sequence(1)));
    assert!(scene.services.queue.refused() > 0);
    assert_eq!(scene.counted().await?, (2, 1));

    scene.services.queue.refuse(false);
    let handled = scene.invoke(&batch).await;
    assert_eq!(failure(&handled.answer), None);
    assert_eq!(scene.services.queue.messages().len(), 1);
    assert_eq!(scene.counted().await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn a_failure_never_has_an_empty_identifier() -> anyhow::Result<()> {
    for number in [Value::Null, json!(""), json!("seven"), json!(7)] {
        let mut nameless = poisoned(1);
        nameless["dynamodb"]["SequenceNumber"] = number;
        let batch = event(&[acquire(0), nameless.clone(), acquire(2)])?;

        let scene = RollupScene::new().await?;
        assert_eq!(failure(&scene.invoke(&batch).await.answer), None, "{nameless} was parked");
        assert_eq!(serde_json::from_str::<Value>(&scene.services.queue.messages()[0].body)?, nameless);

        let scene = scene.with(|function| function.dead_letters = None);
        let handled = scene.invoke(&batch).await;
        assert!(handled.answer.is_err(), "the whole batch must be delivered again for {nameless}");
    }
    Ok(())
}

#[tokio::test]
async fn a_misconfigured_stream_parks_nothing() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let mut records = [acquire(0), poisoned(1), acquire(2)];
    records[2]["dynamodb"]["StreamViewType"] = json!("NEW_IMAGE");
    let handled = scene.invoke(&event(&records)?).await;
    let error = causes(&handled.answer.unwrap_err());
    assert!(error.contains("\"NEW_IMAGE\"") && error.contains("NEW_AND_OLD_IMAGES"), "{error}");
    assert_eq!((scene.services.queue.messages().len(), scene.http.writes()), (0, 0));
    Ok(())
}

#[tokio::test]
async fn parking_takes_at_most_half_of_the_time() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let scene = with_faulty_queue(scene, |_, _| Some(Fault::Hang));
    let deadline = Instant::now() + Duration::from_secs(4);
    let handled = scene.function.handle(&event(&[acquire(0), poisoned(1), acquire(2)])?, deadline).await;
    assert!(Instant::now() < deadline, "there is time left for what follows");
    assert_eq!((failure(&handled.answer), handled.report.withheld), (Some(sequence(1)), 1));
    assert_eq!(scene.counted().await?, (2, 1), "what precedes the poison is written");
    Ok(())
}

/// Panics in the posting to the daily snapshot, as a defect of the function would.
fn panic_on_daily(operation: &str, body: &str) -> Option<Fault> {
    assert!(operation != "UpdateItem" || !body.contains("#daily"), "a defect");
    None
}

#[tokio::test]
async fn records_whose_posting_panics_are_parked() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.http.on_call(panic_on_daily);
    let records = [acquire(0), poisoned(1), acquire(2)];
    let handled = scene.invoke(&event(&records)?).await;
    assert_eq!((failure(&handled.answer), handled.report.posted, handled.report.refused), (None, 4, 2));
    let parked = scene.services.queue.messages();
    let panicked = parked.iter().filter(|message| message.attributes["reason"].contains("panicked"));
    assert!(panicked.clone().all(|message| message.attributes["snapshot"].ends_with("#daily")));
    let bodies: Vec<Value> = panicked.map(|message| serde_json::from_str(&message.body)).collect::<Result<_, _>>()?;
    assert_eq!(bodies, [&records[0], &records[2]].map(Value::clone));
    Ok(())
}

#[tokio::test]
async fn a_panic_parks_no_counted_record() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.invoke(&event(&[acquire(0)])?).await;
    scene.http.on_call(panic_on_daily);
    let report = scene.invoke(&event(&[acquire(0)])?).await.report;
    assert_eq!((report.already_posted, report.refused, report.parked), (3, 0, 0));
    // As long as that is not known, the record is a failure.
    scene
        .http
        .on_call(|operation, body| panic_on_daily(operation, body).or((operation == "GetItem").then_some(Fault::Hang)));
    let deadline = Instant::now() + Duration::from_millis(500);
    let handled = scene.function.handle(&event(&[acquire(1)])?, deadline).await;
    assert_eq!((failure(&handled.answer), handled.report.parked), (Some(sequence(1)), 0));
    Ok(())
}

#[tokio::test]
async fn what_follows_an_unparked_refusal_is_withheld() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.http.on_call(panic_on_daily);
    // The queue takes the poison, but not what is refused.
    let scene = with_faulty_queue(scene, |_, body| body.contains("panicked").then_some(Fault::Conflict));
    let batch = event(&[acquire(0), poisoned(1), acquire(2)])?;
    let handled = scene.invoke(&batch).await;
    assert_eq!((failure(&handled.answer), handled.report.withheld), (Some(sequence(0)), 1));
    // The defect is fixed, and the batch is delivered again.
    scene.http.on_call(|_, _| None);
    assert_eq!(failure(&scene.invoke(&batch).await.answer), None);
    assert_eq!(scene.counted().await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn what_follows_a_failed_posting_is_withheld() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let records = [acquire(0), poisoned(1), acquire(2)];
    scene.http.on_call(|_, body| body.contains("#daily").then_some(Fault::Hang));
    let deadline = Instant::now() + Duration::from_millis(500);
    let handled = scene.function.handle(&event(&records)?, deadline).await;
    assert_eq!((failure(&handled.answer), handled.report.withheld), (Some(sequence(0)), 1));
    assert!(scene.services.queue.messages().is_empty(), "the poison is delivered again, too");
    scene.http.on_call(|_, _| None);
    assert_eq!(failure(&scene.invoke(&event(&records)?).await.answer), None);
    assert_eq!((scene.counted().await?, scene.services.queue.messages().len()), ((4, 2), 1));
    Ok(())
}

/// Makes the daily snapshot's counter a text, so that DynamoDB rejects every ADD to it. Returns the snapshot's key.
async fn spoil_daily(scene: &RollupScene) -> anyhow::Result<String> {
    let (pk, sk) = ("TQ5vSMvQTm4/ENTITY#user-1", "#USAGE#api#2025-12-31T00:00:00Z#daily");
    let put = scene.services.dynamodb.put_item().table_name(&scene.services.table).item("rpm", text("many"));
    put.item(schema::PK, text(pk)).item(schema::SK, text(sk)).send().await?;
    Ok(format!("{pk} {sk}"))
}

#[tokio::test]
async fn refused_records_are_parked_with_their_snapshot() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let snapshot = spoil_daily(&scene).await?;
    let records = [acquire(0), acquire(1)];
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled.answer), None, "no record may block the shard");
    assert_eq!((handled.report.posted, handled.report.refused, handled.report.parked), (2, 1, 2));
    let parked = scene.services.queue.messages();
    assert!(parked.iter().all(|message| message.attributes["snapshot"] == snapshot));
    for record in records.iter().map(Value::to_string) {
        assert!(parked.iter().any(|message| message.body == record), "{record} is not parked");
    }

    let scene = scene.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&records)?).await.answer), Some(sequence(0)));
    Ok(())
}

#[tokio::test]
async fn all_parts_of_a_refused_posting_are_parked() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    spoil_daily(&scene).await?;
    // More bucket shards than a write takes.
    let records: Vec<_> = (0..100)
        .map(|at| {
            let mut record = acquire(at);
            record["dynamodb"]["Keys"]["PK"] = json!({"S": format!("TQ5vSMvQTm4/BUCKET#user-1#api#{at}")});
            record
        })
        .collect();
    let handled = scene.invoke(&event(&records)?).await;
    assert_eq!((failure(&handled.answer), handled.report.refused, handled.report.parked), (None, 1, 100));
    Ok(())
}
