//! Batches that the event source mapping discarded, and stored in S3.

use tidegate_sandbox::s3::{Call, EmbeddedS3, Fault};
use tidegate_tests::rollup::prelude::*;

use crate::{decisions, deliver, discard, discard_of, hours, later, redrive_failures, redrive_queue, redriver};

async fn scene() -> anyhow::Result<(RollupScene, EmbeddedS3)> {
    Ok((RollupScene::new().await?, EmbeddedS3::start(None).await?))
}

fn acquires(from: u64, to: u64) -> Vec<Value> {
    (from..to).map(acquire).collect()
}

#[tokio::test]
async fn a_batch_above_the_watermark_counts_whole() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    deliver(&scene, &acquires(0, 2)).await?;
    discard(&s3, "1", &acquires(2, 6));
    let summary = redrive_failures(&s3, &redriver(&scene), hours(24)).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 0, 12, 0], 0), "{summary}");
    let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([12, 0, 0, 0], 1), "{summary}");
    assert_eq!((scene.counted().await?, s3.bucket().get("failures/1")), ((12, 6), None));
    // The stream goes on behind it, and so does a redrive of the same object.
    deliver(&scene, &acquires(6, 7)).await?;
    discard(&s3, "1", &acquires(2, 6));
    let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 12, 0, 0], 1), "{summary}");
    assert_eq!(scene.counted().await?, (14, 7));
    Ok(())
}

#[tokio::test]
async fn a_record_at_the_watermark_is_undecided() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    deliver(&scene, &acquires(2, 4)).await?;
    // The first two are missing, the next two are in, and the last two are missing.
    discard(&s3, "1", &acquires(0, 6));
    for expect in [[6, 0, 0, 12], [0, 6, 0, 12]] {
        let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
        assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), (expect, 0, 1), "{summary}");
        let [(name, reason)] = &summary.left[..] else { panic!("{summary}") };
        assert_eq!(name, "failures/1");
        assert!((0..4).all(|at| reason.contains(&sequence(at))) && !reason.contains(&sequence(4)), "{reason}");
    }
    assert_eq!(scene.counted().await?, (8, 4));

    // A person has found that the first two are not in.
    discard(&s3, "1", &acquires(0, 2));
    let mut decided_by_a_person = redriver(&scene);
    for (prefix, expect) in [("TQ5vSMvQTm4/ENTITY#user-9", [0, 0, 0, 6]), ("TQ5vSMvQTm4/ENTITY#user-1 ", [6, 0, 0, 0])]
    {
        decided_by_a_person.redrive.count_undecided = Some(prefix.to_owned());
        let summary = redrive_failures(&s3, &decided_by_a_person, later()).await?;
        assert_eq!(decisions(&summary), expect, "{summary}");
    }
    discard(&s3, "1", &acquires(0, 2));
    let summary = redrive_failures(&s3, &decided_by_a_person, later()).await?;
    assert_eq!((decisions(&summary), summary.deleted), ([0, 6, 0, 0], 1), "{summary}");
    assert_eq!(scene.counted().await?, (12, 6));
    Ok(())
}

#[tokio::test]
async fn a_parked_record_of_a_batch_counts_once() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    deliver(&scene, &acquires(2, 3)).await?;
    discard(&s3, "1", &acquires(1, 2));
    scene.services.queue.put(dead_letter(&acquire(1)));
    assert_eq!(decisions(&redrive_failures(&s3, &redriver(&scene), later()).await?), [0, 0, 0, 3]);
    assert_eq!(decisions(&redrive_queue(&scene, &redriver(&scene), later()).await?), [3, 0, 0, 0]);
    assert_eq!(decisions(&redrive_failures(&s3, &redriver(&scene), later()).await?), [0, 3, 0, 0]);
    assert_eq!(scene.counted().await?, (4, 2));
    Ok(())
}

#[tokio::test]
async fn a_record_that_stays_stops_no_other() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    discard(&s3, "1", &[acquire(0), poisoned(1), acquire_of("user-2", 2), acquire(3)]);
    for expect in [[9, 0, 0, 0], [0, 9, 0, 0]] {
        let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
        assert_eq!((decisions(&summary), summary.deleted, summary.exit_code()), (expect, 0, 1), "{summary}");
        assert!(summary.left[0].1.contains("b_rpm_tc"), "{summary}");
    }
    Ok(())
}

#[tokio::test]
async fn objects_of_others_stay_and_are_named() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    discard_of(&s3, "1", "bucket-keeper", &acquires(0, 1));
    s3.bucket().put("failures/2", json!({"seven": 7}).to_string(), later());
    discard(&s3, "3", &acquires(0, 1));
    s3.bucket().put("others/1", "not a discarded batch", later());
    let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.deleted, decisions(&summary)), (3, 1, [3, 0, 0, 0]), "{summary}");
    for (name, expect) in [("failures/1", "bucket-keeper"), ("failures/2", "not an invocation record")] {
        let (_, reason) = summary.left.iter().find(|(left, _)| left == name).unwrap();
        assert!(reason.contains(expect), "{reason}");
    }
    Ok(())
}

#[tokio::test]
async fn objects_of_several_pages_are_all_read() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    (0..1100).for_each(|at| discard(&s3, &format!("{at:04}"), &acquires(at, at + 1)));
    // Objects of a page are deleted before the next one is listed.
    let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.deleted, decisions(&summary)), (1100, 1100, [3300, 0, 0, 0]), "{summary}");
    assert_eq!((scene.counted().await?, s3.bucket().take_calls().lists), ((2200, 1100), 3));
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_gone_stops_no_other() -> anyhow::Result<()> {
    let (scene, s3) = scene().await?;
    (0..3).for_each(|at| discard(&s3, &at.to_string(), &acquires(at, at + 1)));
    s3.bucket().on_call(|bucket, call| match call {
        Call::Get { key } if key == "failures/0" => {
            assert!(bucket.delete(key), "it is read once");
            None
        }
        Call::Get { key } if key == "failures/1" => Some(Fault::AccessDenied),
        _ => None,
    });
    let summary = redrive_failures(&s3, &redriver(&scene), later()).await?;
    assert_eq!((summary.items, summary.deleted, decisions(&summary)), (2, 1, [3, 0, 0, 0]), "{summary}");
    assert!(
        matches!(&summary.left[..], [(key, reason)] if key == "failures/1" && reason.contains("AccessDenied")),
        "{summary}"
    );
    Ok(())
}
