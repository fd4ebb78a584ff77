//! What workers do without a summary, without the aggregator, and without the bucket.

use tidegate_tests::fleet::prelude::*;

/// Two busy workers with half of the cap each, and their readers.
async fn busy(scene: &FleetScene) -> anyhow::Result<([Worker; 2], [Reader; 2])> {
    let workers = [scene.worker().start()?, scene.worker().start()?];
    let readers = [Reader::start(&workers[0])?, Reader::start(&workers[1])?];
    scene.pass(16, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::Lease); 2]);
    Ok((workers, readers))
}

fn limits(workers: &[Worker; 2]) -> [(f64, LimitedBy); 2] {
    workers.each_ref().map(|worker| (worker.status().read.allowed, worker.status().read.limited_by))
}

/// The safe share is an equal part of the cap, and no more than the lease was.
#[tokio::test]
async fn without_the_aggregator_workers_fall_to_their_safe_share() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let (workers, _readers) = busy(&scene).await?;
    scene.pass_alone(7, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::Lease); 2]);
    scene.pass_alone(60, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::SafeShare); 2]);
    assert!(workers[0].status().summary_age > Some(Duration::from_mins(1)));
    assert!(workers[0].status().report_age < Some(Duration::from_secs(6)));
    // With the aggregator, everything is as before.
    scene.pass(20, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::Lease); 2]);
    Ok(())
}

#[tokio::test]
async fn without_the_bucket_workers_lose_their_leases() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let (workers, _readers) = busy(&scene).await?;
    scene.aggregator.bucket().on_call(|_, _| Some(Fault::SlowDown));
    scene.pass_alone(16, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::SafeShare); 2]);
    scene.pass_alone(30, 4).await?;
    assert_eq!(limits(&workers), [(1.0, LimitedBy::NoLease); 2]);
    scene.aggregator.bucket().undisturbed();
    scene.pass(40, 4).await?;
    assert_eq!(limits(&workers), [(490.0, LimitedBy::Lease); 2]);
    Ok(())
}

/// A worker reports at once and then looks at the summary every second, until it has what it wants.
#[tokio::test]
async fn a_content_worker_makes_two_calls_in_five_seconds() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().max(300.0, 10.0).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(20, 2).await?;
    assert_eq!(worker.status().read.limited_by, LimitedBy::Maximum);
    let calls = async |seconds: u32, waiting| {
        let _ = scene.aggregator.bucket().take_calls();
        scene.pass_alone(seconds, waiting).await?;
        anyhow::Ok(scene.aggregator.bucket().take_calls())
    };
    let content = calls(55, 2).await?;
    // Its lease ends meanwhile. Shortly before, the worker looks every second.
    assert!((10..=13).contains(&content.puts) && content.gets - content.puts <= 5, "{content:?}");
    // Beside it, a worker wants more than it has. It sees no new summary.
    let hungry = scene.worker().start()?;
    let _reader = Reader::start(&hungry)?;
    let both = calls(55, 4).await?;
    assert!((20..=27).contains(&both.puts) && (40..=75).contains(&(both.gets - content.gets)), "{both:?}");
    Ok(())
}

#[tokio::test]
async fn only_a_valid_summary_grants_a_lease() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().start()?;
    let _reader = Reader::start(&worker)?;
    let python = r#"{"timestamp": 1767225600.0, "aggregated_read_rate": 1.0, "aggregated_write_rate": 1.0}"#;
    for summary in ["garbage", "", python, r#"{"lease_seconds": 15}"#] {
        scene.aggregator.bucket().put("fleet/summary.json", summary, time(NOW));
        scene.pass_alone(2, 2).await?;
        let status = worker.status();
        assert_eq!((status.read.allowed, status.read.limited_by), (1.0, LimitedBy::NoLease), "{summary}");
        assert_eq!((status.active_workers, status.summary_age.is_some()), (None, true), "{summary}");
    }
    Ok(())
}

/// The store has received the report, but the worker does not know. It reports again a second later.
#[tokio::test]
async fn a_failed_report_is_repeated_at_once() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().start()?;
    let _reader = Reader::start(&worker)?;
    scene.aggregator.bucket().on_call(|_, call| matches!(call, Call::Put { .. }).then_some(Fault::InternalAfter));
    scene.pass_alone(1, 2).await?;
    assert_eq!((worker.status().report_age, scene.file(&worker).is_some()), (None, true));
    scene.aggregator.bucket().undisturbed();
    scene.pass_alone(3, 2).await?;
    assert!(worker.status().report_age.is_some());
    scene.pass(6, 2).await?;
    assert_eq!((worker.status().read.allowed, worker.status().read.limited_by), (980.0, LimitedBy::Lease));
    Ok(())
}

#[tokio::test]
async fn a_file_that_cannot_be_deleted_is_an_error() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().start()?;
    scene.pass_alone(1, 1).await?;
    scene.aggregator.bucket().on_call(|_, call| matches!(call, Call::Delete { .. }).then_some(Fault::AccessDenied));
    let error = worker.stop().await.unwrap_err();
    assert!(error.to_string().contains("DeleteObject"), "{error}");
    Ok(())
}

/// The aggregator runs every eight seconds. A content worker looks every five, and again before its lease ends.
#[tokio::test]
async fn a_content_worker_renews_its_lease_in_time() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().max(300.0, 10.0).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(20, 2).await?;
    for second in 0..160 {
        if second % 8 == 0 {
            scene.aggregator.aggregate(scene.clock.epoch_millis()).await;
        }
        scene.pass_alone(1, 2).await?;
        let read = worker.status().read;
        assert_eq!((read.lease, read.limited_by), (300.0, LimitedBy::Maximum), "{second}");
    }
    Ok(())
}
