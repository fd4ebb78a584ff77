//! Who gets what of the cap.

use std::num::NonZeroU32;

use tidegate_tests::fleet::prelude::*;

/// The workers' leases of reads.
fn leases<const N: usize>(workers: [&Worker; N]) -> [String; N] {
    workers.map(|worker| format!("{:.1}", worker.status().read.lease))
}

/// What workers may read together, and the unit that each newcomer may.
fn allowed(workers: &[&Worker]) -> f64 {
    workers.iter().map(|worker| worker.status().read.allowed).sum()
}

#[tokio::test]
async fn a_busy_worker_uses_the_cap() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().start()?;
    let status = worker.status();
    assert_eq!((status.read.allowed, status.read.limited_by, status.read.cap), (1.0, LimitedBy::NoLease, None));
    assert_eq!((status.summary_age, status.report_age, status.active_workers), (None, None, None));
    let _reader = Reader::start(&worker)?;
    // The worker looks at the summary every second.
    scene.pass(7, 2).await?;
    let status = worker.status();
    assert_eq!((status.read.lease, status.read.level), (980.0, Some(980.0)));
    assert_eq!((status.read.allowed, status.read.limited_by), (980.0, LimitedBy::Lease));
    assert_eq!((status.read.cap, status.write.cap, status.active_workers), (Some(1_000.0), Some(100.0), Some(1)));
    assert!(status.summary_age <= Some(Duration::from_secs(4)) && status.report_age <= Some(Duration::from_secs(6)));

    let before = worker.throttle().usage().reads.consumed;
    scene.pass(10, 2).await?;
    let used = worker.throttle().usage().reads.consumed - before;
    assert!((9_700.0..=9_900.0).contains(&used), "{used}");
    // Nothing was written for five seconds, so the worker wants one unit.
    assert_eq!((worker.status().write.lease, worker.status().write.limited_by), (1.0, LimitedBy::Demand));
    Ok(())
}

#[tokio::test]
async fn busy_workers_share_and_an_idle_one_leaves_its_share() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let idle = scene.worker().start()?;
    let (one, two) = (scene.worker().start()?, scene.worker().weight(NonZeroU32::MIN.saturating_add(1)).start()?);
    let one_reads = Reader::start(&one)?;
    scene.pass(20, 4).await?;
    assert_eq!(leases([&idle, &one, &two]), ["1.0", "978.0", "1.0"]);

    // The second one has two shares. Meanwhile, they never have more than the cap together.
    let _two_reads = Reader::start(&two)?;
    for _ in 0..20 {
        scene.pass(1, 5).await?;
        assert!(allowed(&[&idle, &one, &two]) <= 980.0, "{:?}", [one.status(), two.status()]);
    }
    assert_eq!(leases([&one, &two]), ["326.3", "652.7"]);

    drop(one_reads);
    scene.pass(20, 4).await?;
    assert_eq!(leases([&one, &two]), ["1.0", "978.0"]);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_stops_leaves_its_share_at_once() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let (stays, stops) = (scene.worker().start()?, scene.worker().start()?);
    let _readers = [Reader::start(&stays)?, Reader::start(&stops)?];
    scene.pass(15, 4).await?;
    assert_eq!(leases([&stays, &stops]), ["490.0", "490.0"]);
    let (id, throttle) = (stops.id().to_owned(), stops.throttle().clone());
    let used = throttle.usage().reads.consumed;
    stops.stop().await?;
    assert!(scene.aggregator.bucket().get(&worker_key(PREFIX, &id)).is_none());
    // Its reader still waits. It never passes.
    scene.pass(12, 3).await?;
    assert_eq!(leases([&stays]), ["980.0"]);
    assert!((throttle.usage().reads.consumed - used).abs() < f64::EPSILON);
    Ok(())
}

/// Nothing can use the lease any more.
#[tokio::test]
async fn a_worker_without_a_throttle_in_use_deletes_its_file() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().name("shard-7").start()?;
    let key = worker_key(PREFIX, worker.id());
    assert!(worker.id().starts_with("shard-7-"), "{worker:?}");
    let throttle = worker.throttle().clone();
    drop(worker);
    scene.pass_alone(7, 1).await?;
    assert!(scene.aggregator.bucket().get(&key).is_some());
    drop(throttle);
    scene.clock.advance(Duration::from_secs(2));
    while scene.aggregator.bucket().get(&key).is_some() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_slow_start_and_a_maximum_limit_a_worker() -> anyhow::Result<()> {
    let scene = FleetScene::new().await?;
    let worker = scene.worker().max(201.0, 50.0).slow_start(Duration::from_secs(100)).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(20, 2).await?;
    let status = worker.status().read;
    // One unit, and two more each second. The worker has reported less than six seconds ago.
    assert!((21.0..41.0).contains(&status.allowed) && status.limited_by == LimitedBy::SlowStart, "{status:?}");
    scene.pass(100, 2).await?;
    let status = worker.status().read;
    assert_eq!((status.lease, status.allowed, status.limited_by), (201.0, 201.0, LimitedBy::Maximum));
    Ok(())
}
