//! Records that the function parked.

use aws_sdk_dynamodb::types::AttributeValue;
use futures::future;
use serde_json::json;
use tidegate_domain::{redrive::Decision, time::EpochMillis};
use tidegate_local::{
    faults::{FaultRates, FaultyHttp},
    queue::Message,
    redrive::Summary,
};
use tidegate_tests::{Scene, event, failure};
use tokio::time::{Duration, Instant};

use crate::scene::{BUCKET, acquire, later, redrive, redriver, redriver_by, sequence, tokens};

const DAILY: (&str, &str) = ("TQ5vSMvQTm4/ENTITY#user-1", "#USAGE#api#2025-12-31T00:00:00Z#daily");

/// Three records of which the middle one is in no snapshot but parked for each: the table threw all writes away while
/// it was delivered, until it was too old.
async fn with_a_gap() -> anyhow::Result<Scene> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    assert_eq!(failure(&scene.invoke(&event(&[acquire(0)])?).await), None);
    let busy = FaultyHttp::new(FaultRates { throttled: 1.0, ..FaultRates::default() }, 0);
    let function = tidegate_local::rollup::function(&scene.services, &busy);
    let batch = event(&[acquire(1)])?;
    let handled = function.handle(&batch, later(), Instant::now() + Duration::from_millis(400)).await;
    assert_eq!(failure(&handled), None);
    assert_eq!((handled.report.given_up, handled.report.parked, handled.report.failed), (3, 3, 0));
    assert_eq!(failure(&scene.invoke(&event(&[acquire(2)])?).await), None);
    assert_eq!(tokens(&scene).await?, (4, 2));
    Ok(scene)
}

fn decided(summary: &Summary, decision: Decision) -> usize {
    summary.decisions.get(&decision).copied().unwrap_or_default()
}

#[tokio::test]
async fn a_record_that_is_older_than_its_snapshots_watermark_counts_once() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let letters = scene.services.queue.messages();
    assert!(letters.iter().all(|letter| !letter.attributes.contains_key("unsure")), "{letters:?}");
    let summary = redrive(&scene).await?;
    assert_eq!((summary.received, summary.deleted, decided(&summary, Decision::Count)), (3, 3, 3));
    assert_eq!(tokens(&scene).await?, (6, 3));
    assert_eq!(scene.services.queue.messages(), []);

    // The same letters once more, each twice, since a batch that comes again parks its records again.
    for letter in letters.iter().chain(&letters) {
        scene.services.queue.put(letter.clone());
    }
    let summary = redrive(&scene).await?;
    assert_eq!((summary.deleted, decided(&summary, Decision::AlreadyRedriven)), (6, 6));
    assert_eq!(tokens(&scene).await?, (6, 3));

    // The stream goes on as if nothing had been, and what it delivers again is in.
    let handled = scene.invoke(&event(&[acquire(1), acquire(2), acquire(3)])?).await;
    assert_eq!((failure(&handled), handled.report.remainders), (None, 3));
    assert_eq!(tokens(&scene).await?, (8, 4));
    Ok(())
}

#[tokio::test]
async fn a_record_that_nothing_came_after_waits_until_it_cannot_be_delivered() -> anyhow::Result<()> {
    for is_delivered in [false, true] {
        let scene = Scene::new(FaultRates::default(), 0).await?;
        let busy = FaultyHttp::new(FaultRates { throttled: 1.0, ..FaultRates::default() }, 0);
        let function = tidegate_local::rollup::function(&scene.services, &busy);
        let batch = event(&[acquire(1)])?;
        function.handle(&batch, later(), Instant::now() + Duration::from_millis(400)).await;
        let summary = redrive(&scene).await?;
        assert_eq!((decided(&summary, Decision::Waiting), summary.deleted, summary.left.len()), (3, 0, 3), "{summary}");

        if is_delivered {
            // The answer was lost, and the table has recovered.
            assert_eq!(scene.invoke_at(later(), &batch).await.report.posted, 3);
        }
        let tomorrow = EpochMillis::new(later().get() + 18 * 3_600_000)?;
        let summary = redriver(&scene).run(tomorrow).await?;
        let decision = if is_delivered { Decision::AlreadyCounted } else { Decision::Count };
        assert_eq!((decided(&summary, decision), summary.deleted), (3, 3), "{summary}");
        assert_eq!(tokens(&scene).await?, (2, 1));
    }
    Ok(())
}

#[tokio::test]
async fn poison_among_late_records_counts_once_it_can_be_read() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let mut poison = acquire(1);
    poison["dynamodb"]["NewImage"]["b_rpm_tc"] = json!({"N": "0.5"});
    let handled = scene.invoke_at(later(), &event(&[acquire(0), poison, acquire(2)])?).await;
    assert_eq!((failure(&handled), handled.report.parked, handled.report.late), (None, 1, 3));
    assert_eq!(redrive(&scene).await?.left.len(), 1);
    // A new version knows what the record says.
    let [letter] = &scene.services.queue.messages()[..] else { panic!("one letter") };
    scene.services.queue.put(Message { body: acquire(1).to_string(), ..letter.clone() });
    assert_eq!(decided(&redrive(&scene).await?, Decision::Count), 3);
    assert_eq!(tokens(&scene).await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn two_operators_at_once_count_once() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let letters = scene.services.queue.messages();
    for letter in letters.iter().cycle().take(40) {
        scene.services.queue.put(letter.clone());
    }
    let faulty = |seed| redriver_by(&scene, FaultyHttp::new(FaultRates::spread(0.3), seed));
    let operators = [faulty(1), faulty(2), faulty(3)];
    let summaries = future::try_join_all(operators.iter().map(|operator| operator.run(later()))).await?;
    assert_eq!(summaries.iter().map(|summary| summary.received).sum::<usize>(), 43);
    assert_eq!(tokens(&scene).await?, (6, 3));
    assert_eq!(scene.services.queue.messages(), []);
    Ok(())
}

#[tokio::test]
async fn a_redrive_that_dies_between_any_two_writes_is_simply_run_again() -> anyhow::Result<()> {
    for writes in 0..4 {
        let scene = with_a_gap().await?;
        let http = FaultyHttp::new(FaultRates::spread(0.2), 9);
        http.crash_after(writes);
        let dying = redriver_by(&scene, http.clone());
        tokio::select! {
            summary = dying.run(later()) => assert!(writes == 3 && summary.is_ok(), "{writes}: {summary:?}"),
            () = http.crashed() => {}
        }
        // What the dead process held comes back after a while.
        for letter in scene.services.queue.messages() {
            scene.services.queue.put(letter);
        }
        redrive(&scene).await?;
        assert_eq!(tokens(&scene).await?, (6, 3), "died after {writes} writes");
    }
    Ok(())
}

#[tokio::test]
async fn records_that_a_snapshot_refused_count_once_it_is_mended() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let spoilt = scene.services.dynamodb.put_item().table_name(&scene.services.table).item("rpm", text("many"));
    spoilt.item("PK", text(DAILY.0)).item("SK", text(DAILY.1)).send().await?;
    for (now, at) in [(EpochMillis::EPOCH, 0), (later(), 1)] {
        let handled = scene.invoke_at(now, &event(&[acquire(at)])?).await;
        assert_eq!((failure(&handled), handled.report.refused, handled.report.parked), (None, 1, 1), "{handled:?}");
    }
    let mend = scene.services.dynamodb.delete_item().table_name(&scene.services.table);
    mend.key("PK", text(DAILY.0)).key("SK", text(DAILY.1)).send().await?;
    assert_eq!(failure(&scene.invoke(&event(&[acquire(2)])?).await), None);

    let summary = redrive(&scene).await?;
    assert_eq!((summary.deleted, decided(&summary, Decision::Count)), (2, 2));
    assert_eq!(tokens(&scene).await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn what_is_not_proved_waits_for_a_person() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    // No call is answered, so not even whether the record is in can be learnt.
    let dead = FaultyHttp::new(FaultRates::default(), 0);
    dead.crash_after(0);
    let function = tidegate_local::rollup::function(&scene.services, &dead);
    let batch = event(&[acquire(1)])?;
    let handled = function.handle(&batch, later(), Instant::now() + Duration::from_millis(400)).await;
    assert_eq!((failure(&handled), handled.report.given_up, handled.report.parked), (None, 3, 3));
    assert!(scene.services.queue.messages().iter().all(|letter| letter.attributes["unsure"] == "true"));
    assert_eq!(failure(&scene.invoke(&event(&[acquire(2)])?).await), None);

    let summary = redrive(&scene).await?;
    assert_eq!((summary.deleted, decided(&summary, Decision::Undecided), summary.exit_code()), (0, 3, 1));
    assert!(summary.left.iter().all(|(_, reason)| reason.contains(&sequence(1))), "{summary}");
    assert_eq!((tokens(&scene).await?, scene.services.queue.messages().len()), ((2, 1), 3));

    let mut decided_by_a_person = redriver(&scene);
    decided_by_a_person.redrive.count_undecided = true;
    for (deleted, tokens_then) in [(3, (4, 2)), (0, (4, 2))] {
        let summary = decided_by_a_person.run(later()).await?;
        assert_eq!((summary.deleted, summary.exit_code()), (deleted, 0));
        assert_eq!(tokens(&scene).await?, tokens_then);
    }
    Ok(())
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let mut dry = redriver(&scene);
    dry.redrive.dry_run = true;
    for _ in 0..2 {
        let summary = dry.run(later()).await?;
        assert_eq!((summary.received, summary.deleted, decided(&summary, Decision::Count)), (3, 0, 3));
        assert!(summary.to_string().contains("dry run"), "{summary}");
        assert_eq!((tokens(&scene).await?, scene.services.queue.messages().len()), ((4, 2), 3));
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_understood_stays_and_is_named() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let put = |body: String, function: Option<&str>| {
        let attributes = function.map(|function| ("function".to_owned(), function.to_owned()));
        scene.services.queue.put(Message { body, attributes: attributes.into_iter().collect() });
    };
    let mut poison = acquire(1);
    poison["dynamodb"]["NewImage"]["b_rpm_tc"] = json!({"N": "0.5"});
    put(poison.to_string(), Some("usage-rollup"));
    put(acquire(2).to_string(), Some("bucket-keeper"));
    put(acquire(3).to_string(), None);
    put(format!("{{\"about\": \"{BUCKET}\"}}"), Some("usage-rollup"));
    put(acquire(4).to_string(), Some("usage-rollup"));

    let summary = redrive(&scene).await?;
    assert_eq!((summary.received, summary.deleted, summary.exit_code()), (5, 1, 1));
    let expected = ["b_rpm_tc", "bucket-keeper", "neither", "dynamodb: is missing"];
    assert_eq!(summary.left.len(), expected.len());
    for ((_, reason), expect) in summary.left.iter().zip(expected) {
        assert!(reason.contains(expect), "{summary}");
    }
    assert_eq!(tokens(&scene).await?, (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_letter_of_a_snapshot_that_its_record_does_not_add_to_stays() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    for mut letter in scene.services.queue.messages() {
        let snapshot = letter.attributes.get_mut("snapshot").unwrap();
        *snapshot = snapshot.replace("user-1", "user-9");
        scene.services.queue.put(letter);
    }
    let summary = redrive(&scene).await?;
    assert_eq!((summary.received, summary.deleted, summary.exit_code()), (6, 3, 1), "{summary}");
    assert!(summary.left.iter().all(|(_, reason)| reason.contains("adds nothing") && reason.contains("user-9")));
    assert_eq!((summary.left.len(), scene.services.queue.messages().len()), (3, 3), "{summary}");
    assert_eq!(tokens(&scene).await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn messages_that_come_twice_do_not_end_the_run() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    scene.services.queue.deliver_twice();
    let mut dry = redriver(&scene);
    dry.redrive.dry_run = true;
    let summary = dry.run(later()).await?;
    assert_eq!((summary.received, decided(&summary, Decision::Count), summary.exit_code()), (3, 3, 0), "{summary}");
    Ok(())
}

#[tokio::test]
async fn what_is_settled_but_not_deleted_is_named() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    scene.services.queue.outdate();
    let summary = redrive(&scene).await?;
    assert_eq!((summary.received, summary.deleted, decided(&summary, Decision::Count)), (3, 0, 3), "{summary}");
    assert!(summary.left.iter().all(|(_, reason)| reason.contains("could not be deleted")), "{summary}");
    assert_eq!((summary.left.len(), summary.exit_code()), (3, 1), "{summary}");

    // What cannot be given back is told, below the table.
    let mut dry = redriver(&scene);
    dry.redrive.dry_run = true;
    scene.services.queue.put(scene.services.queue.messages().remove(0));
    let summary = dry.run(later()).await?;
    assert_eq!((summary.left.len(), summary.troubles.len(), summary.exit_code()), (0, 1, 1), "{summary}");
    assert!(summary.to_string().contains("given back"), "{summary}");
    assert_eq!(tokens(&scene).await?, (6, 3));
    Ok(())
}

#[tokio::test]
async fn what_comes_again_anyway_is_not_parked() -> anyhow::Result<()> {
    let scene = Scene::new(FaultRates::default(), 0).await?;
    let busy = FaultyHttp::new(FaultRates { throttled: 1.0, ..FaultRates::default() }, 0);
    let function = tidegate_local::rollup::function(&scene.services, &busy);
    // The first record is another bucket's, and young: it is the failure, and the old one behind it comes again.
    let mut young = acquire(1);
    young["dynamodb"]["ApproximateCreationDateTime"] = json!(later().get() / 1000);
    young["dynamodb"]["Keys"]["PK"] = json!({"S": "TQ5vSMvQTm4/BUCKET#user-2#api#0"});
    let batch = event(&[young, acquire(2)])?;
    let handled = function.handle(&batch, later(), Instant::now() + Duration::from_millis(400)).await;
    assert_eq!((failure(&handled), handled.report.parked), (Some(sequence(1)), 0));
    assert_eq!((handled.report.failed, handled.report.given_up), (3, 3));

    // Without a queue, old ones are failures like others.
    let scene = scene.with(|function| function.dead_letters = None);
    scene.http.crash_after(0);
    let handled =
        scene.function.handle(&event(&[acquire(2)])?, later(), Instant::now() + Duration::from_millis(100)).await;
    assert_eq!((failure(&handled), handled.report.failed), (Some(sequence(2)), 3));
    Ok(())
}
