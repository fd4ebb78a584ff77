//! What cannot be processed is parked whole, or is named as the failure; it never stops the others.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::{client, dead_letters::DeadLetterQueue, error::causes, schema};
use tidegate_sandbox::faults::{Fault, FaultRates, FaultyHttp, sdk_config};
use tidegate_tests::{
    Scene, event, failure,
    records::{acquire, poisoned, sequence, tokens},
};
use tokio::time::{Duration, Instant};

/// The scene with a dead-letter queue whose messages meet the faults that `hook` picks.
fn with_faulty_queue(scene: Scene, hook: impl Fn(&str, &str) -> Option<Fault> + Send + Sync + 'static) -> Scene {
    let http = FaultyHttp::new(FaultRates::default(), 0);
    http.on_call(hook);
    let sqs = client::sqs(&sdk_config(scene.services.queue.endpoint(), http));
    let queue = DeadLetterQueue::new(sqs, scene.services.queue.url(), "usage-rollup");
    scene.with(|function| function.dead_letters = Some(queue))
}

#[tokio::test]
async fn poison_is_parked_whole() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let records = [acquire(0), poisoned(1), acquire(2)];
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled), None);
    assert!(handled.answer.as_ref().is_ok_and(|answer| answer.batch_item_failures.is_empty()));
    assert_eq!((handled.report.poison, handled.report.parked), (1, 1));
    assert_eq!(tokens(&scene).await?, (4, 2));
    let [letter] = &scene.services.queue.messages()[..] else { panic!("one letter") };
    assert_eq!(serde_json::from_str::<Value>(&letter.body)?, records[1]);
    let reason = &letter.attributes["reason"];
    assert!(reason.contains("dynamodb.NewImage.b_rpm_tc") && reason.contains("0.5"), "{reason}");
    assert!(!letter.attributes.contains_key("snapshot"));
    Ok(())
}

#[tokio::test]
async fn without_a_queue_poison_is_the_failure() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?.with(|function| function.dead_letters = None);
    let handled = scene.invoke(&event(&[acquire(0), poisoned(1), poisoned(2), acquire(3)])?).await;
    assert_eq!(failure(&handled), Some(sequence(1)));
    assert_eq!((handled.report.unparked, handled.report.withheld), (2, 1));
    // What comes before is counted; what comes after comes again.
    assert_eq!(tokens(&scene).await?, (2, 1));
    Ok(())
}

#[tokio::test]
async fn unparked_poison_counts_once_it_is_readable() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&[acquire(0), poisoned(1), acquire(2)])?).await), Some(sequence(1)));
    // A new version of the function knows what the record means.
    assert_eq!(failure(&scene.invoke(&event(&[acquire(1), acquire(2)])?).await), None);
    assert_eq!(tokens(&scene).await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn poison_that_cannot_be_parked_is_the_failure() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    scene.services.queue.refuse(true);
    let batch = event(&[acquire(0), poisoned(1), acquire(2)])?;
    let handled = scene.invoke(&batch).await;
    assert_eq!(failure(&handled), Some(sequence(1)));
    assert!(scene.services.queue.refused() > 0);
    assert_eq!(tokens(&scene).await?, (2, 1));

    scene.services.queue.refuse(false);
    let handled = scene.invoke(&batch).await;
    assert_eq!(failure(&handled), None);
    assert_eq!(scene.services.queue.messages().len(), 1);
    assert_eq!(tokens(&scene).await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn a_failure_never_has_an_empty_identifier() -> anyhow::Result<()> {
    for number in [Value::Null, json!(""), json!("seven"), json!(7)] {
        let mut nameless = poisoned(1);
        nameless["dynamodb"]["SequenceNumber"] = number;
        let batch = event(&[acquire(0), nameless.clone(), acquire(2)])?;

        let scene = Scene::new(FaultRates::default(), 0).await?;
        assert_eq!(failure(&scene.invoke(&batch).await), None, "{nameless} was parked");
        assert_eq!(serde_json::from_str::<Value>(&scene.services.queue.messages()[0].body)?, nameless);

        let scene = scene.with(|function| function.dead_letters = None);
        let handled = scene.invoke(&batch).await;
        assert!(handled.answer.is_err(), "the whole batch must come again for {nameless}");
    }
    Ok(())
}

#[tokio::test]
async fn a_misconfigured_stream_parks_nothing() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
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
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let scene = with_faulty_queue(scene, |_, _| Some(Fault::Hang));
    let deadline = Instant::now() + Duration::from_secs(4);
    let handled = scene.function.handle(&event(&[acquire(0), poisoned(1), acquire(2)])?, deadline).await;
    assert!(Instant::now() < deadline, "there is time left for what follows");
    assert_eq!((failure(&handled), handled.report.withheld), (Some(sequence(1)), 1));
    assert_eq!(tokens(&scene).await?, (2, 1), "what precedes the poison is written");
    Ok(())
}

/// Our own mistake, in the posting to one snapshot.
fn panic_on_daily(operation: &str, body: &str) -> Option<Fault> {
    assert!(operation != "UpdateItem" || !body.contains("#daily"), "our own mistake");
    None
}

#[tokio::test]
async fn records_whose_posting_panics_are_parked() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    scene.http.on_call(panic_on_daily);
    let records = [acquire(0), poisoned(1), acquire(2)];
    let handled = scene.invoke(&event(&records)?).await;
    assert_eq!((failure(&handled), handled.report.posted, handled.report.refused), (None, 4, 2));
    let letters = scene.services.queue.messages();
    let panicked = letters.iter().filter(|letter| letter.attributes["reason"].contains("panicked"));
    assert!(panicked.clone().all(|letter| letter.attributes["snapshot"].ends_with("#daily")));
    let bodies: Vec<Value> = panicked.map(|letter| serde_json::from_str(&letter.body)).collect::<Result<_, _>>()?;
    assert_eq!(bodies, [&records[0], &records[2]].map(Value::clone));
    Ok(())
}

#[tokio::test]
async fn a_counted_record_is_not_parked_after_a_panic() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
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
    assert_eq!((failure(&handled), handled.report.parked), (Some(sequence(1)), 0));
    Ok(())
}

#[tokio::test]
async fn what_follows_an_unparked_refusal_is_withheld() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    scene.http.on_call(panic_on_daily);
    // The queue takes the poison, but not what is refused.
    let scene = with_faulty_queue(scene, |_, body| body.contains("panicked").then_some(Fault::Conflict));
    let batch = event(&[acquire(0), poisoned(1), acquire(2)])?;
    let handled = scene.invoke(&batch).await;
    assert_eq!((failure(&handled), handled.report.withheld), (Some(sequence(0)), 1));
    // The mistake is mended, and the batch is delivered again.
    scene.http.on_call(|_, _| None);
    assert_eq!(failure(&scene.invoke(&batch).await), None);
    assert_eq!(tokens(&scene).await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn what_follows_a_failed_posting_is_withheld() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let records = [acquire(0), poisoned(1), acquire(2)];
    scene.http.on_call(|_, body| body.contains("#daily").then_some(Fault::Hang));
    let deadline = Instant::now() + Duration::from_millis(500);
    let handled = scene.function.handle(&event(&records)?, deadline).await;
    assert_eq!((failure(&handled), handled.report.withheld), (Some(sequence(0)), 1));
    assert!(scene.services.queue.messages().is_empty(), "the poison is delivered again, too");
    scene.http.on_call(|_, _| None);
    assert_eq!(failure(&scene.invoke(&event(&records)?).await), None);
    assert_eq!((tokens(&scene).await?, scene.services.queue.messages().len()), ((4, 2), 1));
    Ok(())
}

/// The attribute that counts in the daily snapshot is a text, so DynamoDB rejects every ADD to it.
async fn spoil_daily(scene: &Scene) -> anyhow::Result<String> {
    let (pk, sk) = ("TQ5vSMvQTm4/ENTITY#user-1", "#USAGE#api#2025-12-31T00:00:00Z#daily");
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let put = scene.services.dynamodb.put_item().table_name(&scene.services.table).item("rpm", text("many"));
    put.item(schema::PK, text(pk)).item(schema::SK, text(sk)).send().await?;
    Ok(format!("{pk} {sk}"))
}

#[tokio::test]
async fn refused_records_are_parked_with_their_snapshot() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let snapshot = spoil_daily(&scene).await?;
    let records = [acquire(0), acquire(1)];
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled), None, "no record may block the shard");
    assert_eq!((handled.report.posted, handled.report.refused, handled.report.parked), (2, 1, 2));
    let letters = scene.services.queue.messages();
    assert!(letters.iter().all(|letter| letter.attributes["snapshot"] == snapshot));
    for record in records.iter().map(Value::to_string) {
        assert!(letters.iter().any(|letter| letter.body == record), "{record} is not parked");
    }

    let scene = scene.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&records)?).await), Some(sequence(0)));
    Ok(())
}

#[tokio::test]
async fn all_parts_of_a_refused_posting_are_parked() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
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
    assert_eq!((failure(&handled), handled.report.refused, handled.report.parked), (None, 1, 100));
    Ok(())
}
