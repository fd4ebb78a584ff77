//! Records that the function parked.

use std::{collections::BTreeMap, future, sync::Mutex};

use futures::future::try_join_all;
use indicatif::ProgressBar;
use tidegate_domain::redrive::Decision;
use tidegate_sandbox::queue::Message;
use tidegate_tests::rollup::prelude::*;
use tokio::sync::oneshot;

use crate::{decisions, deliver, hours, later, queue, queue_by, redrive_queue, redriver, redriver_by};

const DAILY: (&str, &str) = ("TQ5vSMvQTm4/ENTITY#user-1", "#USAGE#api#2025-12-31T00:00:00Z#daily");

/// Three records. The middle one was parked as poison, and can be decoded now.
async fn with_a_gap() -> anyhow::Result<RollupScene> {
    let scene = RollupScene::new().await?;
    deliver(&scene, &[acquire(0), acquire(2)]).await?;
    scene.services.queue.put(dead_letter(&acquire(1)));
    Ok(scene)
}

#[tokio::test]
async fn a_parked_record_counts_once() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let dead_letters = scene.services.queue.messages();
    // The watermark has passed the record, so there is nothing to wait for.
    let summary = redrive_queue(&scene, &redriver(&scene), hours(1)).await?;
    assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), ([3, 0, 0, 0], 1, 0), "{summary}");
    assert_eq!((scene.counted().await?, scene.services.queue.messages()), ((6, 3), vec![]));

    // The same message twice, since a batch that is delivered again parks its poison again.
    dead_letters.iter().chain(&dead_letters).for_each(|message| scene.services.queue.put(message.clone()));
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 3, 0, 0], 2), "{summary}");

    // The stream goes on as if nothing had been.
    deliver(&scene, &[acquire(1), acquire(2), acquire(3)]).await?;
    assert_eq!(scene.counted().await?, (8, 4));
    Ok(())
}

#[tokio::test]
async fn poison_stays_until_it_can_be_decoded() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    deliver(&scene, &[acquire(0), poisoned(1), acquire(2)]).await?;
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.deleted, summary.left.len(), summary.exit_code()), (1, 0, 1, 1), "{summary}");
    assert!(summary.left[0].1.contains("b_rpm_tc"), "{summary}");
    Ok(())
}

#[tokio::test]
async fn a_record_waits_while_it_is_deliverable() -> anyhow::Result<()> {
    for is_delivered in [false, true] {
        let scene = RollupScene::new().await?;
        scene.services.queue.put(dead_letter(&acquire(1)));
        let summary = redrive_queue(&scene, &redriver(&scene), hours(24)).await?;
        assert_eq!((decisions(&summary), summary.deleted, summary.left.len()), ([0, 0, 3, 0], 0, 1), "{summary}");
        if is_delivered {
            deliver(&scene, &[acquire(0)]).await?;
        }
        let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
        assert_eq!((decisions(&summary), summary.deleted), ([3, 0, 0, 0], 1), "{summary}");
        assert_eq!(scene.counted().await?.1, 1 + u64::from(is_delivered));
    }
    Ok(())
}

#[tokio::test]
async fn operators_at_the_same_time_count_once() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let [parked] = &scene.services.queue.messages()[..] else { panic!("one message") };
    (0..40).for_each(|_| scene.services.queue.put(parked.clone()));
    let faulty = |seed| redriver_by(&scene, FaultyHttp::new(FaultRates::spread(0.4), seed));
    let operators = [faulty(1), faulty(2), faulty(3)];
    let summaries = operators.iter().map(|operator| redrive_queue(&scene, operator, later()));
    let summaries = try_join_all(summaries).await?;
    assert_eq!(summaries.iter().map(|summary| summary.items).sum::<usize>(), 41);
    assert_eq!((scene.counted().await?, scene.services.queue.messages()), ((6, 3), vec![]));
    Ok(())
}

#[tokio::test]
async fn functions_and_a_redrive_share_a_snapshot() -> anyhow::Result<()> {
    for seed in 0..5 {
        let scene = RollupScene::with_faults(FaultRates::spread(0.4), seed).await?;
        let readable: Vec<_> = (0..40).map(acquire).collect();
        let is_poison = |at: u64| at % 7 == 3;
        let records: Vec<_> = (0..40).map(|at| if is_poison(at) { poisoned(at) } else { acquire(at) }).collect();
        readable.iter().skip(3).step_by(7).for_each(|record| scene.services.queue.put(dead_letter(record)));
        let operator = redriver_by(&scene, scene.http.clone());
        let (batch, half) = (event(&records)?, event(&records[..20])?);
        let (_, _, redriven) = futures::future::join3(
            scene.invoke(&batch),
            scene.invoke(&half),
            redrive_queue(&scene, &operator, later()),
        )
        .await;
        // One whose answer was lost is found to be redriven.
        let [counted, already_redriven, waiting, undecided] = decisions(&redriven?);
        assert_eq!((counted + already_redriven, waiting, undecided), (18, 0, 0));
        assert_eq!(scene.counted().await?, (80, 40), "seed {seed}");
    }
    Ok(())
}

#[tokio::test]
async fn a_crashed_redrive_can_be_repeated() -> anyhow::Result<()> {
    for writes in 0..4 {
        let scene = with_a_gap().await?;
        let [parked] = &scene.services.queue.messages()[..] else { panic!("one message") };
        let http = FaultyHttp::new(FaultRates { conflict: 0.0, ..FaultRates::spread(0.2) }, 9);
        http.crash_after(writes);
        let dying = redriver_by(&scene, http.clone());
        tokio::select! {
            summary = redrive_queue(&scene, &dying, later()) => assert!(writes == 3 && summary.is_ok(), "{writes}: {summary:?}"),
            () = http.crashed() => {}
        }
        // The message that the dead process received becomes visible again.
        scene.services.queue.put(parked.clone());
        redrive_queue(&scene, &redriver(&scene), later()).await?;
        assert_eq!(scene.counted().await?, (6, 3), "died after {writes} writes");
    }
    Ok(())
}

#[tokio::test]
async fn refused_records_count_after_a_repair() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let spoilt = scene.services.dynamodb.put_item().table_name(&scene.services.table).item("rpm", text("many"));
    spoilt.item("PK", text(DAILY.0)).item("SK", text(DAILY.1)).send().await?;
    deliver(&scene, &[acquire(0), acquire(1)]).await?;
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((summary.deleted, summary.left.len(), scene.services.queue.messages().len()), (0, 2, 2), "{summary}");
    assert!(summary.left.iter().all(|(_, reason)| reason.contains("will not succeed on retry")), "{summary}");

    let mend = scene.services.dynamodb.delete_item().table_name(&scene.services.table);
    mend.key("PK", text(DAILY.0)).key("SK", text(DAILY.1)).send().await?;
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([2, 0, 0, 0], 2), "{summary}");
    assert_eq!(scene.counted().await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    let mut dry = redriver(&scene);
    dry.redrive.dry_run = true;
    for _ in 0..2 {
        let summary = redrive_queue(&scene, &dry, later()).await?;
        assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), ([3, 0, 0, 0], 0, 0), "{summary}");
        assert!(summary.to_string().contains("dry run"), "{summary}");
        assert_eq!((scene.counted().await?, scene.services.queue.messages().len()), ((4, 2), 1));
    }
    Ok(())
}

#[tokio::test]
async fn unreadable_messages_stay_and_are_named() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let mut elsewhere = dead_letter(&acquire(5));
    elsewhere.attributes.insert("snapshot".to_owned(), format!("{} {}", DAILY.0.replace("user-1", "user-9"), DAILY.1));
    let mut of_staging = acquire(6);
    of_staging["eventSourceARN"] = json!(STREAM.replace("table/limits", "table/staging"));
    let messages = [
        dead_letter(&of_staging),
        dead_letter(&poisoned(1)),
        Message {
            attributes: [("function".to_owned(), "bucket-keeper".to_owned())].into(),
            ..dead_letter(&acquire(2))
        },
        Message { attributes: BTreeMap::new(), ..dead_letter(&acquire(3)) },
        dead_letter(&json!({"about": BUCKET})),
        elsewhere,
        dead_letter(&acquire(4)),
    ];
    for message in messages {
        scene.services.queue.put(message);
    }
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.deleted, summary.exit_code()), (7, 1, 1), "{summary}");
    let expected = [
        "of table staging, not of limits",
        "b_rpm_tc",
        "bucket-keeper",
        "no attribute",
        "dynamodb: is missing",
        "user-9",
    ];
    assert_eq!(summary.left.len(), expected.len(), "{summary}");
    for expect in expected {
        assert!(summary.left.iter().any(|(_, reason)| reason.contains(expect)), "{expect}: {summary}");
    }
    assert_eq!((scene.counted().await?, scene.services.queue.messages().len()), ((2, 1), 6));
    Ok(())
}

#[tokio::test]
async fn a_message_that_stays_is_received_once() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    scene.services.queue.deliver_twice();
    // More than a round takes.
    (0..2100).for_each(|at| scene.services.queue.put(dead_letter(&poisoned(at))));
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.left.len(), summary.deleted, summary.source_errors.len()), (2100, 2100, 0, 0));
    // All are visible again.
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!(summary.items, 2100);
    Ok(())
}

#[tokio::test]
async fn an_undeleted_message_is_named() -> anyhow::Result<()> {
    let scene = with_a_gap().await?;
    scene.services.queue.expire_receipts();
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), ([3, 0, 0, 0], 0, 1), "{summary}");
    assert!(summary.left[0].1.contains("could not be deleted"), "{summary}");

    // A message that cannot be made visible is named below the table.
    let mut dry = redriver(&scene);
    dry.redrive.dry_run = true;
    scene.services.queue.put(dead_letter(&acquire(1)));
    let summary = redrive_queue(&scene, &dry, later()).await?;
    assert_eq!((summary.left.len(), summary.source_errors.len(), summary.exit_code()), (0, 1, 1), "{summary}");
    assert!(summary.to_string().contains("is hidden"), "{summary}");
    Ok(())
}

#[tokio::test]
async fn a_silent_queue_is_an_error() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    let http = FaultyHttp::undisturbed();
    http.on_call(|_, _| Some(Fault::Conflict));
    let (redriver, mut gone, bar) = (redriver(&scene), queue_by(&scene, http), ProgressBar::hidden());
    let error = redriver.run(&mut gone, later(), &bar, future::pending()).await.unwrap_err();
    assert!(format!("{error:#}").contains("reading the source"), "{error:#}");
    Ok(())
}

#[tokio::test]
async fn an_interrupt_lets_started_work_finish() -> anyhow::Result<()> {
    let scene = RollupScene::new().await?;
    (0..100).for_each(|at| scene.services.queue.put(dead_letter(&acquire_of(&format!("user-{at}"), 1))));
    // After the first transaction.
    let (stop, stopped) = oneshot::channel();
    let http = FaultyHttp::undisturbed();
    let stop = Mutex::new(Some(stop));
    http.on_call(move |operation, _| {
        if operation == "TransactWriteItems" {
            stop.lock().unwrap().take().map(|stop| stop.send(()));
        }
        None
    });
    let stopped = async { drop(stopped.await) };
    let interrupted = redriver_by(&scene, http);
    let summary = interrupted.run(&mut queue(&scene), later(), &ProgressBar::hidden(), stopped).await?;
    let counted = summary.decided(Decision::Count);
    assert!(summary.interrupted && (1..300).contains(&counted), "{summary}");
    assert_eq!(scene.usage().await?.iter().count(), counted, "what was begun is finished");
    assert_eq!(summary.deleted + summary.left.len(), 100);
    assert!(summary.left.iter().all(|(_, reason)| reason == "interrupted"), "{summary}");

    // Another run goes on.
    let summary = redrive_queue(&scene, &redriver(&scene), later()).await?;
    assert_eq!((summary.decided(Decision::Count), summary.left.len()), (300 - counted, 0), "{summary}");
    assert_eq!(scene.services.queue.messages(), []);
    Ok(())
}
