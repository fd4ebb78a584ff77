//! Capacity that is not ready at once.

use std::{future::IntoFuture, pin::pin};

use futures::poll;
use tidegate_tests::announcements::prelude::*;

/// The longest time until the client invokes the function again that has said "in 20 seconds".
const NEXT: Duration = Duration::from_secs(25);

#[tokio::test]
async fn the_function_is_invoked_again_until_it_is_ready() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.function.answers([Scripted::NotReady(20), Scripted::NotReady(20)]);
    let request = tokio::spawn(scene.announce().into_future());
    for invocation in 1..=2 {
        scene.settled(1).await?;
        assert_eq!(scene.function.requests().len(), 1, "invocation {invocation}");
        // It waits at least for as long as the function has said.
        scene.pass(Duration::from_millis(19_999), 1).await?;
        assert_eq!(scene.clock.waiting(), 1);
        scene.pass(NEXT, 1).await?;
    }
    let announcement = request.await??;
    let requests = scene.function.requests();
    assert_eq!((requests.len(), &requests[0]["id"]), (1, &json!(ID)));
    assert_eq!(announcement.provisioned(), Some(PROVISIONED));
    Ok(())
}

#[tokio::test]
async fn a_deadline_releases_what_is_not_ready() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.function.answers(vec![Scripted::NotReady(20); 9]);
    let request = tokio::spawn(scene.announce().deadline(Duration::from_mins(1)).into_future());
    // The third wait would end after 60 to 75 seconds.
    for _ in 0..2 {
        scene.pass(NEXT, 1).await?;
    }
    let CapacityError::NotReady(not_ready) = request.await?.unwrap_err() else { anyhow::bail!("another error") };
    assert_eq!((not_ready.retry_after, not_ready.is_dry_run), (Some(Duration::from_secs(20)), false));
    assert_eq!(scene.function.actions(), ["announce", "announce", "announce", "release"]);
    assert!(scene.function.in_force().is_empty());
    Ok(())
}

#[tokio::test]
async fn without_time_the_function_is_invoked_once() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    scene.function.answers([Scripted::NotReady(20)]);
    let error = scene.announce().deadline(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, CapacityError::NotReady(_)), "{error}");
    assert_eq!(scene.function.actions(), ["announce", "release"]);
    assert!(scene.announce().deadline(Duration::ZERO).await?.is_ready());
    Ok(())
}

/// The last invocation may find the capacity ready after the deadline.
#[tokio::test]
async fn an_invocation_that_runs_at_the_deadline_counts() -> anyhow::Result<()> {
    let scene = AnnouncementScene::new().await?;
    let gate = scene.held();
    let mut request = pin!(scene.announce().deadline(Duration::from_secs(5)).into_future());
    assert!(poll!(&mut request).is_pending());
    gate.holds(1).await;
    scene.clock.advance(Duration::from_secs(50));
    gate.open().await;
    assert!(request.await?.is_ready());
    Ok(())
}
