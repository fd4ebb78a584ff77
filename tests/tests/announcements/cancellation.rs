//! Requests that are cancelled, and announcements that are dropped.

use std::{future::IntoFuture, pin::pin, task::Poll};

use futures::poll;
use tidegate_tests::announcements::prelude::*;

/// More polls than any request here needs.
const POLLS: usize = 60;

#[tokio::test]
async fn a_cancelled_request_leaves_nothing() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let mut granted = 0;
    for polls in 0..POLLS {
        let mut request = scene.announce().into_future();
        for _ in 0..polls {
            if let Poll::Ready(announced) = poll!(&mut request) {
                granted += 1;
                announced?.release().await?;
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(request);
        scene.coordinator.flush().await;
        assert!(scene.function.in_force().is_empty(), "after {polls} polls");
        let actions = scene.function.actions();
        let is_expected = actions.is_empty() || actions == ["announce", "release"];
        assert!(is_expected, "after {polls} polls: {actions:?}");
    }
    assert!((1..POLLS).contains(&granted), "{granted}");
    Ok(())
}

#[tokio::test]
async fn the_release_waits_for_the_invocation() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let gate = scene.held();
    {
        let mut request = pin!(scene.announce().into_future());
        assert!(poll!(&mut request).is_pending());
        gate.holds(1).await;
    }
    {
        let mut flushed = pin!(scene.coordinator.flush());
        for _ in 0..POLLS {
            assert!(poll!(&mut flushed).is_pending());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(scene.function.actions(), [""; 0]);
    gate.open().await;
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_request_is_released_while_it_waits() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.function.answers([Scripted::NotReady(20)]);
    let request = tokio::spawn(scene.announce().into_future());
    scene.settled(1).await?;
    request.abort();
    assert!(request.await.is_err());
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_not_awaited_does_nothing() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    drop(scene.announce().into_future());
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn an_announcement_can_be_dropped_outside_of_a_runtime() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let announcement = scene.announce().await?;
    let thread = std::thread::spawn(move || drop(announcement));
    assert!(thread.join().is_ok());
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    Ok(())
}

#[tokio::test]
async fn a_cancelled_release_goes_on_once() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    for polls in 0..POLLS {
        let announcement = scene.announce().await?;
        {
            let mut released = pin!(announcement.release());
            for _ in 0..polls {
                if poll!(&mut released).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        scene.coordinator.flush().await;
        assert_eq!(scene.function.actions(), ["announce", "release"], "after {polls} polls");
    }
    Ok(())
}

#[tokio::test]
async fn a_release_follows_a_cancelled_renewal() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let mut announcement = scene.announce().await?;
    let gate = scene.held();
    {
        let mut renewed = pin!(announcement.renew(Duration::from_mins(1)));
        assert!(poll!(&mut renewed).is_pending());
        gate.holds(1).await;
    }
    drop(announcement);
    gate.open().await;
    scene.coordinator.flush().await;
    assert_eq!(scene.function.actions(), ["announce", "announce", "release"]);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}
