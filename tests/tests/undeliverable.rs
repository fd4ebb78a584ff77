//! What cannot be processed is parked whole, or is named as the failure; it never stops the others.

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use tidegate_aws::schema;
use tidegate_local::faults::FaultRates;
use tidegate_tests::{Scene, event, failure};

const BUCKET: &str = "TQ5vSMvQTm4/BUCKET#user-1#api#0";

/// The `at`th acquire of 2 tokens from one bucket.
fn acquire(at: u64) -> Value {
    let image = |consumed: u64| json!({"PK": {"S": BUCKET}, "SK": {"S": "#STATE"}, "b_rpm_tc": {"N": (consumed * 2000).to_string()}});
    json!({
        "eventID": at.to_string(), "eventName": "MODIFY", "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_767_223_800, "Keys": {"PK": {"S": BUCKET}, "SK": {"S": "#STATE"}},
            "NewImage": image(at + 1), "OldImage": image(at), "SequenceNumber": sequence(at),
        },
    })
}

fn sequence(at: u64) -> String {
    format!("1{at:020}")
}

fn poisoned(at: u64) -> Value {
    let mut record = acquire(at);
    record["dynamodb"]["NewImage"]["b_rpm_tc"] = json!({"N": "0.5"});
    record
}

/// The tokens that the three snapshots hold, which must be alike.
async fn tokens(scene: &Scene) -> anyhow::Result<i128> {
    let books = scene.books().await?;
    let tokens: Vec<_> = books.iter().map(|(_, usage)| usage.tokens["rpm"]).collect();
    assert!(tokens.len() == 3 && tokens.iter().all(|some| *some == tokens[0]), "{books:?}");
    Ok(tokens[0])
}

#[tokio::test]
async fn poison_is_parked_whole_and_the_batch_goes_on() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let records = [acquire(0), poisoned(1), acquire(2)];
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled), None);
    assert_eq!(handled.answer.as_ref().map(|answer| answer.batch_item_failures.len()), Ok(0));
    assert_eq!((handled.report.poison, handled.report.parked), (1, 1));
    assert_eq!(tokens(&scene).await?, 4);
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
    assert_eq!(tokens(&scene).await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_record_that_could_not_be_decoded_counts_once_it_can() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&[acquire(0), poisoned(1), acquire(2)])?).await), Some(sequence(1)));
    // A new version of the function knows what the record means.
    assert_eq!(failure(&scene.invoke(&event(&[acquire(1), acquire(2)])?).await), None);
    assert_eq!(tokens(&scene).await?, 6);
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
    assert_eq!(tokens(&scene).await?, 2);

    scene.services.queue.refuse(false);
    let handled = scene.invoke(&batch).await;
    assert_eq!(failure(&handled), None);
    assert_eq!(scene.services.queue.messages().len(), 1);
    assert_eq!(tokens(&scene).await?, 4);
    Ok(())
}

#[tokio::test]
async fn poison_without_a_usable_sequence_number_never_gives_an_empty_identifier() -> anyhow::Result<()> {
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
async fn records_of_a_snapshot_that_takes_none_are_parked_with_its_name() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    // Somebody has put a text where the daily snapshot counts: every ADD to it is refused for good.
    let (pk, sk) = ("TQ5vSMvQTm4/ENTITY#user-1", "#USAGE#api#2025-12-31T00:00:00Z#daily");
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let put = scene.services.dynamodb.put_item().table_name(&scene.services.table).item("rpm", text("many"));
    put.item(schema::PK, text(pk)).item(schema::SK, text(sk)).send().await?;

    let mut records = [acquire(0), acquire(1)];
    for record in &mut records {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(1_767_222_000);
    }
    let handled = scene.invoke(&event(&records)?).await;

    assert_eq!(failure(&handled), None, "no record may block the shard");
    assert_eq!((handled.report.posted, handled.report.refused, handled.report.parked), (2, 1, 2));
    let letters = scene.services.queue.messages();
    assert!(letters.iter().all(|letter| letter.attributes["snapshot"] == format!("{pk} {sk}")));
    for record in records.iter().map(Value::to_string) {
        assert!(letters.iter().any(|letter| letter.body == record), "{record} is not parked");
    }

    let scene = scene.with(|function| function.dead_letters = None);
    assert_eq!(failure(&scene.invoke(&event(&records)?).await), Some(sequence(0)));
    Ok(())
}
