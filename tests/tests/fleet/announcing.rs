//! Workers that announce their work before they begin.

use tidegate::{
    capacity::{AnnounceBuilder, CapacityKind},
    fleet::AnnouncementState,
};
use tidegate_tests::{
    announcements::{AnnouncementScene, ID, Scripted},
    fleet::prelude::*,
};

/// A fleet, and a coordinator with the same clock.
async fn scenes() -> anyhow::Result<(FleetScene, AnnouncementScene)> {
    let fleet = FleetScene::new().await?;
    let announcements = AnnouncementScene::at(fleet.clock.clone()).await?;
    Ok((fleet, announcements))
}

/// An announcement of reads that lasts for 20 seconds.
fn reads(announcements: &AnnouncementScene) -> AnnounceBuilder {
    let request = announcements.coordinator.announce("orders", CapacityKind::Read, 1_000);
    request.id(ID).lasting(Duration::from_secs(20))
}

#[tokio::test]
async fn a_worker_begins_when_the_capacity_is_ready() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    let gate = announcements.held();
    let worker = scene.worker().announce(reads(&announcements)).start()?;
    let _reader = Reader::start(&worker)?;
    gate.holds(1).await;
    scene.pass(12, 2).await?;
    let (read, write) = (worker.status().read, worker.status().write);
    assert_eq!((read.allowed, read.limited_by), (1.0, LimitedBy::Announcement));
    assert_eq!((read.announcement, write.announcement), (Some(AnnouncementState::Pending), None));
    let used = worker.throttle().usage().reads.consumed;
    assert!((10.0..=14.0).contains(&used), "{used}");

    gate.open().await;
    // The worker, its reader, and the next renewal wait.
    scene.pass(9, 3).await?;
    let read = worker.status().read;
    assert_eq!((read.allowed, read.limited_by), (980.0, LimitedBy::Lease));
    assert_eq!(read.announcement, Some(AnnouncementState::Ready));
    assert_eq!(announcements.function.actions(), ["announce"]);
    Ok(())
}

#[tokio::test]
async fn other_capacity_does_not_wait() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    let _gate = announcements.held();
    let worker = scene.worker().announce(announcements.announce()).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(7, 2).await?;
    let (read, write) = (worker.status().read, worker.status().write);
    assert_eq!((read.allowed, read.limited_by, read.announcement), (980.0, LimitedBy::Lease, None));
    assert_eq!((write.allowed, write.limited_by), (1.0, LimitedBy::Announcement));
    Ok(())
}

#[tokio::test]
async fn an_announcement_is_renewed_and_released() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    let worker = scene.worker().announce(reads(&announcements)).start()?;
    scene.pass(35, 2).await?;
    let requests = announcements.function.requests();
    let asked: Vec<_> = requests.iter().map(|request| (&request["id"], &request["for_seconds"])).collect();
    assert_eq!(asked, [(&json!(ID), &json!(20)); 4], "once, and after each ten seconds");
    worker.stop().await?;
    assert_eq!(announcements.function.actions(), ["release"]);
    Ok(())
}

#[tokio::test]
async fn a_worker_that_is_dropped_releases() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    let worker = scene.worker().announce(reads(&announcements)).start()?;
    let throttle = worker.throttle().clone();
    scene.pass(3, 2).await?;
    drop(worker);
    scene.pass(3, 2).await?;
    assert_eq!(announcements.function.in_force(), [ID], "the throttle is in use");
    drop(throttle);
    scene.clock.advance(Duration::from_secs(2));
    while !announcements.function.in_force().is_empty() {
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_stops_early_leaves_nothing() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    let gate = announcements.held();
    let worker = scene.worker().announce(reads(&announcements)).start()?;
    gate.holds(1).await;
    worker.stop().await?;
    gate.open().await;
    announcements.coordinator.flush().await;
    assert_eq!(announcements.function.actions(), ["announce", "release"]);
    Ok(())
}

#[tokio::test]
async fn without_the_capacity_a_worker_starts_slowly() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    announcements.function.answers(vec![Scripted::NotReady(20); 9]);
    let request = reads(&announcements).deadline(Duration::from_secs(30));
    let worker = scene.worker().max(201.0, 50.0).slow_start(Duration::from_secs(100)).announce(request).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(19, 3).await?;
    assert_eq!(worker.status().read.announcement, Some(AnnouncementState::Pending));
    // The second answer comes after 20 to 25 seconds. A third one would come after the deadline.
    scene.clock.advance(Duration::from_secs(6));
    scene.pass(50, 2).await?;
    let read = worker.status().read;
    assert_eq!(read.announcement, Some(AnnouncementState::Failed));
    // One unit, and two more each second for 50 seconds. The worker has reported less than six seconds ago.
    assert!((85.0..=105.0).contains(&read.allowed) && read.limited_by == LimitedBy::SlowStart, "{read:?}");
    assert_eq!(announcements.function.actions(), ["announce", "announce", "release"]);
    Ok(())
}

#[tokio::test]
async fn a_refused_worker_starts_over_ten_minutes() -> anyhow::Result<()> {
    let (scene, announcements) = scenes().await?;
    announcements.function.answers([Scripted::Error("NoScalableTarget")]);
    let worker = scene.worker().max(601.0, 50.0).announce(reads(&announcements)).start()?;
    let _reader = Reader::start(&worker)?;
    scene.pass(60, 2).await?;
    let read = worker.status().read;
    assert_eq!(read.announcement, Some(AnnouncementState::Failed));
    assert!((50.0..=61.0).contains(&read.allowed) && read.limited_by == LimitedBy::SlowStart, "{read:?}");
    Ok(())
}
