//! Callers that are cancelled after any number of polls.

use std::task::Poll;

use tidegate_tests::reservations::prelude::*;

/// More polls than any call here needs.
const POLLS: usize = 60;

#[tokio::test]
async fn a_cancelled_request_leaves_nothing() -> anyhow::Result<()> {
    for is_counting in [true, false] {
        let scene = ReservationScene::new(3).await?;
        let reservations = if is_counting { scene.reservations.clone() } else { scene.only_rust() };
        let mut granted = 0;
        for polls in 0..POLLS {
            let mut request = reservations.reserve(CLUSTER, ACCOUNT).into_future();
            for _ in 0..polls {
                if let Poll::Ready(reserved) = futures::poll!(&mut request) {
                    granted += 1;
                    reserved?.release().await?;
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(request);
            reservations.flush().await;
            assert_eq!(scene.live().await?, 0, "after {polls} polls");
        }
        assert!((1..POLLS).contains(&granted), "{granted}");
    }
    Ok(())
}

/// The resource may run, so a cancelled `bind` keeps the token.
#[tokio::test]
async fn a_cancelled_bind_keeps_the_token() -> anyhow::Result<()> {
    let scene = ReservationScene::new(1).await?;
    for polls in 0..POLLS {
        let mut reservation = scene.reserve().await?;
        {
            let mut binding = Box::pin(reservation.bind("j-1", LIFETIME));
            for _ in 0..polls {
                if futures::poll!(&mut binding).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        scene.reservations.flush().await;
        let held = scene.reservations.list(CLUSTER, ACCOUNT).await?;
        assert_eq!(held[0].resource_id.as_deref(), Some("j-1"), "after {polls} polls");
        reservation.release().await?;
    }
    // The resource runs, whatever its id is.
    let mut reservation = scene.reserve().await?;
    for id in ["", &"j".repeat(2049)] {
        let error = reservation.bind(id, LIFETIME).await.unwrap_err();
        assert!(matches!(error, TokenError::Invalid(_)), "{error}");
    }
    drop(reservation);
    scene.reservations.flush().await;
    assert_eq!(scene.live().await?, 1);
    Ok(())
}
